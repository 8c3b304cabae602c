use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use serde_json::json;

use super::*;
use crate::sandbox::{
    cgroup::{Cgroup, Counters},
    engine::Status,
    environment,
    spec::{LABEL_IDS, LABEL_SESSION, LABEL_TOKEN},
    trial::{Trial, small_image},
};

/// A line of /proc/N/status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_container_starts_as_ordered_and_ends_without_a_trace() {
    let trial = Trial::new().await;
    let launched = trial.launch().await.unwrap();
    assert!(launched.notices.is_empty(), "{:?}", launched.notices);
    let found = trial.engine.inspect(&launched.id).await.unwrap();
    assert_eq!((found.status, found.pid), (Status::Running, Some(launched.pid)));
    assert_eq!(found.name, trial.name);
    let listed = trial.engine.list_by_token(trial.state.token()).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, &*listed[0].session, listed[0].alive), (&*trial.name, "trial", true));
    assert_eq!(listed[0].ids, Some(launched.ids.agent));
    trial.engine.end(&launched.id).await.unwrap();
    assert!(matches!(trial.engine.inspect(&launched.id).await, Err(EngineError::NoContainer(_))));
    assert!(trial.engine.list_by_token(trial.state.token()).await.unwrap().is_empty());
    trial.engine.end(&launched.id).await.unwrap();
}

