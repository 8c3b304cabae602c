//! `runner doctor`: one line a check, with the remedy; exit code 3 when one says error.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use runner::doctor::CHECKS;
use serde_json::Value;

use crate::harness::{Place, Ran, Relay, Rule, engine, is_root, program};

fn examined(mut command: Command, code: i32) -> (Vec<Value>, Value) {
    let report = Ran::from(command.output().expect("it starts")).exits(code).json();
    (report["checks"].as_array().expect("a list").clone(), report["fixed"].clone())
}

fn doctor(place: &Place, more: &[&str]) -> Command {
    let mut command = place.command(["doctor", "--json"]);
    command.args(more).env("ANTHROPIC_API_KEY", "not-a-real-key").env("XDG_CONFIG_HOME", place.folder());
    command
}

#[track_caller]
fn of<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

/// CLI-14, CLI-15, CLI-18, CLI-20: on a machine that runs these tests everything that must work does: the limits bite,
/// and the walls hold.
#[test]
fn a_fit_machine() {
    let place = Place::new();
    let (checks, fixed) = examined(doctor(&place, &[]), 0);
    let names: Vec<&str> = checks.iter().filter_map(|check| check["name"].as_str()).collect();
    assert_eq!(names, CHECKS);
    for check in &checks {
        // What differs from machine to machine may be a warning.
        let may_differ =
            ["cgroups", "storage-driver", "live-restore", "uid-range", "image-base", "disk-state", "disk-engine"];
        let name = check["name"].as_str().expect("a name");
        assert!(check["level"] == "ok" || may_differ.contains(&name), "{check}");
        assert_eq!(check["level"] == "ok", check["remedy"].is_null(), "{check}");
    }
    assert_eq!(fixed, serde_json::json!([]));
    assert!(!serde_json::to_string(&checks).expect("JSON").contains("not-a-real-key"));
    assert!(of(&checks, "model-keys")["seen"].as_str().expect("a text").contains("anthropic (ANTHROPIC_API_KEY)"));
    // The probe is a session like any other, and is gone.
    let listed = place.run(["ps", "--all", "--json"]).exits(0).json();
    assert_eq!((&listed[0]["agent"], &listed[0]["cause"]), (&"doctor".into(), &"done".into()));
    place.assert_clean();
    assert_eq!(place.owners(), 0);
}

/// The same for people.
#[test]
fn a_transcript() {
    let place = Place::new();
    let mut command = place.command(["doctor"]);
    command.env("ANTHROPIC_API_KEY", "not-a-real-key").env("XDG_CONFIG_HOME", place.folder());
    let ran = Ran::from(command.output().expect("it starts"));
    let lines: Vec<&str> = ran.exits(0).stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(lines.len(), CHECKS.len(), "{ran}");
    let tail = lines.iter().skip_while(|line| !line.contains("model-keys")).copied().collect::<Vec<_>>().join("\n");
    let tail = regex::Regex::new("landlock \\d+").expect("a pattern").replace_all(&tail, "landlock N").into_owned();
    insta::assert_snapshot!(tail, @"
ok       model-keys       anthropic (ANTHROPIC_API_KEY)
ok       sandbox          started from runner/minimal, landlock N
ok       memory-limit     a command that ate 64 MiB was killed, its sandbox lives
ok       pids-limit       a command that started 48 processes met the limit of 32
ok       tmp-size         a file of 16 MiB did not fit into a /tmp of 4 MiB
ok       network          no interface but the loopback, and no route
ok       syscall-filter   on, and unshare is refused
ok       pid-1            its memory, environment and links cannot be reached, nor can it be killed
");
}

/// CLI-15, CLI-16, bug 39: without an engine there is one error, what needs it is skipped, and nobody waits.
#[test]
fn no_engine() {
    let place = Place::new();
    let relay = Relay::new();
    relay.rule("/", Rule::Mute);
    for host in ["unix:///nowhere.sock".to_owned(), "tcp://10.0.0.1:2375".to_owned(), relay.address()] {
        let mut command = doctor(&place, &["--fix"]);
        command.env("DOCKER_HOST", &host);
        let begun = Instant::now();
        let (checks, _) = examined(command, 3);
        // Two seconds at three times their value.
        assert!(begun.elapsed() < Duration::from_secs(6), "{host}: {:?}", begun.elapsed());
        let errors: Vec<&Value> = checks.iter().filter(|check| check["level"] == "error").collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0]["name"], "engine");
        assert!(errors[0]["remedy"].is_string(), "{errors:?}");
        let skipped: Vec<&str> = checks
            .iter()
            .filter(|check| check["level"] == "skipped")
            .filter_map(|check| check["name"].as_str())
            .collect();
        let expected: Vec<&str> = CHECKS
            .into_iter()
            .filter(|name| {
                !["engine", "uid-range", "uid-lock", "state", "store", "leftovers", "disk-state", "clock", "model-keys"]
                    .contains(name)
            })
            .collect();
        assert_eq!(skipped, expected);
    }
}

