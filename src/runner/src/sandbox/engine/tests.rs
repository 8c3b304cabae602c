use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    mock::{Manner, Mock, Script},
    *,
};

/// Two seconds at three times their value.
const TWO_SECONDS: Duration = Duration::from_secs(6);

async fn refused(change: impl FnOnce(&mut Script)) -> String {
    let mock = Mock::new();
    mock.with(change);
    let started = Instant::now();
    let error = mock.connect().await.unwrap_err();
    assert!(started.elapsed() < TWO_SECONDS);
    one_line(&error)
}

fn one_line(error: &EngineError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text:?}");
    text
}

fn check(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
}

/// bug 39: engines that cannot hold a sandbox are refused in one line with the reason and the remedy.
#[tokio::test]
async fn unfit_engines_are_refused() {
    type Change = fn(&mut Script);
    let options = |option: &str| json!(["name=seccomp,profile=default", option]);
    let cases: [(Change, &[&str]); 13] = [
        (|s| s.version["ApiVersion"] = "1.40".into(), &["too old", "1.40", "minimum is API 1.41", "20.10"]),
        (|s| s.version["ApiVersion"] = "x".into(), &[]),
        (|s| s.version["ApiVersion"] = Value::Null, &[]),
        (|s| s.info["OperatingSystem"] = "Docker Desktop".into(), &["Docker Desktop", "virtual machine", "install"]),
        (|s| s.info["Name"] = "docker-desktop".into(), &["Docker Desktop"]),
        (|s| s.info["KernelVersion"] = "5.0-elsewhere".into(), &["another machine", "5.0-elsewhere"]),
        (|s| s.info["Architecture"] = "aarch64".into(), &["aarch64", "x86_64"]),
        (|s| s.info["SecurityOptions"] = json!([]), &["seccomp"]),
        (|s| s.info["PidsLimit"] = json!(false), &["cannot limit pids"]),
        (|s| s.info["MemoryLimit"] = json!(false), &["cannot limit memory"]),
        (|s| s.info["CpuCfsQuota"] = json!(false), &["cannot limit cpu"]),
        (|s| s.version["Components"] = json!([{"Name": "Podman Engine", "Version": "5"}]), &["Podman"]),
        (|s| s.info = json!("nonsense"), &["introduce itself"]),
    ];
    for (change, words) in cases {
        check(&refused(change).await, words);
    }
    for (option, words) in [
        ("name=userns", &["userns-remap", "daemon.json"][..]),
        ("name=rootless", &["rootless"]),
        ("name=selinux", &["SELinux", "daemon.json"]),
    ] {
        check(&refused(|s| s.info["SecurityOptions"] = options(option)).await, words);
    }
}

/// bug 39: not running, not a socket, no permission, no file: each says its own remedy.
#[tokio::test]
async fn unreachable_engines_are_named_with_the_remedy() {
    let base = tempfile::tempdir().unwrap();
    let connect = async |name: &str| {
        let started = Instant::now();
        let error = Engine::connect(Some(&format!("unix://{}", base.path().join(name).display()))).await.unwrap_err();
        assert!(started.elapsed() < TWO_SECONDS);
        one_line(&error)
    };
    check(
        &connect("missing").await,
        &["missing", "no Docker engine is running", "systemctl start docker", "DOCKER_HOST"],
    );
    std::fs::write(base.path().join("file"), "").unwrap();
    check(&connect("file").await, &["file is not a socket", "DOCKER_HOST"]);
    drop(std::os::unix::net::UnixListener::bind(base.path().join("stale")).unwrap());
    check(&connect("stale").await, &["no Docker engine is running", "refused"]);
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let _closed = std::os::unix::net::UnixListener::bind(base.path().join("closed")).unwrap();
    std::fs::set_permissions(base.path().join("closed"), std::fs::Permissions::from_mode(0o0)).unwrap();
    check(&connect("closed").await, &["no permission", "closed", "group", "usermod -aG"]);
}

/// bug 39: who may not use the socket is told which group may.
#[test]
fn no_permission_names_the_group() {
    let error = EngineError::NoPermission { socket: "/run/docker.sock".into(), group: "docker".to_owned() };
    check(&one_line(&error), &["/run/docker.sock", "group docker", "usermod -aG docker"]);
}

