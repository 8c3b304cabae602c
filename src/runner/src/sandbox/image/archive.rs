//! `runner/minimal`, made from this machine's static bash and busybox and loaded without any registry.
//!
//! It goes to the engine as a docker archive (a configuration, a layer, a manifest). An image's id is the digest of its
//! configuration, which names the layer's digest and a fixed date, so the same programs give the same id anywhere.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Image, layer};
use crate::sandbox::engine::{Engine, EngineError};

/// The image that agents have when they name none.
pub const MINIMAL: &str = "runner/minimal";

const CREATED: &str = "1970-01-01T00:00:00Z";
const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";

/// Where distributions put the programs, below a folder.
const BASH: [&str; 5] = ["bash-static", "bin/bash-static", "usr/bin/bash-static", "bash", "bin/bash"];
const BUSYBOX: [&str; 5] = ["busybox", "bin/busybox", "usr/bin/busybox", "busybox-static", "bin/busybox-static"];

/// Why the image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A program is missing or is not a static one.
    #[error(
        "no static {program} on this machine (looked at {looked_at}); install {package}, or set RUNNER_STATIC_DIR to a folder with it"
    )]
    Missing {
        /// What is missing.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        /// Paths that were tried.
        looked_at: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// busybox does not tell its applets.
    #[error("{path} --list gives no applets: {why}")]
    Applets {
        /// The program.
        path: PathBuf,
        /// What it gave.
        why: String,
    },
    /// The engine did not take it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The two programs that the image is made of.
#[derive(Debug, Clone)]
pub struct Programs {
    /// A static bash.
    pub bash: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
}

impl Programs {
    /// Finds them: in `RUNNER_STATIC_DIR`, in a folder `static` beside the program's own, or where packages put them.
    pub fn find() -> Result<Programs, BuildError> {
        let mut folders: Vec<PathBuf> = Vec::new();
        if let Some(folder) = env::var_os("RUNNER_STATIC_DIR").filter(|folder| !folder.is_empty()) {
            folders.push(folder.into());
        } else {
            let program = env::current_exe().unwrap_or_default();
            folders.extend(program.ancestors().skip(1).take(4).map(|folder| folder.join("static")));
            folders.push("/".into());
        }
        Programs::find_in(&folders)
    }

    fn find_in(folders: &[PathBuf]) -> Result<Programs, BuildError> {
        let find = |program, package, names: &[&str]| {
            let paths = || folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
            paths().find(|path| is_static_program(path)).ok_or_else(|| BuildError::Missing {
                program,
                package,
                looked_at: paths()
                    .filter(|path| path.exists())
                    .map(|path| format!("{}, which is not static", path.display()))
                    .next()
                    .unwrap_or_else(|| folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" ")),
            })
        };
        Ok(Programs {
            bash: find("bash", "bash-static", &BASH)?,
            busybox: find("busybox", "busybox-static", &BUSYBOX)?,
        })
    }

    /// Assembles the image.
    pub(crate) fn archive(&self) -> Result<Vec<u8>, BuildError> {
        let layer = layer::assemble(&read(&self.bash)?, &read(&self.busybox)?, &self.applets()?);
        let defaults = Defaults { env: [PATH], cmd: ["/bin/bash"] };
        Ok(pack(&format!("{MINIMAL}:latest"), &defaults, &layer))
    }

    /// The names under which busybox does different things.
    fn applets(&self) -> Result<Vec<String>, BuildError> {
        let failed = |why: String| BuildError::Applets { path: self.busybox.clone(), why };
        let run = Command::new(&self.busybox).arg("--list").env_clear().output().map_err(|e| failed(e.to_string()))?;
        let list = String::from_utf8_lossy(&run.stdout);
        let named =
            |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'[' | b'.'));
        let applets: Vec<String> =
            list.lines().filter(named).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if applets.iter().any(|name| name == "sh") { Ok(applets) } else { Err(failed(run.status.to_string())) }
    }
}

/// Packs a layer and an image's settings, whatever they are, into a docker archive.
pub(crate) fn pack(tag: &str, defaults: &impl Serialize, layer: &[u8]) -> Vec<u8> {
    let parts = Parts::of(tag, defaults, &hex::encode(Sha256::digest(layer)));
    let mut tree = layer::Tree::default();
    tree.file(&parts.config.0, &parts.config.1, 0o644);
    tree.file(&parts.layer, layer, 0o644);
    tree.file("manifest.json", &parts.manifest, 0o644);
    tree.into_tar()
}

