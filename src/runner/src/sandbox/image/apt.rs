//! Where this machine gets its Debian packages: what apt is set up with, unless the caller names a mirror.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use super::debian::DebianError;

/// Ends of the names of suites that bring corrections to another.
const CORRECTIONS: [&str; 3] = ["", "-updates", "-security"];

/// Components of an archive that are free software, in Debian and Ubuntu.
const COMPONENTS: [&str; 2] = ["main", "universe"];

/// Where a root file system's packages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sources {
    /// The release, like "bookworm".
    pub(super) suite: String,
    /// Its archive.
    pub(super) mirror: String,
    /// Parts of the archive.
    pub(super) components: BTreeSet<String>,
    /// Lines of a `sources.list`, corrections among them.
    pub(super) lines: BTreeSet<String>,
}

impl Sources {
    /// What the caller wants; for the rest, what this machine uses.
    pub(super) fn find(suite: Option<&str>, mirror: Option<&str>) -> Result<Sources, DebianError> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let (codename, distribution) = (field(&release, "VERSION_CODENAME"), field(&release, "ID"));
        let suite = suite.or(codename).ok_or(DebianError::NoSources)?;
        if let Some(mirror) = mirror {
            return Ok(Sources::of(suite, mirror));
        }
        // With what apt last fetched it knows an archive's true name and maker; before that, what is written.
        [true, false]
            .into_iter()
            .find_map(|fetched| Sources::among(&targets(fetched), suite, distribution.unwrap_or_default()))
            .ok_or(DebianError::NoSources)
    }

    fn of(suite: &str, mirror: &str) -> Sources {
        Sources {
            suite: suite.to_owned(),
            mirror: mirror.to_owned(),
            components: BTreeSet::from(["main".to_owned()]),
            lines: BTreeSet::from([format!("deb {mirror} {suite} main")]),
        }
    }

    /// Chooses from apt's targets, [`FORMAT`]ted lines, those of a suite and its corrections by the same maker.
    fn among(targets: &str, suite: &str, distribution: &str) -> Option<Sources> {
        let mut found = Sources::of(suite, "");
        found.lines.clear();
        for target in targets.lines() {
            let [uri, release, codename, component, origin] = target.split('|').collect::<Vec<_>>()[..] else {
                continue;
            };
            let unknown = |text: &str| text.is_empty() || text.starts_with('$');
            let named = |name: &str| name == release || name == codename;
            let ours = CORRECTIONS.iter().any(|end| named(&format!("{suite}{end}")))
                && COMPONENTS.contains(&component)
                && (unknown(origin) || origin.eq_ignore_ascii_case(distribution))
                && !uri.starts_with("cdrom:");
            if ours {
                if named(suite) && found.mirror.is_empty() {
                    uri.clone_into(&mut found.mirror);
                }
                found.components.insert(component.to_owned());
                found.lines.insert(format!("deb {uri} {release} {component}"));
            }
        }
        (!found.mirror.is_empty()).then_some(found)
    }

    /// The `sources.list` without names and passwords, for a file that stays.
    pub(super) fn public(&self) -> String {
        let lines = self.lines.iter().map(|line| match line.split_once("://") {
            Some((before, after)) => {
                let host = after.split('/').next().unwrap_or_default();
                let hidden = host.rfind('@').map_or(0, |at| at + 1);
                format!("{before}://{}\n", &after[hidden..])
            }
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    /// The `sources.list`.
    pub(super) fn list(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// How targets are written.
const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)";

/// What apt is set up to fetch; nothing where there is no apt.
fn targets(fetched: bool) -> String {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", FORMAT, "Identifier: Packages"]);
    if !fetched {
        apt.arg("--no-release-info");
    }
    let ran = apt.stdin(Stdio::null()).stderr(Stdio::null()).output();
    ran.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The proxy that apt is told to use in its own settings.
pub(super) fn proxy() -> Option<String> {
    let mut apt = Command::new("apt-config");
    apt.args(["shell", "PROXY", "Acquire::http::Proxy"]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = String::from_utf8(apt.output().ok()?.stdout).ok()?;
    let proxy = said.trim().strip_prefix("PROXY='")?.strip_suffix('\'')?;
    (proxy.contains("://") && !proxy.contains('\'')).then(|| proxy.to_owned())
}

/// A field of os-release(5), unquoted.
fn field<'a>(release: &'a str, name: &str) -> Option<&'a str> {
    let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"')).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCHED: &str = "\
http://mirror.test/debian/|stable|bookworm|main|Debian
http://mirror.test/debian/|stable|bookworm|contrib|Debian
http://mirror.test/debian/|bookworm-updates|bookworm-updates|main|Debian
http://user:p%40ss@safe.test/security/|bookworm-security|bookworm-security|main|Debian
http://mirror.test/debian/|bookworm-backports|bookworm-backports|main|Debian Backports
https://other.test/apt/|bookworm|bookworm|main|Somebody
https://node.test/|nodistro|nodistro|main|. nodistro
nonsense
";

    #[test]
    fn only_the_suite_and_its_corrections_by_its_maker_are_taken() {
        let found = Sources::among(FETCHED, "bookworm", "debian").unwrap();
        assert_eq!(found.mirror, "http://mirror.test/debian/");
        insta::assert_snapshot!(found.list(), @r"
        deb http://mirror.test/debian/ bookworm-updates main
        deb http://mirror.test/debian/ stable main
        deb http://user:p%40ss@safe.test/security/ bookworm-security main
        ");
        assert!(found.public().contains("deb http://safe.test/security/ bookworm-security main"));
        assert!(!found.public().contains("p%40ss"));
        assert_eq!(Sources::among(FETCHED, "trixie", "debian"), None);
    }

    #[test]
    fn before_apt_has_fetched_what_is_written_counts() {
        let written = "http://m.test/ubuntu/|noble|$(CODENAME)|universe|$(ORIGIN)\nhttp://m.test/ubuntu/|noble|$(CODENAME)|main|$(ORIGIN)\n";
        let found = Sources::among(written, "noble", "ubuntu").unwrap();
        assert_eq!(found.components, BTreeSet::from(["main", "universe"].map(str::to_owned)));
        assert_eq!(found.lines.len(), 2);
    }

    #[test]
    fn fields_are_unquoted() {
        let release = "PRETTY=\"x\"\nVERSION_CODENAME=bookworm\nID=\"debian\"\nID_LIKE=\n";
        assert_eq!(field(release, "VERSION_CODENAME"), Some("bookworm"));
        assert_eq!((field(release, "ID"), field(release, "ID_LIKE")), (Some("debian"), None));
    }
}
