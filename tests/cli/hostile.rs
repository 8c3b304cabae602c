//! bug 18: hostile text in every place that these commands can show: nothing of it steers a terminal, nor passes for a
//! line of ours.

use serde_json::json;

use crate::harness::{Place, Ran, Relay, Rule, Variant, engine};

/// OSC 52 and OSC 0, a cleared screen, C1, a forged log line, a reversed and a hidden character.
const HOSTILE: &str =
    "\u{1b}]52;c;QQ==\u{7}\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\r\n{\"level\":\"error\"}\nerror: forged\u{202e}\u{200b}";

#[track_caller]
fn harmless(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let bad = |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || matches!(c, '\u{202e}' | '\u{200b}');
        assert_eq!(text.chars().find(bad), None, "{text:?}");
        let forged = |line: &str| line.starts_with("{\"level\"") || line.starts_with("error: forged");
        assert!(!text.lines().any(forged), "{text}");
    }
}

/// CLI-3: names, keys, values, descriptions, scripts.
#[test]
fn in_a_project() {
    let place = Place::new();
    let quoted = serde_json::to_string(HOSTILE).expect("a string").replace('\u{7f}', "\\u007f");
    let quoted = quoted.replace('\u{9b}', "\\u009b");
    place.write(
        "config.toml",
        format!("{quoted} = 1\nprojectName = {quoted}\n[models.{quoted}]\nprovider = {quoted}\n[models.b]\nprovider = \"script\"\nfile = {quoted}\n"),
    );
    place.write(&format!("agents/{}/SKILL.md", HOSTILE.replace('/', "")), "Do.");
    place.write("agents/worker/SKILL.md", format!("---\nname: worker\ndescription: {quoted}\n{quoted}: 1\n---\nDo.\n"));
    place.write("agents/other/SKILL.md", format!("---\nname: {quoted}\n---\n{HOSTILE}"));
    place.write("agents/other/config.toml", format!("models = [{quoted}]\n[local]\nimage = {quoted}\n"));
    for args in
        [&["validate"][..], &["validate", "--json"], &["start", "--agent", "other"], &["validate", "agents/worker"]]
    {
        let ran = place.run(args);
        ran.exits(2);
        harmless(&ran);
    }
    place.run(["validate", "--json"]).exits(2).json();
    for args in [["new", HOSTILE], ["init", HOSTILE], ["validate", HOSTILE], ["completions", HOSTILE]] {
        harmless(&place.run(args));
    }
    // What is mistyped comes back from the parser too, and from what checks single values.
    let (a_copy_in, a_copy_out) = (format!("x:/{HOSTILE}"), format!("/etc/{HOSTILE}:out"));
    for args in [
        &["start", "--agent", "worker", HOSTILE][..],
        &[HOSTILE],
        &["logs", "x", &format!("--{HOSTILE}")],
        &["start", "--agent", "worker", "--in", &a_copy_in],
        &["start", "--agent", "worker", "--out", &a_copy_out],
        &["stop", "x", "--wait", HOSTILE],
    ] {
        let ran = place.run(args);
        ran.exits(2);
        harmless(&ran);
    }
}

/// CLI-3: what an engine says of itself, and its errors' bodies.
#[test]
fn from_an_engine() {
    let place = Place::new();
    let relay = Relay::new();
    let mut info = engine("GET", "/info").1;
    for key in ["OperatingSystem", "Driver", "CgroupDriver", "DockerRootDir", "DefaultRuntime"] {
        info[key] = HOSTILE.into();
    }
    info["SecurityOptions"] = json!(["name=seccomp", format!("name={HOSTILE}")]);
    let mut version = engine("GET", "/version").1;
    version["Version"] = HOSTILE.into();
    relay.rule("/info", Rule::Answer(info)).rule("/version", Rule::Answer(version));
    relay.rule("/containers/json", Rule::Answer(json!({"message": HOSTILE})));
    relay.rule("/images/", Rule::Answer(json!({"message": HOSTILE, "Id": HOSTILE, "Os": HOSTILE})));
    for args in
        [&["doctor"][..], &["doctor", "--json"], &["doctor", "--fix"], &["start", "--agent", "worker"], &["validate"]]
    {
        let mut command = place.command(args);
        command.env("DOCKER_HOST", relay.address());
        let ran = Ran::from(command.output().expect("it starts"));
        harmless(&ran);
        assert!(!ran.stdout.is_empty() || !ran.stderr.is_empty(), "{args:?}");
    }
    let mut command = place.command(["doctor"]);
    command.env("DOCKER_HOST", format!("unix:///{HOSTILE}"));
    harmless(&Ran::from(command.output().expect("it starts")));
}

/// CLI-3: an image's labels and variables: the session runs, and shows none of it raw.
#[test]
fn in_an_image() {
    let label = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";
    let image =
        Variant::new("labels", &["/bin/true"], &[&format!("LABEL a=\"{label}\""), &format!("ENV B=\"{label}\"")]);
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    place.script(&json!([{"calls": [{"id": "a", "tool": "bash", "args": {"command": "env"}}]}, {"text": "${a.text}"}]));
    let ran = place.run(["start", "--agent", "worker"]);
    ran.exits(0);
    harmless(&ran);
    harmless(&place.run(["doctor"]));
}
