//! `runner/base`, made by debootstrap from the packages that this machine's apt knows, and loaded without any registry.
//!
//! debootstrap makes the smallest root file system that has apt; apt in it does the rest, because debootstrap's own idea
//! of dependencies knows neither alternatives nor the virtual packages that npm is full of. Then the tree goes to the
//! engine as one layer. All of it needs root, and about 1 GB below /var/tmp for the time of the build.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::Image;
use super::apt::{self, Sources};
use super::archive::Defaults;
use super::rootfs::Rootfs;
use super::step::{self, Step};
use crate::sandbox::engine::{Engine, EngineError};

/// The image with the tools of a developer.
pub const BASE: &str = "runner/base";

/// Its packages, one a line.
const PACKAGES: &str = include_str!("../../../../../images/base/packages");

/// What installs them.
const INSTALL: &str = include_str!("../../../../../images/base/install");

/// Certificates of this machine's authorities: an https mirror may have one of them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What the image sets.
const ENVIRONMENT: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Beginning of the names of folders that builds work in.
const WORK: &str = "runner-base-";

/// How long a tree whose processes were just killed may resist its removal.
const REMOVAL: Duration = Duration::from_secs(5);

/// Why the image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// Only root can, or the program is missing, or both.
    #[error("{BASE} is made by debootstrap, {why}; type: {remedy}")]
    Unable {
        /// What stands in the way.
        why: &'static str,
        /// What to type.
        remedy: String,
    },
    /// No mirror was named and apt knows none.
    #[error("cannot tell which mirror this machine's packages come from; name one: --suite NAME --mirror URL")]
    NoSources,
    /// The value of a flag is none.
    #[error("--{flag} is {value:?}; {must}")]
    Flag {
        /// Its name.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// The folder to work in.
    #[error("{step} {path}: {source}")]
    Folder {
        /// What was tried.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program failed.
    #[error("cannot {what}: {why}")]
    Step {
        /// What was to be done.
        what: &'static str,
        /// How it ended.
        why: String,
        /// Its last words.
        output: Vec<String>,
    },
    /// Somebody stopped it.
    #[error("interrupted")]
    Interrupted,
    /// The engine did not take it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// How far a build is.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// Something begins.
    Step(&'a str),
    /// What the program that does it says.
    Line(&'a str),
}

/// What to build from.
#[derive(Debug, Clone, Default)]
pub struct Debian {
    /// The release; else this machine's.
    pub suite: Option<String>,
    /// The mirror; else those of this machine's apt.
    pub mirror: Option<String>,
}

/// The packages, sorted as the list is.
pub(crate) fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Engine {
    /// Builds `runner/base` and loads it.
    pub async fn build_base(
        &self,
        from: &Debian,
        progress: &dyn Fn(Progress<'_>),
        cancel: &CancellationToken,
    ) -> Result<Image, DebianError> {
        ready()?;
        let sources = from.sources()?;
        let work = Work::begin()?;
        let built = self.build_in(&work, &sources, progress, cancel).await;
        let removed = work.remove();
        let image = built?;
        removed.map(|()| image)
    }

    async fn build_in(
        &self,
        work: &Work,
        sources: &Sources,
        progress: &dyn Fn(Progress<'_>),
        cancel: &CancellationToken,
    ) -> Result<Image, DebianError> {
        let begun = SystemTime::now();
        let root = work.folder.path().join("root");
        let proxy = apt::proxy();
        let run = async |what, root: Option<&Path>, command: Vec<OsString>| {
            Step { what, root, command, proxy: proxy.as_deref() }.run(progress, cancel).await
        };

        progress(Progress::Step(&format!("making a Debian of the suite {}", sources.suite)));
        let components = sources.components.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let mut debootstrap: Vec<OsString> =
            ["debootstrap", "--variant=minbase", "--force-check-gpg"].map(OsString::from).to_vec();
        debootstrap.extend([format!("--components={components}"), sources.suite.clone()].map(OsString::from));
        debootstrap.extend([root.clone().into_os_string(), (&sources.mirror).into()]);
        run("make a Debian with debootstrap", None, debootstrap).await?;

        progress(Progress::Step(&format!("installing {} packages and what they need", packages().count())));
        furnish(&root, sources)?;
        let mut install: Vec<OsString> = ["/bin/sh", "/build/install"].map(OsString::from).to_vec();
        install.extend(packages().map(OsString::from));
        run("install the packages", Some(&root), install).await?;
        write(&root.join("etc/apt/sources.list"), sources.public().as_bytes())?;

        progress(Progress::Step("reading the tree"));
        let defaults = Defaults { env: [ENVIRONMENT], cmd: ["/bin/bash"] };
        let unreadable = |source| DebianError::Folder { step: "cannot read", path: root.clone(), source };
        let loaded = async {
            let rootfs = Rootfs::new(root.clone(), begun);
            let (size, pieces) = rootfs.archive(&format!("{BASE}:latest"), &defaults).await.map_err(unreadable)?;
            progress(Progress::Step(&format!("loading {} MB into the engine", size.bytes / 1_000_000)));
            self.load_image_stream(pieces).await?;
            Ok(self.image(BASE).await?)
        };
        tokio::select! {
            image = loaded => image,
            () = cancel.cancelled() => Err(DebianError::Interrupted),
        }
    }
}

impl Debian {
    fn sources(&self) -> Result<Sources, DebianError> {
        // Both become arguments and lines of a file: one word, and nothing that a program takes for an option.
        let word = |text: &str| {
            !text.starts_with('-') && !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '|')
        };
        if let Some(value) = self.suite.as_ref().filter(|suite| !word(suite) || suite.contains('/')) {
            return Err(DebianError::Flag { flag: "suite", value: value.clone(), must: "it must be a release's name" });
        }
        if let Some(value) = self.mirror.as_ref().filter(|mirror| !word(mirror) || !mirror.contains("://")) {
            return Err(DebianError::Flag { flag: "mirror", value: value.clone(), must: "it must be a URL" });
        }
        Sources::find(self.suite.as_deref(), self.mirror.as_deref())
    }
}

/// Says what must be done first, as commands.
fn ready() -> Result<(), DebianError> {
    let there = step::PATH.split(':').any(|folder| Path::new(folder).join("debootstrap").is_file());
    let root = nix::unistd::geteuid().is_root();
    let (why, first) = match (root, there) {
        (true, true) => return Ok(()),
        (true, false) => ("which is not installed", "apt-get install debootstrap && "),
        (false, true) => ("which only root can run", "sudo "),
        (false, false) => {
            ("which is not installed and which only root can run", "sudo apt-get install debootstrap && sudo ")
        }
    };
    // sudo looks for programs where root has its own.
    let program = env::current_exe().unwrap_or_else(|_| PathBuf::from("runner"));
    Err(DebianError::Unable { why, remedy: format!("{first}{} image build --base debian", program.display()) })
}

/// Puts what the installation reads into /build.
fn furnish(root: &Path, sources: &Sources) -> Result<(), DebianError> {
    let build = root.join("build");
    fs::create_dir(&build).map_err(|source| DebianError::Folder {
        step: "cannot make",
        path: build.clone(),
        source,
    })?;
    write(&build.join("install"), INSTALL.as_bytes())?;
    write(&build.join("sources.list"), sources.list().as_bytes())?;
    for (from, to) in [(CERTIFICATES, "build/certificates.crt"), ("/etc/hosts", "etc/hosts")] {
        if let Ok(content) = fs::read(from) {
            write(&root.join(to), &content)?;
        }
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<(), DebianError> {
    fs::write(path, content).map_err(|source| DebianError::Folder {
        step: "cannot write",
        path: path.to_owned(),
        source,
    })
}

/// The folder that a build works in, locked for as long.
struct Work {
    folder: TempDir,
    _lock: Flock<File>,
}

impl Work {
    /// Makes it, and removes those of builds that were killed.
    fn begin() -> Result<Work, DebianError> {
        let place = env::var_os("TMPDIR").filter(|place| !place.is_empty()).map_or("/var/tmp".into(), PathBuf::from);
        let failed = |source| DebianError::Folder { step: "cannot make a folder in", path: place.clone(), source };
        clear(&place);
        let folder = tempfile::Builder::new().prefix(WORK).tempdir_in(&place).map_err(failed)?;
        let lock = File::open(folder.path()).map_err(failed)?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| failed(error.into()))?;
        Ok(Work { folder, _lock })
    }

    /// Removes it. The last processes of a killed step may still be writing.
    fn remove(self) -> Result<(), DebianError> {
        let path = self.folder.path().to_owned();
        let begun = SystemTime::now();
        loop {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Ok(()) => return Ok(()),
                Err(source) if begun.elapsed().is_ok_and(|waited| waited > REMOVAL) => {
                    return Err(DebianError::Folder { step: "cannot remove", path, source });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Removes folders of ours that nobody holds a lock on any more.
fn clear(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(WORK)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == 0);
        let Some(folder) = ours.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        if let Ok(_lock) = Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_none_are_named() {
        let refused = |suite: &str, mirror: &str| {
            let from = Debian { suite: Some(suite.to_owned()), mirror: Some(mirror.to_owned()) };
            from.sources().unwrap_err().to_string()
        };
        assert_eq!(refused("../x", "http://m"), "--suite is \"../x\"; it must be a release's name");
        assert_eq!(refused("--help", "http://m"), "--suite is \"--help\"; it must be a release's name");
        assert_eq!(refused("bookworm", "http://m x"), "--mirror is \"http://m x\"; it must be a URL");
    }

    #[test]
    fn folders_of_killed_builds_are_removed_and_those_of_living_ones_stay() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        for name in ["runner-base-dead", "runner-base-live", "another"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let live = File::open(place.path().join("runner-base-live")).unwrap();
        let _lock = Flock::lock(live, FlockArg::LockExclusiveNonblock).unwrap();
        clear(place.path());
        let mut left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["another", "runner-base-live"]);
    }
}
