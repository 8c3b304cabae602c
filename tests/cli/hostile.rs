//! bug 18: hostile text in every place that these commands can show: nothing of it steers a terminal, nor passes for a
//! line of ours.

use serde_json::json;

use crate::harness::provider::{Answer, KEY, Provider, Turn, Wire};
use crate::harness::{Place, Ran, Relay, Rule, Session, Variant, engine, listed_image};

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
    let listed = listed_image(HOSTILE, &[HOSTILE, "runner/minimal:latest"]);
    relay.rule("/images/json", Rule::Answer(json!([listed])));
    relay.rule("/images/", Rule::Answer(json!({"message": HOSTILE, "Id": HOSTILE, "Os": HOSTILE})));
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["doctor", "--fix"],
        &["start", "--agent", "worker"],
        &["validate"],
        &["image", "ls"],
        &["image", "ls", "--json"],
        &["image", "check", "runner/minimal"],
        &["image", "check", "runner/minimal", "--json"],
        &["image", "rm", "runner/minimal", HOSTILE],
    ] {
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

/// CLI-3: a refusal that quotes the image, in the lists of images and where it is looked into.
#[test]
fn in_an_image_that_is_refused() {
    let volume = json!(["/a\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}"]).to_string();
    let image = Variant::new("hostile-volume", &["/bin/true"], &[&format!("VOLUME {volume}")]);
    let place = Place::bare();
    for args in [&["image", "ls"][..], &["image", "ls", "--json"]] {
        let ran = place.run(args);
        harmless(ran.exits(0).prints("VOLUME /a"));
    }
    for args in [&["image", "check", image.name()][..], &["image", "check", image.name(), "--json"]] {
        let ran = place.run(args);
        harmless(ran.exits(6).complains("VOLUME /a"));
    }
}

/// CLI-3: names of files that go in and come out, of models and of tools, and what a sandbox answers to a program.
#[test]
fn what_people_type_and_copy() {
    let name = HOSTILE.replace('/', "");
    let place = Place::new();
    place.write(&name, "text");
    place.write(&format!("folder/{name}"), "text");
    std::os::unix::fs::symlink(format!("/etc/{name}"), place.project().join("folder/out")).expect("a fresh folder");
    let into = format!("{name}:/tmp/in");
    let out = format!("/tmp/{name}:{name}-results");
    let call =
        json!({"command": format!("mkdir -p /tmp/d; ln -s '/etc/{name}' \"/tmp/d/$(printf 'a\\033]0;x\\007')\"")})
            .to_string();
    for (args, code) in [
        (&["tool", "--agent", "worker", "--in", &into, "ls", "{\"path\": \"/tmp\"}"][..], 0),
        (&["tool", "--agent", "worker", "--in", "folder:/tmp/in", "bash", &call], 1),
        (&["tool", "--agent", "worker", "--in", &format!("none-{name}:/tmp/in"), "bash", &call], 2),
        (&["tool", "--agent", "worker", "--out", &out, "bash", &call], 1),
        (&["tool", "--agent", "worker", "--out", "/tmp/d:results", "bash", &call], 0),
        (&["start", "--agent", "worker", "--model", HOSTILE], 2),
        (&["start", "--agent", "worker", "--project", HOSTILE], 2),
        (&["start", "--agent", "worker", "--task-file", &format!("none-{HOSTILE}")], 2),
        (&["tool", "--agent", "worker", "bash", HOSTILE], 2),
        (&["image", "check", HOSTILE], 6),
        (&["image", "build", "--base", HOSTILE], 2),
        (&["ps", HOSTILE], 2),
        (&["logs", HOSTILE], 2),
    ] {
        let ran = place.run(args);
        harmless(ran.exits(code));
    }
    // A program that reads line by line has JSON's own escapes.
    let calls =
        [json!({"id": HOSTILE, "tool": HOSTILE, "args": {}}), json!({"tool": "bash", "args": {HOSTILE: HOSTILE}})];
    let calls = place.write("calls", format!("{}\n{HOSTILE}\n{}\n", calls[0], calls[1]));
    let mut command = place.command(["tool", "--agent", "worker", "-"]);
    command.stdin(std::fs::File::open(calls).expect("it is there"));
    harmless(Ran::from(command.output().expect("it starts")).exits(0));
}

/// CLI-3: a provider's model, whose text comes in pieces that divide what would steer a terminal, whose tools and arguments
/// are named so, and whose failures quote it; while it runs and in the records.
#[test]
fn what_a_model_says_and_is_called() {
    for wire in Wire::ALL {
        let args = json!({"command": format!("printf %s '{HOSTILE}'"), HOSTILE: HOSTILE});
        let say = format!("{HOSTILE}\n{HOSTILE}");
        let provider = Provider::with(wire, [Turn::new().say(&say).call("a", "bash", &args).in_pieces(3)]);
        provider.push(Turn::new().say(&say).call("b", &"x\u{1b}[2J".repeat(3), &json!({})).in_pieces(1));
        let error = json!({"type": "error", "error": {"type": HOSTILE, "message": HOSTILE}}).to_string();
        provider.push(Answer::status(400).body(&error));
        let place = Place::new();
        place.write("config.toml", provider.config());
        let mut command = place.command(["start", "--agent", "worker"]);
        command.env(provider.variable(), KEY);
        let ran = Session::of(command).end();
        harmless(ran.exits(4));
        let listed = place.run(["ps", "--all", "--json"]);
        harmless(listed.exits(0));
        let id = listed.json()[0]["session"].as_str().expect("an id").to_owned();
        for args in [
            &["ps", "--all"][..],
            &["show", &id],
            &["show", &id, "--json"],
            &["show", &id, "--script"],
            &["logs", &id, "--full"],
            &["logs", &id, "--json"],
            &["stop", &id],
        ] {
            harmless(place.run(args).exits(0));
        }
    }
}
