//! What an engine says of itself, and which engines are refused.

use std::path::{Path, PathBuf};

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};

use super::errors::EngineError;

/// The oldest API that can be asked for everything we ask for: a private cgroup namespace came with it.
pub(super) const OLDEST_API: (u32, u32) = (1, 41);

/// What is known of the engine. All of it was said when we connected.
#[derive(Debug, Clone)]
pub struct EngineFacts {
    /// Its socket.
    pub socket: PathBuf,
    /// Its version, like "20.10.24".
    pub server_version: String,
    /// The newest API version it speaks, like "1.41".
    pub api_version: String,
    /// Processors of this host.
    pub ncpu: u32,
    /// Bytes of memory of this host.
    pub memory: u64,
    /// 1 or 2.
    pub cgroup_version: u8,
    /// Containers can have an `AppArmor` profile.
    pub apparmor: bool,
    /// Swap can be limited. Where it cannot, a sandbox may use more memory than its limit by swap.
    pub swap_limit: bool,
    /// Names of the OCI runtimes, sorted.
    pub runtimes: Vec<String>,
    /// The one taken when none is asked for.
    pub default_runtime: String,
}

impl EngineFacts {
    /// Refuses engines that cannot hold a sandbox, each with its reason.
    pub(super) fn judge(
        socket: &Path,
        version: &SystemVersion,
        info: &SystemInfo,
        our_kernel: &str,
    ) -> Result<EngineFacts, EngineError> {
        let refused = |reason: String| Err(EngineError::Refused { socket: socket.to_owned(), reason });
        let api = version.api_version.clone().unwrap_or_default();
        let server_version = version.version.clone().unwrap_or_default();
        let components = version.components.iter().flatten();
        if components.into_iter().any(|component| component.name.contains("Podman")) {
            return refused("it is Podman; runner needs a Docker Engine".to_owned());
        }
        if parse_version(&api).is_none_or(|version| version < OLDEST_API) {
            return refused(format!(
                "it is too old: API {api} (version {server_version}); the minimum is API {}.{}, Docker Engine 20.10",
                OLDEST_API.0, OLDEST_API.1
            ));
        }
        let system = info.operating_system.as_deref().unwrap_or_default();
        if system.contains("Docker Desktop") || info.name.as_deref() == Some("docker-desktop") {
            return refused(
                "it is Docker Desktop, whose containers run in a virtual machine and cannot share a socket with this \
                 host; install Docker Engine (docker.io or docker-ce) and unset DOCKER_HOST"
                    .to_owned(),
            );
        }
        if info.os_type.as_deref() != Some("linux") || info.architecture.as_deref() != Some("x86_64") {
            return refused(format!(
                "it runs {} containers on {}; runner needs Linux on x86_64",
                info.os_type.as_deref().unwrap_or("unknown"),
                info.architecture.as_deref().unwrap_or("unknown")
            ));
        }
        let kernel = info.kernel_version.as_deref().unwrap_or_default();
        if kernel != our_kernel {
            return refused(format!(
                "it runs on another machine (kernel {kernel}, here {our_kernel}) and cannot share a socket with this \
                 host; use this host's own Docker Engine"
            ));
        }
        let options: Vec<&str> = info.security_options.iter().flatten().map(String::as_str).collect();
        let has = |name: &str| options.iter().any(|o| o.split(',').any(|part| part == format!("name={name}")));
        if has("rootless") {
            return refused("it is rootless, which is not supported yet; use a rootful Docker Engine".to_owned());
        }
        if has("userns") {
            return refused(
                "it remaps user ids (userns-remap), which is not supported yet; remove \"userns-remap\" from \
                 /etc/docker/daemon.json and restart it"
                    .to_owned(),
            );
        }
        if has("selinux") {
            return refused(
                "it labels containers with SELinux, which is not supported yet; remove \"selinux-enabled\" from \
                 /etc/docker/daemon.json and restart it"
                    .to_owned(),
            );
        }
        if !has("seccomp") {
            return refused(
                "it has no seccomp, which every sandbox needs; use a kernel and an engine with it".to_owned(),
            );
        }
        for (controller, there) in
            [("memory", info.memory_limit), ("pids", info.pids_limit), ("cpu", info.cpu_cfs_quota)]
        {
            if there != Some(true) {
                return refused(format!("it cannot limit {controller}; enable the cgroup controller {controller}"));
            }
        }
        let mut runtimes: Vec<String> = info.runtimes.iter().flatten().map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        Ok(EngineFacts {
            socket: socket.to_owned(),
            server_version,
            api_version: api,
            ncpu: info.ncpu.and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1),
            memory: info.mem_total.and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            cgroup_version: if info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2) { 2 } else { 1 },
            apparmor: has("apparmor"),
            swap_limit: info.swap_limit.unwrap_or(false),
            runtimes,
            default_runtime: info.default_runtime.clone().unwrap_or_else(|| "runc".to_owned()),
        })
    }
}

pub(super) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
