//! The one place where commands meet a sandbox: a container as the product orders it (security profile, mounts, limits),
//! with `stand_in/init.c` as its PID 1.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::program;

/// How a command ended.
#[derive(Debug)]
pub(super) struct Run {
    /// Exit status, 128 and the signal's number if it died of one.
    pub(super) exit: i32,
    /// What it printed.
    pub(super) output: String,
}

/// Runs commands one after the other in one new sandbox, which is gone afterwards. `files` are copied in first: a file
/// of the host, and where it goes below /tmp.
pub(super) fn run_in_sandbox(files: &[(&Path, &str)], commands: &[&str]) -> Vec<Run> {
    let folder = tempfile::Builder::new().prefix("attack-").tempdir().expect("a folder");
    let init = program::build("init", &["stand_in/init.c"]);
    let copies = stage(folder.path(), &init, files, commands);
    let _socket = UnixListener::bind(folder.path().join("link/sock")).expect("a socket");
    set_mode(&folder.path().join("link/sock"), 0o660);

    let container = Container::create(folder.path());
    let output = container.run();
    let mut runs = Vec::new();
    let mut rest = output.as_str();
    while let Some((text, after)) = rest.split_once('\0') {
        let (status, after) = after.split_once('\n').expect("a status behind each command");
        runs.push(Run { exit: status.parse().expect("a number"), output: text.to_owned() });
        rest = after;
    }
    assert_eq!(runs.len(), copies + commands.len(), "not every command ran: {output}");
    runs.drain(..copies).for_each(|copy| assert_eq!(copy.exit, 0, "{}", copy.output));
    runs
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode that can be set");
}

/// Lays out what is mounted at /app. Returns how many commands copy files before the first one of the test's.
fn stage(app: &Path, init: &Path, files: &[(&Path, &str)], commands: &[&str]) -> usize {
    for (name, mode) in [("", 0o711), ("link", 0o710), ("static", 0o755), ("etc", 0o755)] {
        fs::create_dir_all(app.join(name)).expect("a folder");
        set_mode(&app.join(name), mode);
    }
    let put = |path: &str, content: &[u8], mode| {
        fs::write(app.join(path), content).expect("a file");
        set_mode(&app.join(path), mode);
    };
    put("toolbox", &fs::read(init).expect("the program"), 0o555);
    put("etc/passwd", b"root:x:0:0::/:/bin/sh\nagent:x:1900000000:1900000000::/tmp/home:/bin/sh\n", 0o444);
    put("etc/group", b"root:x:0:\nagent:x:1900000000:\n", 0o444);
    put("etc/hosts", b"127.0.0.1 localhost\n", 0o444);
    put("static/SKILL.md", b"", 0o444);
    let mut script = Vec::new();
    for (number, (from, to)) in files.iter().enumerate() {
        put(&format!("static/file-{number}"), &fs::read(from).expect("a file to copy"), 0o555);
        script.extend_from_slice(format!("cp /app/static/file-{number} {to}\0").as_bytes());
    }
    for command in commands {
        script.extend_from_slice(command.as_bytes());
        script.push(0);
    }
    put("static/commands", &script, 0o444);
    files.len()
}

/// A container that is removed when it is dropped.
struct Container {
    name: String,
}

