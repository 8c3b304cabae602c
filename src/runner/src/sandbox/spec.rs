//! What a sandbox's container is ordered to be. Every field is written out, so that no engine's default decides.

mod paths;

use std::{collections::HashMap, path::Path, sync::LazyLock};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use protocol::Ids;

use super::{
    engine::{EngineError, EngineFacts},
    environment,
    image::Image,
    limits::{Limits, SHM_INODES, SHM_SIZE},
};

/// Label with the install's random token. Together with a recorded name it makes a container ours.
pub(crate) const LABEL_TOKEN: &str = "runner.install";
/// Label with the session's id.
pub(crate) const LABEL_SESSION: &str = "runner.session";
/// Label with the first id of the session's block; blocks of anyone's sandboxes are found by it.
pub(crate) const LABEL_IDS: &str = "runner.ids";

/// What PID 1 is called inside, and all of its arguments.
pub(crate) const PROGRAM: &str = "/app/toolbox";

/// Capabilities of PID 1: it drops to other ids and kills what runs under them.
const CAPABILITIES: [&str; 3] = ["SETUID", "SETGID", "KILL"];

/// Limits of every process: name, and the value that is soft and hard limit. More file descriptors than this no command
/// needs; message queues, locked memory and real-time priorities are the host's, not the container's.
const ULIMITS: [(&str, i64); 8] = [
    ("nofile", 1024),
    ("core", 0),
    ("memlock", 64 << 10),
    ("msgqueue", 0),
    ("sigpending", 512),
    ("rtprio", 0),
    ("nice", 0),
    ("fsize", 16 << 30),
];

/// Numbers of the limits above in getrlimit(2), as runtimes name them in errors.
const RLIMIT_NUMBERS: [(&str, u32); 8] = [
    ("fsize", 1),
    ("core", 4),
    ("nofile", 7),
    ("memlock", 8),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
];

/// System V memory, semaphores and queues and POSIX queues hold kernel memory outside the limits; none can be made.
/// Unprivileged ping sockets are off.
const SYSCTLS: [(&str, &str); 7] = [
    ("kernel.shm_rmid_forced", "1"),
    ("kernel.shmall", "0"),
    ("kernel.shmmni", "0"),
    ("kernel.msgmni", "0"),
    ("kernel.sem", "0 0 0 0"),
    ("fs.mqueue.queues_max", "0"),
    ("net.ipv4.ping_group_range", "1 0"),
];

/// The system calls that everything in a sandbox may make; seccomp/README.md says why each.
const SECCOMP: &str = include_str!("../../../../seccomp/agent.json");

/// The profile as it goes to the engine: without the comments, which are more than half of it.
fn seccomp() -> &'static str {
    static PROFILE: LazyLock<String> = LazyLock::new(|| {
        let mut profile: serde_json::Value = serde_json::from_str(SECCOMP).expect("a test reads the profile");
        for rule in profile["syscalls"].as_array_mut().into_iter().flatten() {
            rule.as_object_mut().map(|rule| rule.remove("comment"));
        }
        profile.to_string()
    });
    &PROFILE
}

/// Everything that makes one sandbox's container different from another's.
#[derive(Debug, Clone)]
pub(crate) struct Spec<'a> {
    /// This install's token.
    pub(crate) token: &'a str,
    /// The session's id.
    pub(crate) session: &'a str,
    /// The image, as the engine has it.
    pub(crate) image: &'a Image,
    /// Its limits.
    pub(crate) limits: Limits,
    /// The OCI runtime, if not the engine's default.
    pub(crate) runtime: Option<&'a str>,
    /// The session's folder on the host.
    pub(crate) folder: &'a Path,
    /// Group of the link's socket, as lstat shows it.
    pub(crate) socket_gid: u32,
    /// The session's block of ids.
    pub(crate) ids: Ids,
    /// What this engine cannot do, found out at an earlier start.
    pub(crate) without: Without,
}

/// Fields that are left out because the engine lacks the right to set them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Without {
    ulimits: Vec<&'static str>,
    oom_score: bool,
}