/// What a docker archive with one layer holds beside the layer.
pub(super) struct Parts {
    /// Name and content of the configuration, whose digest is the image's id.
    pub(super) config: (String, Vec<u8>),
    /// The layer's name.
    pub(super) layer: String,
    /// The content of `manifest.json`.
    pub(super) manifest: Vec<u8>,
}

impl Parts {
    /// Describes an image by its layer's digest.
    pub(super) fn of(tag: &str, defaults: &impl Serialize, layer_digest: &str) -> Parts {
        let config = serde_json::to_vec(&Settings {
            architecture: "amd64",
            os: "linux",
            created: CREATED,
            config: defaults,
            rootfs: RootFs { kind: "layers", diff_ids: [format!("sha256:{layer_digest}")] },
            history: [History { created: CREATED, created_by: "runner image build" }],
        })
        .expect("plain structs become JSON");
        let config_name = format!("{}.json", hex::encode(Sha256::digest(&config)));
        let layer = format!("{layer_digest}/layer.tar");
        let manifest = Manifest { config: config_name.clone(), repo_tags: [tag], layers: [layer.clone()] };
        let manifest = serde_json::to_vec(&[manifest]).expect("plain structs become JSON");
        Parts { config: (config_name, config), layer, manifest }
    }
}

impl Engine {
    /// Builds `runner/minimal` from this machine's programs and loads it. The same programs give the same id.
    pub async fn build_minimal(&self, programs: &Programs) -> Result<Image, BuildError> {
        self.load_image(programs.archive()?).await?;
        Ok(self.image(MINIMAL).await?)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })
}

/// An ELF program for x86-64 that asks for no interpreter (the dynamic loader would be missing in the image).
fn is_static_program(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| asks_for_interpreter(&bytes) == Some(false))
}

/// Reads the program headers (elf(5)); none when it is no x86-64 ELF file.
fn asks_for_interpreter(elf: &[u8]) -> Option<bool> {
    const MACHINE_X86_64: u16 = 62;
    const SEGMENT_INTERPRETER: u32 = 3;
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?));
    if elf.get(..6)? != b"\x7fELF\x02\x01" || u16_at(18)? != MACHINE_X86_64 {
        return None;
    }
    let headers = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    for n in 0..count {
        if u32_at(headers.checked_add(n * size)?)? == SEGMENT_INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[derive(Serialize)]
struct Settings<'a, T> {
    architecture: &'static str,
    os: &'static str,
    created: &'static str,
    config: &'a T,
    rootfs: RootFs,
    history: [History; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Defaults {
    pub(super) env: [&'static str; 1],
    pub(super) cmd: [&'static str; 1],
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [String; 1],
}

#[derive(Serialize)]
struct History {
    created: &'static str,
    created_by: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest<'a> {
    config: String,
    repo_tags: [&'a str; 1],
    layers: [String; 1],
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn same_programs_same_archive_and_under_6_mb() {
        let programs = Programs::find().unwrap();
        let started = Instant::now();
        let (one, two) = (programs.archive().unwrap(), programs.archive().unwrap());
        assert!(started.elapsed() < Duration::from_secs(30), "two builds, 5 s each, at three times their value");
        assert!(one == two);
        assert!(one.len() < 6_000_000, "{} bytes", one.len());
    }

    /// Two loads of the same programs are one image on the engine, and it takes less than 5 s.
    #[tokio::test]
    async fn a_real_engine_has_it_under_one_id() {
        let engine = Engine::connect(None).await.unwrap();
        let programs = Programs::find().unwrap();
        let started = Instant::now();
        let one = engine.build_minimal(&programs).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "5 s at three times their value");
        let two = engine.build_minimal(&programs).await.unwrap();
        assert_eq!(one, two);
        assert_eq!(one.reference, MINIMAL);
    }

    #[test]
    fn dynamic_programs_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let this = env::current_exe().unwrap();
        fs::copy(&this, folder.path().join("bash")).unwrap();
        let message = Programs::find_in(&[folder.path().to_owned()]).unwrap_err().to_string();
        for part in ["static bash", "which is not static", "bash-static", "RUNNER_STATIC_DIR"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(asks_for_interpreter(&fs::read(this).unwrap()).unwrap());
        for broken in [&b""[..], b"\x7fELF\x02\x01", b"#!/bin/sh\n"] {
            assert_eq!(asks_for_interpreter(broken), None);
        }
    }
}