impl Container {
    fn create(app: &Path) -> Self {
        let name = app.file_name().and_then(|name| name.to_str()).expect("a name of ours").to_owned();
        let image = std::env::var("RUNNER_TEST_IMAGE").unwrap_or_else(|_| "runner/minimal".to_owned());
        let body = order(app, &image).to_string();
        let mut engine = UnixStream::connect("/var/run/docker.sock").expect("the engine answers");
        write!(
            engine,
            "POST /v1.41/containers/create?name={name} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("the engine reads");
        let mut answer = String::new();
        engine.read_to_string(&mut answer).expect("the engine answers");
        assert!(answer.starts_with("HTTP/1.1 201"), "cannot create a container of {image}: {answer}");
        Self { name }
    }

    fn run(&self) -> String {
        let output = Command::new("docker").args(["start", "--attach", &self.name]).output().expect("docker runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let removal = Command::new("docker").args(["rm", "--force", &self.name]).stdout(Stdio::null()).status();
        assert!(removal.is_ok_and(|status| status.success()), "container {} is left", self.name);
    }
}

const MASKED: &[(&str, &str)] = &[
    (
        "/proc/",
        "acpi asound bus cmdline config.gz crypto diskstats driver dynamic_debug fs interrupts iomem ioports irq kallsyms \
         kcore key-users keys kmsg kpagecount kpageflags kpagecgroup latency_stats locks misc modules mtrr pagetypeinfo \
         partitions pressure sched_debug schedstat scsi slabinfo softirqs swaps sysvipc timer_list tty vmallocinfo vmstat \
         zoneinfo buddyinfo",
    ),
    ("/sys/", "block bus class dev devices/virtual firmware hypervisor kernel module power fs/bpf fs/cgroup"),
];

fn order(app: &Path, image: &str) -> Value {
    let bind = |below: &str, target: &str| {
        json!({ "Type": "bind", "Source": app.join(below), "Target": target, "ReadOnly": true,
                "BindOptions": { "Propagation": "rprivate" } })
    };
    let limit = |name: &str, value: u64| json!({ "Name": name, "Soft": value, "Hard": value });
    let masked: Vec<_> = MASKED
        .iter()
        .flat_map(|(root, names)| names.split_whitespace().map(move |name| format!("{root}{name}")))
        .collect();
    let group = fs::metadata(app.join("link/sock")).expect("the socket").gid().to_string();
    let profile = include_str!("../../seccomp/agent.json");
    json!({
        "Image": image, "Entrypoint": [], "Cmd": ["/app/toolbox"], "User": "0:0", "WorkingDir": "/app/static",
        "Hostname": "agent", "Env": [], "Tty": false, "NetworkDisabled": true, "StopSignal": "SIGKILL", "StopTimeout": 1,
        "Healthcheck": { "Test": ["NONE"] }, "AttachStdout": true, "AttachStderr": true,
        "HostConfig": {
            "ReadonlyRootfs": true, "NetworkMode": "none", "IpcMode": "none", "CgroupnsMode": "private",
            "CapDrop": ["ALL"], "CapAdd": ["SETUID", "SETGID", "KILL"], "GroupAdd": [group],
            "SecurityOpt": ["no-new-privileges:true", format!("seccomp={profile}")],
            "Mounts": [bind("", "/app"), bind("etc/passwd", "/etc/passwd"), bind("etc/group", "/etc/group"),
                       bind("etc/hosts", "/etc/hosts")],
            "Tmpfs": { "/tmp": "rw,nosuid,nodev,exec,size=256m,nr_inodes=20000,mode=1777",
                       "/dev/shm": "rw,nosuid,nodev,noexec,size=16m" },
            "Memory": 1u64 << 30, "MemorySwap": 1u64 << 30, "NanoCpus": 2_000_000_000u64, "PidsLimit": 256,
            "OomScoreAdj": 500,
            "Ulimits": [limit("nofile", 1024), limit("core", 0), limit("memlock", 65536), limit("msgqueue", 0),
                        limit("sigpending", 512), limit("rtprio", 0), limit("nice", 0), limit("fsize", 16 << 30)],
            "Sysctls": { "kernel.shm_rmid_forced": "1", "kernel.shmall": "0", "kernel.shmmni": "0", "kernel.msgmni": "0",
                         "kernel.sem": "0 0 0 0", "fs.mqueue.queues_max": "0", "net.ipv4.ping_group_range": "1 0" },
            "MaskedPaths": masked,
            "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "LogConfig": { "Type": "none" }, "RestartPolicy": { "Name": "no" },
        },
    })
}