/// security.md 1 and 4: what the kernel says about PID 1.
#[tokio::test]
async fn pid_1_is_confined_as_ordered() {
    let trial = Trial::new().await;
    let pid = trial.launch().await.unwrap().pid;
    assert_eq!(status(pid, "Uid"), "0 0 0 0");
    let groups: Vec<String> = status(pid, "Groups").split(' ').map(str::to_owned).collect();
    let ours = nix::unistd::getegid().to_string();
    assert!(groups.iter().all(|group| *group == ours || group == "0"), "{groups:?}");
    // SETGID is 6, SETUID 7, KILL 5.
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(status(pid, set), "00000000000000e0", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Seccomp"), "2");
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(), "500");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for (name, value) in [
        ("Max open files", "1024"),
        ("Max core file size", "0"),
        ("Max locked memory", "65536"),
        ("Max msgqueue size", "0"),
        ("Max pending signals", "512"),
        ("Max realtime priority", "0"),
        ("Max file size", "17179869184"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let found: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        assert_eq!(found, [value, value], "{name}");
    }
}

/// bug 31: stop while paused works.
#[tokio::test]
async fn a_paused_container_ends() {
    let trial = Trial::new().await;
    let launched = trial.launch().await.unwrap();
    trial.engine.pause(&launched.id).await.unwrap();
    assert_eq!(trial.engine.inspect(&launched.id).await.unwrap().status, Status::Paused);
    trial.engine.end(&launched.id).await.unwrap();
    assert!(matches!(trial.engine.inspect(&launched.id).await, Err(EngineError::NoContainer(_))));
}

/// security.md 1: an image's ENV, LABEL and other settings change nothing of ours.
#[tokio::test]
async fn an_images_tricks_do_not_reach_the_container() {
    let trial = Trial::with_settings(&json!({
        "User": "nobody", "WorkingDir": "/bin", "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["evil"],
        "Env": ["PATH=/bin:/evil", "LD_PRELOAD=/evil.so", "HARMLESS=1", "BASH_ENV=/evil", "ODD NAME=1", "NOVALUE", "TWICE=1", "TWICE=2"],
        "Labels": {LABEL_TOKEN: "stolen", LABEL_SESSION: "stolen", LABEL_IDS: "1", "maker": "x"},
        "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGCONT", "OnBuild": ["RUN evil"], "Shell": ["/evil"],
        "Healthcheck": {"Test": ["CMD-SHELL", "evil"], "Interval": 1_000_000_000}
    }))
    .await;
    let launched = trial.launch().await.unwrap();
    let found = trial.engine.inspect(&launched.id).await.unwrap();
    assert_eq!(found.labels[LABEL_TOKEN], trial.state.token());
    assert_eq!(found.labels[LABEL_SESSION], "trial");
    assert_eq!(found.labels[LABEL_IDS], launched.ids.agent.to_string());
    assert_eq!(found.labels["maker"], "x");
    let commands = environment::of_commands(&trial.image.environment);
    let get = |name: &str| commands.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!((get("PATH"), get("HARMLESS"), get("LD_PRELOAD")), (Some("/bin:/evil"), Some("1"), None));
    // Only root may read another user's environment.
    if nix::unistd::geteuid().is_root() {
        let environ = fs::read(format!("/proc/{}/environ", launched.pid)).unwrap();
        let environ = String::from_utf8_lossy(&environ);
        assert!(environ.contains("HARMLESS=1"), "{environ:?}");
        for evil in ["LD_PRELOAD", "BASH_ENV", "ODD NAME", "NOVALUE"] {
            assert!(!environ.contains(evil), "{environ:?}");
        }
    }
}

/// security.md 1: an image with a VOLUME is refused, with the reason.
#[tokio::test]
async fn an_image_with_a_volume_is_refused() {
    let engine = Engine::connect(None).await.unwrap();
    let tag = format!("runner-trial-{}:latest", crate::state::random_hex());
    engine.load_image(small_image(&tag, &json!({"Volumes": {"/data": {}}}))).await.unwrap();
    let judged = engine.image(&tag).await;
    engine.remove_image(&tag).await.unwrap();
    let message = judged.unwrap_err().to_string();
    assert!(message.contains(&tag) && message.contains("VOLUME /data"), "{message}");
}

/// security.md 1: sessions that start at once have blocks of their own.
#[tokio::test]
async fn sandboxes_at_once_have_ids_of_their_own() {
    let trials = [Trial::new().await, Trial::new().await, Trial::new().await];
    let launched = futures_util::future::join_all(trials.iter().map(Trial::launch)).await;
    let mut ids: Vec<u32> = launched.into_iter().map(|launched| launched.unwrap().ids.agent).collect();
    for (trial, id) in trials.iter().zip(&ids) {
        let passwd = fs::read_to_string(trial.folder.path().join("etc/passwd")).unwrap();
        assert!(passwd.contains(&format!("agent:x:{id}:{id}:")), "{passwd}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

/// bug 29: a container with our name that someone else made stays, and is said not to be ours.
#[tokio::test]
async fn a_foreign_container_with_our_name_is_left_alone() {
    let theirs = Trial::new().await;
    let launched = theirs.launch().await.unwrap();
    let ours = Trial::new().await;
    let refused = ours.engine.end_ours(ours.state.token(), &theirs.name).await;
    assert!(matches!(refused, Err(EngineError::NotOurs(_))));
    assert_eq!(theirs.engine.inspect(&launched.id).await.unwrap().status, Status::Running);
    let error = Launch { name: &theirs.name, ..ours.order() }.run(&ours.engine).await.unwrap_err().to_string();
    assert!(error.contains("create a container") && error.contains(&theirs.name), "{error}");
    assert_eq!(theirs.engine.inspect(&launched.id).await.unwrap().status, Status::Running);
}

#[tokio::test]
async fn an_unknown_runtime_names_the_key_and_what_there_is() {
    let trial = Trial::new().await;
    let error = Launch { runtime: Some("nonsense"), ..trial.order() }.run(&trial.engine).await.unwrap_err().to_string();
    assert!(error.contains("local.runtime") && error.contains("nonsense") && error.contains("runc"), "{error}");
}

/// A PID 1 that cannot run is an error with the engine's reason, and nothing is left.
#[tokio::test]
async fn a_start_that_fails_leaves_nothing() {
    let trial = Trial::new().await;
    let gone = async || matches!(trial.engine.inspect(&trial.name).await, Err(EngineError::NoContainer(_)));
    let program = trial.folder.path().join("toolbox");
    fs::set_permissions(program, fs::Permissions::from_mode(0o444)).unwrap();
    let error = trial.launch().await.unwrap_err().to_string();
    assert!(error.contains("start the container") && error.contains("permission denied"), "{error}");
    assert!(gone().await);
}

/// Waits until the counters of a container show what a test is about.
async fn counters(cgroup: &Cgroup, enough: impl Fn(Counters) -> bool) -> Counters {
    let poll = async {
        loop {
            let counters = cgroup.read().unwrap();
            if enough(counters) {
                return counters;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), poll).await.expect("the counters did not move")
}

/// bugs 34 and 35: the kernel's counters tell memory and pids limits apart, and start at nothing.
#[tokio::test]
async fn counters_show_what_the_kernel_did() {
    let trial = Trial::new().await;
    let quiet = trial.launch().await.unwrap();
    assert_eq!(Cgroup::of(quiet.pid).unwrap().read().unwrap(), Counters::default());
    let hungry = Trial::new().await;
    hungry.program("#!/bin/sh\ntail /dev/zero\nexec sleep 1000\n");
    let launched = hungry.launch().await.unwrap();
    let cgroup = Cgroup::of(launched.pid).unwrap();
    let seen = counters(&cgroup, |counters| counters.oom_kills > 0).await;
    assert_eq!(seen.pids_refused, 0);
    let bomb = Trial::new().await;
    bomb.program("#!/bin/sh\n(while :; do sleep 1000 & done)\nexec sleep 1000\n");
    let launched = bomb.launch().await.unwrap();
    let seen = counters(&Cgroup::of(launched.pid).unwrap(), |counters| counters.pids_refused > 0).await;
    assert_eq!(seen.oom_kills, 0);
    hungry.engine.end(&hungry.name).await.unwrap();
    assert!(cgroup.read().is_err(), "the cgroup goes with its container");
}
