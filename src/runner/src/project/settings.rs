//! What an agent runs with: the project's settings under the agent's own, checked against each other.

use std::time::Duration;

use super::error::{Place, ProjectError};
use super::section::{Found, Keys, Known, Section};
use super::size;

/// The image of agents that name none: the one that `runner image build` makes.
pub const DEFAULT_IMAGE: &str = "runner/minimal";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const WEEK: u64 = 7 * 24 * 3600;

pub(super) const PROJECT_LOCAL: Keys = &[
    ("image", Known::Read),
    ("memory", Known::Read),
    ("cpus", Known::Read),
    ("pids", Known::Read),
    ("tmpSize", Known::Read),
    ("tmpInodes", Known::Read),
    ("timeout", Known::Read),
    ("runtime", Known::Read),
];

pub(super) const AGENT_LOCAL: Keys = &[
    ("image", Known::Read),
    ("memory", Known::Read),
    ("cpus", Known::Read),
    ("pids", Known::Read),
    ("tmpSize", Known::Read),
    ("tmpInodes", Known::Read),
    ("runtime", Known::Read),
];

/// The settings of one agent, ready to use.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Image reference.
    pub image: String,
    /// Memory of the container in bytes, /tmp included.
    pub memory: u64,
    /// CPUs; `None` is the default, min(2, the engine's).
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of /tmp.
    pub tmp_size: u64,
    /// Inodes of /tmp.
    pub tmp_inodes: u64,
    /// OCI runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Active time of a session.
    pub timeout: Duration,
    /// Time of a `bash` call that names none.
    pub bash_timeout: Duration,
    /// Seconds that PID 1 runs on without a host.
    pub orphan_grace: u32,
    /// Model turns of a session.
    pub max_turns: u64,
    /// Tokens of a session, when limited.
    pub max_tokens: Option<u64>,
}

/// What one file says about these settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    image: Option<Found<String>>,
    memory: Option<Found<u64>>,
    cpus: Option<Found<f64>>,
    pids: Option<Found<u64>>,
    tmp_size: Option<Found<u64>>,
    tmp_inodes: Option<Found<u64>>,
    runtime: Option<Found<String>>,
    timeout: Option<Found<u64>>,
    bash_timeout: Option<Found<u64>>,
    orphan_grace: Option<Found<u64>>,
    max_turns: Option<Found<u64>>,
    max_tokens: Option<Found<u64>>,
}

impl Written {
    /// Reads the keys of `local` and those that stand beside it in both files. `timeout` is at `root` in an agent's
    /// file and in `local` in the project's.
    pub(super) fn read(root: &Section<'_>, local: Option<&Section<'_>>, agent: bool) -> Result<Self, ProjectError> {
        let mut written = Self {
            bash_timeout: root.integer("bashTimeout", 1..=WEEK, "seconds")?,
            max_turns: root.integer("maxTurns", 1..=u64::MAX, "")?,
            max_tokens: root.integer("maxTokens", 1..=u64::MAX, "")?,
            ..Self::default()
        };
        if agent {
            written.timeout = root.integer("timeout", 1..=WEEK, "seconds")?;
        } else {
            written.orphan_grace = root.integer("orphanGrace", 10..=86400, "seconds")?;
        }
        let Some(local) = local else { return Ok(written) };
        written.image = local.string("image")?;
        written.memory = local.size("memory", 64 * MIB..)?;
        written.cpus = local.number("cpus", 0.1..=host_cpus())?;
        written.pids = local.integer("pids", 16..=65536, "")?;
        written.tmp_size = local.size("tmpSize", MIB..)?;
        written.tmp_inodes = local.integer("tmpInodes", 16..=1 << 40, "")?;
        written.runtime = local.string("runtime")?;
        if !agent {
            written.timeout = local.integer("timeout", 1..=WEEK, "seconds")?;
        }
        for (found, key) in [(&written.image, "local.image"), (&written.runtime, "local.runtime")] {
            if let Some(found) = found {
                check_reference(found, key)?;
            }
        }
        Ok(written)
    }

    /// The settings of an agent that wrote `self` in a project that wrote `project`.
    pub(super) fn over(self, project: &Self) -> Result<Settings, ProjectError> {
        let memory = self.memory.or_else(|| project.memory.clone());
        let bytes = memory.as_ref().map_or(4 * GIB, |found| found.value);
        let tmp = self.tmp_size.or_else(|| project.tmp_size.clone());
        let tmp_size = match &tmp {
            Some(found) => found.value,
            None => GIB.min(bytes / 4),
        };
        // tmpfs pages are charged to the container's memory and the OOM killer cannot free them; /dev/shm has 16 MiB.
        if tmp_size + 16 * MIB > bytes / 2 {
            let place = tmp.or(memory).map_or_else(|| Place::file("config.toml"), |found| found.place);
            return Err(ProjectError::Content {
                place,
                what: format!(
                    "`local.tmpSize` of {} and 16m for /dev/shm are more than half of `local.memory` of {}",
                    size::show(tmp_size),
                    size::show(bytes)
                ),
                hint: Some(format!(
                    "set `local.tmpSize` to at most {} or raise `local.memory`",
                    size::show((bytes / 2).saturating_sub(16 * MIB))
                )),
            });
        }
        let value = |own: Option<Found<u64>>, other: &Option<Found<u64>>, default: u64| {
            own.or_else(|| other.clone()).map_or(default, |found| found.value)
        };
        let text = |own: Option<Found<String>>, other: &Option<Found<String>>| {
            own.or_else(|| other.clone()).map(|found| found.value)
        };
        Ok(Settings {
            image: text(self.image, &project.image).unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            memory: bytes,
            cpus: self.cpus.or_else(|| project.cpus.clone()).map(|found| found.value),
            pids: u32::try_from(value(self.pids, &project.pids, 512)).expect("the range was checked"),
            tmp_size,
            tmp_inodes: value(self.tmp_inodes, &project.tmp_inodes, 200_000),
            runtime: text(self.runtime, &project.runtime),
            timeout: Duration::from_secs(value(self.timeout, &project.timeout, 900)),
            bash_timeout: Duration::from_secs(value(self.bash_timeout, &project.bash_timeout, 120)),
            orphan_grace: u32::try_from(value(self.orphan_grace, &project.orphan_grace, 600))
                .expect("the range was checked"),
            max_turns: value(self.max_turns, &project.max_turns, 200),
            max_tokens: self.max_tokens.or_else(|| project.max_tokens.clone()).map(|found| found.value),
        })
    }
}

/// CPUs of this host, which is the engine's too: only local engines are used.
#[allow(clippy::cast_precision_loss)]
fn host_cpus() -> f64 {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.map_or(1.0, |count| count.max(1) as f64)
}

/// Image references and runtime names go into URLs and argument lists: one word of harmless characters.
fn check_reference(found: &Found<String>, key: &str) -> Result<(), ProjectError> {
    let text = &found.value;
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_well && text.len() <= 255 && text.chars().all(harmless) {
        return Ok(());
    }
    let short: String = text.chars().take(60).collect();
    Err(ProjectError::content(found.place.clone(), format!("`{key}` is not a usable name: {short:?}")))
}
