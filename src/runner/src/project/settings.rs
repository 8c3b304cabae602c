//! What an agent runs with: the project's settings under the agent's own, checked against each other.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::error::{Place, ProjectError};
use super::fleet::{self, FleetSettings, OnCallerExit, OnSandboxLost};
use super::mistakes::Mistakes;
use super::schedule::Schedule;
use super::section::{Found, Keys, Known, Section};
use crate::sandbox::limits::{Limits, LimitsError, Wanted};

/// The image of agents that name none: the one that `runner image build` makes.
pub const DEFAULT_IMAGE: &str = "runner/minimal";

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
    /// Limits of the container.
    pub limits: Limits,
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
    /// Tokens of a call tree whose root it is, when limited.
    pub max_tokens: Option<u64>,
    /// Sessions of it that may run at once; 0 disables the agent.
    pub scale: u32,
    /// Most of its sessions that wait for a first slot.
    pub queue: u32,
    /// Time of a wait that names none.
    pub wait_timeout: Duration,
    /// What happens to its running calls when it fails or is ended.
    pub on_caller_exit: OnCallerExit,
    /// What happens when its container is gone.
    pub on_sandbox_lost: OnSandboxLost,
    /// When it starts by itself.
    pub schedule: Option<Schedule>,
}

/// What one file says about these settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    image: Option<Found<String>>,
    memory: Option<Found<String>>,
    cpus: Option<Found<f64>>,
    pids: Option<Found<i64>>,
    tmp_size: Option<Found<String>>,
    tmp_inodes: Option<Found<i64>>,
    runtime: Option<Found<String>>,
    timeout: Option<Found<u64>>,
    bash_timeout: Option<Found<u64>>,
    orphan_grace: Option<Found<u64>>,
    max_turns: Option<Found<u64>>,
    max_tokens: Option<Found<u64>>,
    queue: Option<Found<u64>>,
    wait_timeout: Option<Found<Duration>>,
    on_caller_exit: Option<Found<OnCallerExit>>,
    scale: Option<Found<u64>>,
    on_sandbox_lost: Option<Found<OnSandboxLost>>,
    schedule: Option<Found<String>>,
    zone: Option<TimeZone>,
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
        written.read_fleet(root, agent)?;
        if agent {
            written.timeout = root.integer("timeout", 1..=WEEK, "seconds")?;
        } else {
            written.orphan_grace = root.integer("orphanGrace", 10..=86400, "seconds")?;
        }
        let Some(local) = local else { return Ok(written) };
        written.image = local.string("image")?;
        written.memory = local.size("memory")?;
        written.cpus = local.number("cpus")?;
        written.pids = local.whole("pids")?;
        written.tmp_size = local.size("tmpSize")?;
        written.tmp_inodes = local.whole("tmpInodes")?;
        written.runtime = local.string("runtime")?;
        if !agent {
            written.timeout = local.integer("timeout", 1..=WEEK, "seconds")?;
        }
        for (found, key) in [(&written.image, "local.image"), (&written.runtime, "local.runtime")] {
            if let Some(found) = found {
                root.keep(check_reference(found, key))?;
            }
        }
        Ok(written)
    }

    /// Reads what concerns its place among other sessions.
    fn read_fleet(&mut self, root: &Section<'_>, agent: bool) -> Result<(), ProjectError> {
        let (queue, wait_timeout) =
            if agent { ("maxWorkQueueSize", "waitTimeout") } else { ("workQueueSize", "defaultWaitTimeout") };
        self.queue = root.integer(queue, 1..=100_000, "")?;
        self.wait_timeout = fleet::read_wait(root, wait_timeout)?;
        let exits = [("cancel", OnCallerExit::Cancel), ("detach", OnCallerExit::Detach)];
        self.on_caller_exit = fleet::read_choice(root, "onCallerExit", &exits)?;
        if agent {
            self.scale = root.integer("scale", 0..=u64::from(u32::MAX), "")?;
            let losses = [("fail", OnSandboxLost::Fail), ("restart", OnSandboxLost::Restart)];
            self.on_sandbox_lost = fleet::read_choice(root, "onSandboxLost", &losses)?;
            self.schedule = root.string("schedule")?;
            self.zone = fleet::read_zone(root)?;
        }
        Ok(())
    }

    /// When the agent starts by itself; none among mistakes when what was written is wrong.
    fn schedule(&self, project: &FleetSettings, mistakes: Option<&Mistakes>) -> Result<Option<Schedule>, ProjectError> {
        let Some(found) = &self.schedule else { return Ok(None) };
        let zone = self.zone.clone().unwrap_or_else(|| project.zone.clone());
        let read = Schedule::parse(&found.value, zone).map_err(|why| ProjectError::Content {
            place: found.place.clone(),
            what: format!("`schedule` {:?} is no cron pattern: {why}", found.value),
            hint: Some(
                "minute, hour, day, month and weekday, such as \"*/5 * * * *\" or \"0 9 * * MON-FRI\"".to_owned(),
            ),
        });
        Mistakes::keep(mistakes, read)
    }

    /// The settings of an agent that wrote `self` in a project that wrote `project`; with `mistakes`, what is wrong goes
    /// there, and nothing is returned then.
    pub(super) fn over(
        self,
        project: &Self,
        fleet: &FleetSettings,
        mistakes: Option<&Mistakes>,
    ) -> Result<Option<Settings>, ProjectError> {
        let schedule = self.schedule(fleet, mistakes)?;
        let limits = match self.resolve(project) {
            Ok(limits) => limits,
            Err(errors) => {
                for error in errors {
                    Mistakes::note(mistakes, self.blame(project, &error))?;
                }
                return Ok(None);
            }
        };
        let value = |own: &Option<Found<u64>>, other: &Option<Found<u64>>, default: u64| {
            either(own.as_ref(), other.as_ref()).unwrap_or(default)
        };
        Ok(Some(Settings {
            image: either(self.image.as_ref(), project.image.as_ref()).unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            limits,
            runtime: either(self.runtime.as_ref(), project.runtime.as_ref()),
            timeout: Duration::from_secs(value(&self.timeout, &project.timeout, 900)),
            bash_timeout: Duration::from_secs(value(&self.bash_timeout, &project.bash_timeout, 120)),
            orphan_grace: u32::try_from(value(&self.orphan_grace, &project.orphan_grace, 600))
                .expect("the range was checked"),
            max_turns: value(&self.max_turns, &project.max_turns, 200),
            max_tokens: either(self.max_tokens.as_ref(), project.max_tokens.as_ref()),
            scale: self.scale.as_ref().map_or(fleet.agent_scale, |found| fleet::small(found.value)),
            queue: fleet::small(value(&self.queue, &project.queue, 100)),
            wait_timeout: either(self.wait_timeout.as_ref(), project.wait_timeout.as_ref())
                .unwrap_or(Duration::from_mins(30)),
            on_caller_exit: either(self.on_caller_exit.as_ref(), project.on_caller_exit.as_ref()).unwrap_or_default(),
            on_sandbox_lost: self.on_sandbox_lost.as_ref().map(|found| found.value).unwrap_or_default(),
            schedule,
        }))
    }

    /// Checks the limits of the project's file alone; whether /tmp fits into the memory is the agent's to say. True when
    /// nothing is wrong.
    pub(super) fn check_alone(&self, mistakes: Option<&Mistakes>) -> Result<bool, ProjectError> {
        let mut is_right = true;
        for error in self.resolve(&Self::default()).err().into_iter().flatten() {
            if !matches!(error, LimitsError::TmpTooLarge { .. } | LimitsError::TooManyInodes { .. }) {
                Mistakes::note(mistakes, self.blame(&Self::default(), &error))?;
                is_right = false;
            }
        }
        Ok(is_right)
    }

    /// The container's limits, checked each and against each other.
    fn resolve(&self, project: &Self) -> Result<Limits, Vec<LimitsError>> {
        let wanted = Wanted {
            memory: either(self.memory.as_ref(), project.memory.as_ref()),
            cpus: either(self.cpus.as_ref(), project.cpus.as_ref()),
            pids: either(self.pids.as_ref(), project.pids.as_ref()),
            tmp_size: either(self.tmp_size.as_ref(), project.tmp_size.as_ref()),
            tmp_inodes: either(self.tmp_inodes.as_ref(), project.tmp_inodes.as_ref()),
        };
        Limits::resolve(&wanted, host_cpus())
    }

    /// The error at the key that is to blame.
    fn blame(&self, project: &Self, error: &LimitsError) -> ProjectError {
        let keys: &[&str] = match error {
            LimitsError::NotASize { key, .. } | LimitsError::OutOfRange { key, .. } => &[*key],
            LimitsError::TmpTooLarge { .. } => &["local.tmpSize", "local.memory"],
            LimitsError::TooManyInodes { .. } => &["local.tmpInodes", "local.memory"],
        };
        let mut places = [self, project].into_iter().flat_map(|file| keys.iter().filter_map(|key| file.place_of(key)));
        ProjectError::content(places.next().unwrap_or_else(|| Place::file("config.toml")), error.to_string())
    }

    /// Where a limit was written in this file.
    fn place_of(&self, key: &str) -> Option<Place> {
        match key {
            "local.memory" => self.memory.as_ref().map(|found| &found.place),
            "local.cpus" => self.cpus.as_ref().map(|found| &found.place),
            "local.pids" => self.pids.as_ref().map(|found| &found.place),
            "local.tmpSize" => self.tmp_size.as_ref().map(|found| &found.place),
            "local.tmpInodes" => self.tmp_inodes.as_ref().map(|found| &found.place),
            _ => None,
        }
        .cloned()
    }
}

/// The agent's value if it has one, else the project's.
fn either<T: Clone>(own: Option<&Found<T>>, project: Option<&Found<T>>) -> Option<T> {
    own.or(project).map(|found| found.value.clone())
}

/// Processors of this host, which is the engine's too: only local engines are used.
fn host_cpus() -> u32 {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
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
