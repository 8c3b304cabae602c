//! The commands that look at a fleet.

use serde_json::{Value, json};

use crate::harness::script::{Gate, call, say, wait};
use crate::harness::{Place, has};

/// `ps`, `queue`, `locks`, `waits`, `calls` and `show` tell of the same sessions what each is for, in words and in JSON.
#[test]
fn a_fleet_is_seen_from_all_sides() {
    let gate = Gate::new();
    let root = json!([
        call("lock", "acquire_lock", &json!({"resource_key": "lock://repo/main"})),
        call("status", "set_status", &json!({"text": "reading mail"})),
        call("child", "call_agent", &json!({"target_agent": "waits", "context": {}})),
        gate.turn("hold"),
        say("done"),
    ]);
    let waits = json!([wait("w", &json!({"repo": "acme/app"}), "5m"), say("done")]);
    let place = Place::fleet("", &[("root", "", root), ("waits", "", waits)]);
    let daemon = place.serve();
    let session = place.detach("root");
    gate.reached();
    let queued = place.detach("root");
    let waiting = place.session_of("waits");
    place.waiting(&waiting);

    let listed = place.listed("ps");
    let of = |id: &str| listed.iter().find(|shown| shown["session"] == id).expect("it is listed").clone();
    has(&of(&session), &json!({"agent": "root", "state": "running", "status": "reading mail"}));
    has(&of(&queued), &json!({"state": "queued"}));
    has(&of(&waiting), &json!({"agent": "waits", "state": "waiting"}));
    assert!(of(&session).to_string().contains("lock://repo/main"), "the held lock: {}", of(&session));
    let table = place.run(["ps"]).exits(0).stdout.clone();
    for part in ["reading mail", "lock://repo/main", "queued", "waiting for", "running"] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    let tree = place.run(["ps", "--tree"]).exits(0).stdout.clone();
    assert!(tree.find("root") < tree.find("waits"), "{tree}");

    let one = |verb: &str| {
        let list = place.listed(verb);
        assert_eq!(list.len(), 1, "{verb}: {list:#?}");
        list[0].clone()
    };
    assert!(one("queue").to_string().contains(&queued));
    has(&one("locks"), &json!({"session": session, "agent": "root"}));
    has(&one("waits"), &json!({"session": waiting, "agent": "waits"}));
    assert!(one("calls").to_string().contains(&waiting));
    for verb in ["queue", "locks", "waits", "calls"] {
        let table = place.run([verb]).exits(0).stdout.clone();
        assert_eq!(table.lines().count(), 2, "a head and a row:\n{table}");
    }
    place.run(["kill", &session]).exits(0);
    gate.reached();
    place.run(["kill", &queued]).exits(0);
    place.all_ended();
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// The lists work without a daemon and say so of nothing.
#[test]
fn lists_need_no_daemon() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    for verb in ["ps", "queue", "locks", "waits", "calls"] {
        assert_eq!(place.listed(verb), Vec::<Value>::new(), "{verb}");
    }
}

/// An event of an unknown source is refused with the known names, and a payload that is no JSON object by its place.
#[test]
fn emit_refuses_what_it_cannot_keep() {
    let place = Place::fleet("", &[("one", "", json!([say("done")]))]);
    let file = place.write("event.json", "{}");
    let file = file.to_str().expect("UTF-8");
    place.run(["emit", "webhook", "--source", "gitlab", "--event", "push", file]).exits(2).complains("github");
    place.write("event.json", "{\"a\": ");
    place.run(["emit", "webhook", "--source", "github", "--event", "push", file]).exits(2).complains("event.json");
    place.run(["emit", "webhook", "--source", "github", "--event", "push", "/nowhere"]).exits(2).complains("/nowhere");
}