impl Without {
    /// Learns from a failed start. Returns what is given up, in words, or none when the failure has another cause.
    ///
    /// A limit can only be denied when the engine's own is lower, and a container without the field inherits that one:
    /// leaving it out never loosens anything.
    pub(crate) fn learn(&mut self, failure: &str) -> Option<String> {
        let failure = failure.to_ascii_lowercase();
        if !failure.contains("not permitted") && !failure.contains("permission denied") {
            return None;
        }
        if failure.contains("oom_score_adj") && !self.oom_score {
            self.oom_score = true;
            return Some("the engine may not set oom_score_adj; the sandbox has the engine's own".to_owned());
        }
        let denied = RLIMIT_NUMBERS.into_iter().find(|(name, number)| {
            let named = failure.contains(&format!("rlimit_{name}"));
            let numbered = failure
                .split_once("rlimit type ")
                .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok())
                == Some(*number);
            (named || numbered) && !self.ulimits.contains(name)
        })?;
        self.ulimits.push(denied.0);
        Some(format!("the engine may not set the limit {:?}; the sandbox has the engine's own lower one", denied.0))
    }
}

impl Spec<'_> {
    /// The order in the engine's words (security.md 1).
    pub(crate) fn body(&self, facts: &EngineFacts) -> Result<ContainerCreateBody, EngineError> {
        let labels = [
            (LABEL_TOKEN, self.token.to_owned()),
            (LABEL_SESSION, self.session.to_owned()),
            (LABEL_IDS, self.ids.agent.to_string()),
        ];
        Ok(ContainerCreateBody {
            image: Some(self.image.id.clone()),
            // An empty list and not none, which would take the image's entry point.
            entrypoint: Some(Vec::new()),
            cmd: Some(vec![PROGRAM.to_owned()]),
            user: Some("0:0".to_owned()),
            working_dir: Some("/app/static".to_owned()),
            hostname: Some("agent".to_owned()),
            domainname: Some(String::new()),
            // PID 1 needs no variables. A name without a value makes the engine drop the image's variable.
            env: Some(environment::names_to_drop(&self.image.environment)),
            attach_stdin: Some(false),
            attach_stdout: Some(false),
            attach_stderr: Some(false),
            open_stdin: Some(false),
            stdin_once: Some(false),
            tty: Some(false),
            // Not only `NetworkMode: none`: without this the engine makes and wires a network sandbox all the same.
            network_disabled: Some(true),
            stop_signal: Some("SIGKILL".to_owned()),
            stop_timeout: Some(1),
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
            labels: Some(labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            host_config: Some(self.host_config(facts)?),
            ..ContainerCreateBody::default()
        })
    }

    fn host_config(&self, facts: &EngineFacts) -> Result<HostConfig, EngineError> {
        let memory = signed(self.limits.memory);
        Ok(HostConfig {
            readonly_rootfs: Some(true),
            network_mode: Some("none".to_owned()),
            ipc_mode: Some("none".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            pid_mode: Some(String::new()),
            uts_mode: Some(String::new()),
            userns_mode: Some(String::new()),
            privileged: Some(false),
            init: Some(false),
            auto_remove: Some(false),
            publish_all_ports: Some(false),
            oom_kill_disable: Some(false),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
            security_opt: Some(Spec::security_options(facts)),
            group_add: Some(vec![self.socket_gid.to_string()]),
            mounts: Some(self.mounts()?),
            tmpfs: Some(self.tmpfs()),
            memory: Some(memory),
            memory_swap: Some(memory),
            // The engine discards it with a warning on cgroup v2.
            memory_swappiness: (facts.cgroup_version == 1).then_some(0),
            nano_cpus: Some(i64::from(self.limits.milli_cpus) * 1_000_000),
            pids_limit: Some(i64::from(self.limits.pids)),
            oom_score_adj: (!self.without.oom_score).then_some(500),
            ulimits: Some(
                ULIMITS
                    .into_iter()
                    .filter(|(name, _)| !self.without.ulimits.contains(name))
                    .map(|(name, value)| ResourcesUlimits {
                        name: Some(name.to_owned()),
                        soft: Some(value),
                        hard: Some(value),
                    })
                    .collect(),
            ),
            sysctls: Some(SYSCTLS.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()),
            masked_paths: Some(paths::masked()),
            readonly_paths: Some(paths::READ_ONLY.map(str::to_owned).to_vec()),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: Some(HashMap::new()) }),
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: Some(0) }),
            runtime: self.runtime(facts)?,
            shm_size: Some(signed(SHM_SIZE)),
            binds: Some(Vec::new()),
            devices: Some(Vec::new()),
            device_requests: Some(Vec::new()),
            device_cgroup_rules: Some(Vec::new()),
            volumes_from: Some(Vec::new()),
            links: Some(Vec::new()),
            ..HostConfig::default()
        })
    }

    fn security_options(facts: &EngineFacts) -> Vec<String> {
        let mut options = vec!["no-new-privileges:true".to_owned(), format!("seccomp={}", seccomp())];
        // An engine without AppArmor accepts this and does nothing, so it is asked only where it means something.
        if facts.apparmor {
            options.push("apparmor=docker-default".to_owned());
        }
        options
    }

    fn runtime(&self, facts: &EngineFacts) -> Result<Option<String>, EngineError> {
        match self.runtime {
            Some(runtime) if !facts.runtimes.iter().any(|known| known == runtime) => {
                Err(EngineError::UnknownRuntime { runtime: runtime.to_owned(), known: facts.runtimes.join(", ") })
            }
            Some(runtime) => Ok(Some(runtime.to_owned())),
            None => Ok(None),
        }
    }

    /// The session's folder and three files of it, all read-only.
    fn mounts(&self) -> Result<Vec<Mount>, EngineError> {
        let folder = self.folder.to_str().ok_or_else(|| EngineError::BadPath(self.folder.to_owned()))?;
        let bind = |from: String, to: &str| Mount {
            typ: Some(MountType::BIND),
            source: Some(from),
            target: Some(to.to_owned()),
            read_only: Some(true),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        };
        let mut mounts = vec![bind(folder.to_owned(), "/app")];
        mounts.extend(
            ["passwd", "group", "hosts"].map(|name| bind(format!("{folder}/etc/{name}"), &format!("/etc/{name}"))),
        );
        Ok(mounts)
    }

    fn tmpfs(&self) -> HashMap<String, String> {
        let Limits { tmp_size, tmp_inodes, .. } = self.limits;
        HashMap::from([
            // An engine's tmpfs is noexec unless told.
            ("/tmp".to_owned(), format!("rw,nosuid,nodev,exec,size={tmp_size},nr_inodes={tmp_inodes},mode=1777")),
            ("/dev/shm".to_owned(), format!("rw,nosuid,nodev,noexec,size={SHM_SIZE},nr_inodes={SHM_INODES},mode=1777")),
        ])
    }
}

