//! What an engine says of itself, also one that is refused.

use std::path::{Path, PathBuf};

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};

use super::facts::{OLDEST_API, parse_version};

/// An engine's words about itself. Nothing here was judged, and strings are the engine's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Its socket.
    pub socket: PathBuf,
    /// Its version.
    pub server_version: String,
    /// The operating system that it names.
    pub system: String,
    /// The newest API that it speaks.
    pub api_version: String,
    /// That API is one that sandboxes can be ordered with.
    pub api_is_enough: bool,
    /// 1 or 2, if it says.
    pub cgroup_version: Option<u8>,
    /// Who makes its cgroups.
    pub cgroup_driver: String,
    /// Which of memory, pids and cpu it can limit.
    pub controllers: Vec<&'static str>,
    /// Those that it cannot limit.
    pub missing_controllers: Vec<&'static str>,
    /// It can limit swap.
    pub swap_limit: bool,
    /// Names of its security options: seccomp, apparmor, userns, rootless, selinux, cgroupns.
    pub security: Vec<String>,
    /// How it stores images.
    pub storage_driver: String,
    /// Containers outlive its restart.
    pub live_restore: bool,
    /// Where it keeps everything.
    pub root: PathBuf,
}

impl Survey {
    pub(super) fn new(socket: &Path, version: &SystemVersion, info: &SystemInfo) -> Survey {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let all = [("memory", info.memory_limit), ("pids", info.pids_limit), ("cpu", info.cpu_cfs_quota)];
        let (there, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, there)| *there == Some(true));
        let names = |list: Vec<(&'static str, Option<bool>)>| list.into_iter().map(|(name, _)| name).collect();
        let security = info.security_options.iter().flatten().flat_map(|option| option.split(','));
        let api_version = text(&version.api_version);
        Survey {
            socket: socket.to_owned(),
            server_version: text(&version.version),
            system: text(&info.operating_system),
            api_is_enough: parse_version(&api_version).is_some_and(|version| version >= OLDEST_API),
            api_version,
            cgroup_version: match info.cgroup_version {
                Some(SystemInfoCgroupVersionEnum::_1) => Some(1),
                Some(SystemInfoCgroupVersionEnum::_2) => Some(2),
                _ => None,
            },
            cgroup_driver: info.cgroup_driver.map(|driver| driver.to_string()).unwrap_or_default(),
            controllers: names(there),
            missing_controllers: names(missing),
            swap_limit: info.swap_limit == Some(true),
            security: security.filter_map(|part| part.strip_prefix("name=")).map(str::to_owned).collect(),
            storage_driver: text(&info.driver),
            live_restore: info.live_restore_enabled == Some(true),
            root: text(&info.docker_root_dir).into(),
        }
    }

    /// True when it names this security option.
    pub fn has(&self, option: &str) -> bool {
        self.security.iter().any(|name| name == option)
    }

    /// The oldest API that is enough.
    pub fn oldest_api() -> String {
        format!("{}.{}", OLDEST_API.0, OLDEST_API.1)
    }
}
