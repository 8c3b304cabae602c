//! bug 39: engines that are not there, cannot be reached or cannot hold a sandbox.

use std::os::unix::net::UnixListener;
use std::process::Command;

use serde_json::{Value, json};

use super::refused_run;
use crate::harness::{Place, Relay, Rule, engine, is_root, program};

fn with_host(place: &Place, host: &str) -> Command {
    let mut command = place.command(["start", "--agent", "worker"]);
    command.env("DOCKER_HOST", host);
    command
}

#[track_caller]
fn refused_at(place: &Place, host: &str) -> String {
    refused_run(place, with_host(place, host), 3)
}

/// Not running, a file in its place, an address of nothing, and another machine's.
#[test]
fn nobody_answers() {
    let place = Place::new();
    let at = |path: &str| format!("unix://{}", place.folder().join(path).display());
    insta::assert_snapshot!(refused_at(&place, &at("none.sock")), @"error: no Docker engine is running at PLACE/none.sock (No such file or directory); start it (`systemctl start docker`), or set DOCKER_HOST to unix://<its socket>");
    std::fs::write(place.folder().join("file"), "").expect("a fresh folder");
    insta::assert_snapshot!(refused_at(&place, &at("file")), @"error: PLACE/file is not a socket; set DOCKER_HOST to unix://<the engine's socket>, or unset it");
    drop(UnixListener::bind(place.folder().join("left.sock")).expect("a fresh folder"));
    insta::assert_snapshot!(refused_at(&place, &at("left.sock")), @"error: no Docker engine is running at PLACE/left.sock (Connection refused); start it (`systemctl start docker`), or set DOCKER_HOST to unix://<its socket>");
    insta::assert_snapshot!(refused_at(&place, "/var/run/docker.sock"), @r#"error: DOCKER_HOST is "/var/run/docker.sock", which is no engine's address; unset it, or set it to unix:///var/run/docker.sock"#);
    insta::assert_snapshot!(refused_at(&place, "tcp://10.0.0.1:2375"), @r#"error: DOCKER_HOST is "tcp://10.0.0.1:2375", an engine on another machine; sandboxes share a socket with this host: unset it, or set it to unix:///var/run/docker.sock"#);
    insta::assert_snapshot!(refused_at(&place, "ssh://me@there"), @r#"error: DOCKER_HOST is "ssh://me@there", an engine on another machine; sandboxes share a socket with this host: unset it, or set it to unix:///var/run/docker.sock"#);
}

/// The socket is another group's.
#[test]
fn no_permission() {
    let place = Place::new();
    let path = place.folder().join("closed.sock");
    let _listener = UnixListener::bind(&path).expect("a fresh folder");
    let host = format!("unix://{}", path.display());
    let command = if is_root() {
        // As root without the right to pass over modes.
        std::os::unix::fs::chown(&path, Some(1), Some(1)).expect("root may");
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override,-dac_read_search", "--"]).arg(program());
        command.args(["start", "--agent", "worker"]).current_dir(place.project());
        command.env("RUNNER_STATE", place.state()).env("DOCKER_HOST", &host);
        command
    } else {
        with_host(&place, &host)
    };
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(if is_root() { 0o660 } else { 0 }))
        .expect("it is ours");
    let complaint = refused_run(&place, command, 3);
    if is_root() {
        insta::assert_snapshot!(complaint, @"error: no permission on the engine's socket PLACE/closed.sock; it belongs to group daemon: join it (`sudo usermod -aG daemon $USER`) and log in again");
    } else {
        assert!(complaint.contains("no permission on the engine's socket PLACE/closed.sock"), "{complaint}");
    }
}

/// What the real engine says of itself, changed.
fn changed(path: &str, change: impl FnOnce(&mut Value)) -> String {
    let place = Place::new();
    let relay = Relay::new();
    let mut answer = engine("GET", path).1;
    change(&mut answer);
    relay.rule(path, Rule::Answer(answer));
    let complaint = refused_at(&place, &relay.address());
    complaint.replace(&relay.socket().display().to_string(), "SOCKET")
}

/// Engines that answer and cannot hold a sandbox: too old, Desktop, remapped, rootless, SELinux, another machine's.
#[test]
fn unfit_engines() {
    let old = |version: &mut Value| {
        version["ApiVersion"] = "1.40".into();
        version["Version"] = "19.03.15".into();
    };
    insta::assert_snapshot!(changed("/version", old), @"error: the engine at SOCKET is refused: it is too old: API 1.40 (version 19.03.15); the minimum is API 1.41, Docker Engine 20.10");
    let podman = |version: &mut Value| version["Components"] = json!([{"Name": "Podman Engine", "Version": "5.0"}]);
    insta::assert_snapshot!(changed("/version", podman), @"error: the engine at SOCKET is refused: it is Podman; runner needs a Docker Engine");
    let info = |key: &'static str, value: Value| changed("/info", move |info| info[key] = value);
    insta::assert_snapshot!(info("OperatingSystem", "Docker Desktop".into()), @"error: the engine at SOCKET is refused: it is Docker Desktop, whose containers run in a virtual machine and cannot share a socket with this host; install Docker Engine (docker.io or docker-ce) and unset DOCKER_HOST");
    let option = |name: &str| info("SecurityOptions", json!(["name=seccomp,profile=default", name]));
    insta::assert_snapshot!(option("name=userns"), @r#"error: the engine at SOCKET is refused: it remaps user ids (userns-remap), which is not supported yet; remove "userns-remap" from /etc/docker/daemon.json and restart it"#);
    insta::assert_snapshot!(option("name=rootless"), @"error: the engine at SOCKET is refused: it is rootless, which is not supported yet; use a rootful Docker Engine");
    insta::assert_snapshot!(option("name=selinux"), @r#"error: the engine at SOCKET is refused: it labels containers with SELinux, which is not supported yet; remove "selinux-enabled" from /etc/docker/daemon.json and restart it"#);
    insta::assert_snapshot!(info("SecurityOptions", json!([])), @"error: the engine at SOCKET is refused: it has no seccomp, which every sandbox needs; use a kernel and an engine with it");
    insta::assert_snapshot!(info("KernelVersion", "5.0-elsewhere".into()).replace(&kernel(), "KERNEL"), @"error: the engine at SOCKET is refused: it runs on another machine (kernel 5.0-elsewhere, here KERNEL) and cannot share a socket with this host; use this host's own Docker Engine");
    insta::assert_snapshot!(info("PidsLimit", false.into()), @"error: the engine at SOCKET is refused: it cannot limit pids; enable the cgroup controller pids");
}

fn kernel() -> String {
    nix::sys::utsname::uname().expect("a name").release().to_string_lossy().into_owned()
}

/// bug 11: an engine that takes the connection and says nothing, or one byte at a time, or hangs up.
#[test]
fn stalled_engines() {
    for (rule, why) in [
        (Rule::Mute, "no answer in TIME"),
        (Rule::Dribble, "no answer in TIME"),
        (Rule::HangUp, "connection closed before message completed"),
    ] {
        let place = Place::new();
        let relay = Relay::new();
        relay.rule("GET /", rule.clone());
        let complaint = refused_at(&place, &relay.address());
        assert!(
            complaint.starts_with("error: the Docker engine is gone: it did not introduce itself (")
                && complaint.contains(why)
                && complaint.ends_with("; see that it runs (`docker info`)"),
            "{rule:?}: {complaint}"
        );
    }
}

/// bugs 10 and 11: the engine stalls while a session works. Its calls go on, since they need the link alone; records
/// need no engine; other sessions are refused in time; and all is well when it answers again.
#[test]
fn the_engine_stalls_in_mid_session() {
    let place = Place::new();
    let relay = Relay::new();
    let mut tool = place.command(["tool", "--agent", "worker", "-"]);
    tool.env("DOCKER_HOST", relay.address());
    let mut desk = crate::harness::Desk::start(tool);
    desk.bash("true").ok();
    let open = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let before = open(desk.pid());
    relay.rule("/", Rule::Mute);
    for n in 0..20 {
        assert_eq!(desk.bash(&format!("echo {n}")).ok(), format!("{n}\n"));
        desk.call("read", &json!({"path": "SKILL.md"})).ok();
    }
    assert!(open(desk.pid()) <= before + 2, "{} were open, now {}", before, open(desk.pid()));
    let listed = place.run(["ps", "--json"]).exits(0).json();
    let id = listed[0]["session"].as_str().expect("an id");
    assert_eq!(place.show(id)["state"], "running");
    let begun = std::time::Instant::now();
    let mut other = with_host(&place, &relay.address());
    let other = crate::harness::Ran::from(other.output().expect("it starts"));
    other.exits(3).complains("no answer in 1.8 s");
    assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
    relay.heal();
    desk.close().exits(0);
}