/// Limits are checked to be far below 2⁶³.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seccomp_profile_is_sent_whole_but_for_its_comments() {
        let (file, sent) = (SECCOMP, seccomp());
        let names = |text: &str| {
            let profile: serde_json::Value = serde_json::from_str(text).unwrap();
            let rules = profile["syscalls"].as_array().unwrap().clone();
            rules
                .into_iter()
                .map(|rule| (rule["names"].clone(), rule["args"].clone(), rule["action"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(file), names(sent));
        assert!(!sent.contains("comment") && sent.contains(r#""defaultAction":"SCMP_ACT_ERRNO""#));
    }

    /// security.md 1: a limit the daemon may not set is left out, with a notice.
    #[test]
    fn what_the_engine_may_not_set_is_given_up_one_by_one() {
        let mut without = Without::default();
        let runc = "OCI runtime create failed: runc create failed: error setting rlimit type 7: operation not permitted: unknown";
        assert!(without.learn(runc).unwrap().contains("nofile"));
        assert_eq!(without.learn(runc), None, "the same cause twice is another problem");
        assert!(without.learn("crun: setrlimit `RLIMIT_FSIZE`: Operation not permitted").unwrap().contains("fsize"));
        let score = "write /proc/self/oom_score_adj: permission denied";
        assert!(without.learn(score).unwrap().contains("oom_score_adj"));
        assert_eq!(without.learn(score), None);
        assert_eq!(without.learn("exec: /app/toolbox: permission denied"), None);
        assert_eq!(without.learn("error setting rlimit type 7: invalid argument"), None);
        assert_eq!(without, Without { ulimits: vec!["nofile", "fsize"], oom_score: true });
    }
}