/// An engine that cannot be used is an error with its reason, and what it says of itself is still shown.
#[test]
fn an_unfit_engine() {
    let place = Place::new();
    let relay = Relay::new();
    let mut info = engine("GET", "/info").1;
    info["SecurityOptions"] = serde_json::json!(["name=seccomp,profile=default", "name=userns"]);
    info["Driver"] = "vfs".into();
    relay.rule("/info", Rule::Answer(info));
    let mut command = doctor(&place, &[]);
    command.env("DOCKER_HOST", relay.address());
    let (checks, _) = examined(command, 3);
    let level = |name: &str| of(&checks, name)["level"].as_str().expect("a level").to_owned();
    assert_eq!(
        ["engine", "user-namespaces", "storage-driver", "seccomp", "sandbox"].map(level),
        ["error", "error", "warning", "ok", "skipped"]
    );
}

/// CLI-17: a state directory that is broken is what the doctor is for.
#[test]
fn broken_state_directories() {
    let place = Place::new();
    place.drive().exits(0);
    let token = std::fs::read(place.state().join("token")).expect("a token");
    std::fs::write(place.state().join("token"), "short\n").expect("it is ours");
    let (checks, _) = examined(doctor(&place, &["--fix"]), 3);
    assert_eq!(of(&checks, "state")["level"], "error");
    assert_eq!(of(&checks, "store")["level"], "skipped");
    assert!(of(&checks, "state")["remedy"].as_str().expect("a remedy").contains("restore it"));
    std::fs::write(place.state().join("token"), token).expect("it is ours");

    let store = std::fs::read(place.state().join("store.db")).expect("a store");
    std::fs::write(place.state().join("store.db"), "no database at all, but long enough".repeat(200)).expect("ours");
    let (checks, _) = examined(doctor(&place, &["--fix"]), 3);
    assert_eq!((&of(&checks, "state")["level"], &of(&checks, "store")["level"]), (&"ok".into(), &"error".into()));
    assert_eq!(of(&checks, "sandbox")["level"], "skipped");
    std::fs::write(place.state().join("store.db"), store).expect("it is ours");

    let mut command = doctor(&place, &[]);
    command.env("RUNNER_STATE", "relative");
    let (checks, _) = examined(command, 3);
    assert!(of(&checks, "state")["seen"].as_str().expect("a text").contains("relative"));
    let file = place.write("file", "");
    let mut command = doctor(&place, &["--fix"]);
    command.env("RUNNER_STATE", &file);
    examined(command, 3);
    examined(doctor(&place, &[]), 0);
}

/// CLI-17: a file system that cannot hold it.
#[test]
fn unfit_file_systems() {
    if !is_root() {
        return;
    }
    for (options, word) in [("ro", "read-only"), ("noexec", "noexec"), ("size=4k", "no space")] {
        let place = Place::new();
        std::fs::create_dir(place.state()).expect("a fresh folder");
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o {options} none \"$RUNNER_STATE\" && exec \"$0\" doctor --json --fix");
        command.args(["-m", "sh", "-c", &script]).arg(program());
        command.current_dir(place.project()).env("RUNNER_STATE", place.state());
        let (checks, _) = examined(command, 3);
        assert!(of(&checks, "state")["seen"].as_str().expect("a text").contains(word), "{checks:?}");
    }
}

