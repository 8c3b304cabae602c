//! Runners at the same time do not disturb each other.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Place, long_sleep, processes, until};

/// Two starts at once: one is stopped, a third recovers what is lost, and the other works on as if it were alone.
#[test]
fn two_starts_at_once() {
    let place = Place::new();
    place.agent("worker", "scale = 2\n");
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {
            "command": "echo begun > /tmp/mine; until [ -e /tmp/go ]; do sleep 0.05; done; cat /tmp/mine", "timeout": 1000
        }}, {"id": "b", "tool": "bash", "args": {"command": format!("{sleep} & sleep 2; touch /tmp/go"), "timeout": 1000}}],
         "expect": {"a": {"contains": "begun"}}},
        {"text": "${a.text}"}
    ]));
    let (mut one, mut two) = (place.start(&[]), place.start(&[]));
    let (first, second) = (one.id(), two.id());
    assert_ne!(one.container(), two.container());
    until("both work", || processes(&sleep).len() == 2);
    one.signal(Signal::SIGINT);
    one.end().exits(130);
    let third = place.drive();
    assert_eq!((third.exits(0).stdout.as_str(), third.stderr.as_str()), ("next\n", ""));
    let ran = two.end();
    assert_eq!(ran.exits(0).json_lines().pop().expect("events")["text"], "begun\n");
    assert_eq!(place.show(&first)["cause"], "interrupted");
    assert_eq!(place.show(&second)["cause"], "done");
    assert_eq!(place.owners(), 0);
}

/// Two first starts at once make one state directory, one token and one store.
#[test]
fn two_first_starts_at_once() {
    let place = Place::new();
    let sessions: Vec<_> = (0..3).map(|_| place.start(&[])).collect();
    for session in sessions {
        session.end().exits(0);
    }
    let listed = place.run(["ps", "--all", "--json"]).exits(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "{listed}");
}