/// bugs 11 and 39: a mute, slow or breaking engine is an error within the deadline and leaves no connection behind.
#[tokio::test]
async fn a_stalled_engine_meets_the_deadline_and_nothing_leaks() {
    for manner in [Manner::Silent, Manner::Dribble, Manner::HangUp] {
        let mock = Mock::new();
        let short = Duration::from_millis(300);
        let engine = mock.connect().await.unwrap();
        let engine = engine.with_deadlines(Deadlines { ask: short, act: short, load: short, stream: short });
        mock.with(|script| script.manner = manner);
        for _ in 0..3 {
            let started = Instant::now();
            let error = engine.inspect("some").await.unwrap_err();
            assert!(error.is_gone(), "{manner:?}: {error}");
            assert!(started.elapsed() < 3 * short, "{manner:?}: {:?}", started.elapsed());
            assert!(engine.kill("some").await.unwrap_err().is_gone());
            assert!(engine.load_image(vec![0; 1000]).await.unwrap_err().is_gone());
        }
        let started = Instant::now();
        assert!(mock.connect().await.unwrap_err().is_gone());
        assert!(started.elapsed() < TWO_SECONDS);
        tokio::time::timeout(Duration::from_secs(10), async {
            while mock.with(|script| script.open) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{manner:?}: connections are left open"));
    }
}

/// bug 10: one stuck call holds up no other.
#[tokio::test]
async fn each_call_has_a_connection_of_its_own() {
    let mock = Mock::new();
    let engine = mock.connect().await.unwrap();
    mock.with(|script| script.manner = Manner::Silent);
    let other = engine.clone();
    let stuck = tokio::spawn(async move { other.inspect("some").await });
    while !mock.with(|script| script.requests.iter().any(|request| request.contains("/containers/some/"))) {
        tokio::task::yield_now().await;
    }
    mock.with(|script| script.manner = Manner::Prompt);
    assert!(matches!(engine.inspect("other").await, Err(EngineError::NoContainer(_))));
    assert!(!stuck.is_finished());
    stuck.abort();
}

/// security.md 1: warnings about limits are failures and the container is deleted; one about swap is not.
#[tokio::test]
async fn warnings_about_limits_are_failures() {
    let mock = Mock::new();
    let engine = mock.connect().await.unwrap();
    let create = async |warning: &str| {
        mock.with(|script| {
            script.warnings = vec![warning.to_owned()];
            script.order = None;
        });
        engine.create("name", bollard::models::ContainerCreateBody::default()).await
    };
    for warning in [
        "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
        "Your kernel does not support PIDs limit capabilities or the cgroup is not mounted. PIDs limit discarded.",
        "Your kernel does not support CPU CFS quota or the cgroup is not mounted. Quota discarded.",
    ] {
        let error = create(warning).await.unwrap_err();
        check(&one_line(&error), &[warning, "cgroup controllers"]);
        assert!(mock.with(|script| script.order.is_none()), "it was deleted");
    }
    let swap = "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.";
    assert_eq!(create(swap).await.unwrap(), "made");
}

/// bug 29: a foreign container with our name or our labels is left alone; ours is ended.
#[tokio::test]
async fn only_token_and_name_together_make_a_container_ours() {
    let mock = Mock::new();
    let engine = mock.connect().await.unwrap();
    let make = async |name: &str, token: &str| {
        let labels = [(crate::sandbox::spec::LABEL_TOKEN.to_owned(), token.to_owned())].into();
        let body = bollard::models::ContainerCreateBody {
            labels: Some(labels),
            host_config: Some(bollard::models::HostConfig::default()),
            ..bollard::models::ContainerCreateBody::default()
        };
        engine.create(name, body).await.unwrap();
    };
    make("ours", "another-token").await;
    assert!(matches!(engine.end_ours("token", "ours").await, Err(EngineError::NotOurs(_))));
    make("theirs", "token").await;
    assert!(matches!(engine.end_ours("token", "ours").await, Err(EngineError::NotOurs(_))));
    assert!(mock.with(|script| script.order.is_some()), "left alone");
    make("ours", "token").await;
    engine.end_ours("token", "ours").await.unwrap();
    assert!(mock.with(|script| script.order.is_none()), "ended");
    engine.end_ours("token", "ours").await.unwrap();
}

#[tokio::test]
async fn names_that_would_change_the_path_never_reach_the_engine() {
    let mock = Mock::new();
    let engine = mock.connect().await.unwrap();
    mock.with(|script| script.requests.clear());
    for name in ["", "../images", "a/b", "a?b", "a%2fb"] {
        assert!(matches!(engine.inspect(name).await, Err(EngineError::NoContainer(_))), "{name}");
    }
    assert!(engine.image("../containers/json").await.is_err());
    assert!(mock.with(|script| script.requests.is_empty()));
}

#[tokio::test]
async fn a_missing_image_says_how_to_get_it() {
    let mock = Mock::new();
    mock.with(|script| script.image = Value::Null);
    let engine = mock.connect().await.unwrap();
    check(&one_line(&engine.image("runner/minimal").await.unwrap_err()), &["runner/minimal", "runner image build"]);
    check(&one_line(&engine.image("debian:12").await.unwrap_err()), &["debian:12", "docker pull debian:12"]);
}