/// Modes: the directory closes itself, `--fix` closes our own files and makes missing folders.
#[test]
fn modes_are_put_right() {
    let place = Place::new();
    place.drive().exits(0);
    let mode = |name: &str| std::fs::metadata(place.state().join(name)).expect("it is there").mode() & 0o7777;
    let set = |name: &str, mode: u32| {
        std::fs::set_permissions(place.state().join(name), PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    set("", 0o755);
    set("token", 0o644);
    set("store.db", 0o666);
    std::fs::remove_dir_all(place.state().join("owners")).expect("it is there");
    let (checks, fixed) = examined(doctor(&place, &["--fix"]), 0);
    assert_eq!(of(&checks, "state")["level"], "warning");
    assert_eq!(["", "token", "store.db", "owners", "sessions"].map(mode), [0o700, 0o600, 0o600, 0o700, 0o700]);
    for part in ["made ", "state/token to others: its mode was 0644", "state/store.db to others: its mode was 0666"] {
        assert!(fixed.to_string().contains(part), "{fixed}");
    }
    let (checks, fixed) = examined(doctor(&place, &["--fix"]), 0);
    assert_eq!((&of(&checks, "state")["level"], fixed), (&"ok".into(), serde_json::json!([])));
}

/// CLI-20: a key that others can read is an error that names the file, and nothing of the key.
#[test]
fn an_open_key() {
    let place = Place::new();
    let path = place.folder().join("runner/credentials/openai_key/default/token");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a fresh folder");
    std::fs::write(&path, "sk-secret").expect("a fresh folder");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("it is ours");
    let (checks, _) = examined(doctor(&place, &[]), 3);
    let found = of(&checks, "model-keys");
    assert_eq!(found["level"], "error");
    assert!(found.to_string().contains("chmod 600") && !found.to_string().contains("sk-secret"), "{found}");
}

/// Our images are made before they are needed: one that is not there is a warning with the command that makes it. So is a
/// machine without any key.
#[test]
fn missing_images() {
    let place = Place::new();
    let relay = Relay::new();
    relay.rule("/images/runner/", Rule::NotFound);
    let mut command = doctor(&place, &[]);
    command.env("DOCKER_HOST", relay.address()).env_remove("ANTHROPIC_API_KEY");
    let (checks, _) = examined(command, 0);
    let keys = of(&checks, "model-keys");
    assert_eq!(
        (&keys["level"], &keys["seen"]),
        (&"warning".into(), &"no provider has a key: agents think with scripts or local models only".into())
    );
    assert!(
        keys["remedy"].as_str().is_some_and(|remedy| remedy.contains("set ANTHROPIC_API_KEY, or write its key to "))
    );
    for (name, verb) in
        [("image-minimal", "`runner image build`"), ("image-base", "`runner image build --base debian`")]
    {
        let found = of(&checks, name);
        assert_eq!(found["level"], "warning", "{found}");
        assert!(found["remedy"].as_str().is_some_and(|remedy| remedy.ends_with(verb)), "{found}");
    }
    // Without an image there is nothing that a probe could be made from.
    let skipped: Vec<&str> = CHECKS.into_iter().skip_while(|name| *name != "sandbox").collect();
    assert!(skipped.iter().all(|name| of(&checks, name)["level"] == "skipped"), "{checks:?}");
}

/// An engine that breaks off on the way: what it was asked for is an error with a remedy, what needs that is skipped.
#[test]
fn an_engine_that_breaks_off() {
    let place = Place::new();
    let relay = Relay::new();
    relay.rule("/containers/json", Rule::HangUp).rule("/containers/create", Rule::HangUp);
    let mut command = doctor(&place, &[]);
    command.env("DOCKER_HOST", relay.address());
    let (checks, _) = examined(command, 3);
    for name in ["uid-range", "sandbox"] {
        let found = of(&checks, name);
        assert!(found["level"] == "error" && found["remedy"].is_string(), "{found}");
    }
    for name in ["memory-limit", "pids-limit", "tmp-size", "network", "syscall-filter", "pid-1"] {
        assert_eq!(of(&checks, name)["level"], "skipped", "{checks:?}");
    }
}

/// Ids are chosen under one lock for the whole machine; something else in its place is an error.
#[test]
fn a_lock_that_is_none() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /run/lock && mkdir /run/lock/runner-ids && exec \"$0\" doctor --json";
    command.args(["-m", "sh", "-c", script]).arg(program());
    command.current_dir(place.project()).env("RUNNER_STATE", place.state());
    let (checks, _) = examined(command, 3);
    let found = of(&checks, "uid-lock");
    assert!(found["level"] == "error" && found["remedy"].is_string(), "{found}");
    assert!(found["seen"].as_str().is_some_and(|seen| seen.contains("/run/lock/runner-ids")), "{found}");
}
