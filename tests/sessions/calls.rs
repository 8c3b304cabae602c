//! A model's calls: its mistakes go back to it, several at once run at once, and results come in order.

use serde_json::{Value, json};

use crate::harness::{Place, long_sleep};

/// Results of the session's calls: name, cause, text.
fn results(place: &Place, ran: &crate::harness::Ran) -> Vec<Value> {
    let session = ran.json_lines()[0]["session"].clone();
    place
        .bodies(session.as_str().expect("an id"), "tool_finished")
        .iter()
        .map(|body| {
            json!([
                body["key"].as_str().expect("a key").split_once('/').expect("parts").1,
                body["name"],
                body["cause"],
                body["text"]
            ])
        })
        .collect()
}

/// Unknown tools and broken arguments are errors that the model can mend; the session goes on.
#[test]
fn mistakes_go_back_to_the_model() {
    let place = Place::new();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bsah", "args": {"command": "true"}}], "expect": {"a": {"is_error": true}}},
        {"calls": [{"id": "b", "tool": "bash", "args": {"comand": "true"}}], "expect": {"b": {"is_error": true}}},
        {"calls": [{"id": "c", "tool": "bash", "args": ["true"]}], "expect": {"c": {"is_error": true}}},
        {"calls": [{"id": "d", "tool": "read", "args": {"path": 7}}], "expect": {"d": {"is_error": true}}},
        {"calls": [{"id": "e", "tool": "bash", "args": {"command": "echo mended", "timeout": "5"}}],
         "expect": {"e": {"is_error": false, "contains": "mended"}}},
        {"text": "I learn."}
    ]));
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    ran.exits(0);
    let line =
        |result: &Value| format!("{} {} {}: {}", result[0], result[1], result[2], result[3].as_str().expect("a text"));
    let shown = results(&place, &ran).iter().map(line).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(shown, @r#"
"1/0" "bsah" "not_found": there is no tool "bsah"; did you mean `bash`? There are `acquire_lock`, `bash`, `call_agent`, `check_call`, `edit`, `find`, `grep`, `ls`, `read`, `release_lock`, `return_value`, `set_status`, `wait_for_trigger`, `write`.
"2/0" "bash" "invalid": the arguments of `bash` do not fit:
- the arguments: Additional properties are not allowed ('comand' was unexpected) (rule `additionalProperties`) (did you mean "command"?); received {"comand":"true"}
"3/0" "bash" "invalid": the arguments of `bash` do not fit:
- the arguments: the value is not of type "object" (rule `type`); received ["true"]
"4/0" "read" "invalid": the arguments of `read` do not fit:
- /path: the value is not of type "string" (rule `type`); received 7
"5/0" "bash" null: mended
"#);
    let last = ran.json_lines().pop().expect("events");
    assert_eq!((&last["cause"], &last["text"]), (&json!("done"), &json!("I learn.")));
}

/// T-8: calls of a turn run at once (each waits for the other here), and the model gets the results in its order,
/// whichever ended first.
#[test]
fn calls_of_a_turn_run_at_once_and_answer_in_order() {
    let place = Place::new();
    let meet = |mine: &str, other: &str, then: &str| {
        format!(
            "mkfifo /tmp/{mine} 2>/dev/null; touch /tmp/{mine}-is-here; until [ -e /tmp/{other}-is-here ]; do sleep 0.05; done; {then}"
        )
    };
    place.script(&json!([
        {"calls": [
            {"id": "a", "tool": "bash", "args": {"command": meet("a", "b", "sleep 0.5; echo first")}},
            {"id": "b", "tool": "bash", "args": {"command": meet("b", "a", "echo second")}},
            {"id": "c", "tool": "ls", "args": {"path": "/app/static"}}
        ]},
        {"text": "${a.text}${b.text}"}
    ]));
    let ran = place.run(["start", "--agent", "worker", "--json"]);
    ran.exits(0);
    assert_eq!(ran.json_lines().pop().expect("events")["text"], "first\nsecond\n");
    let order: Vec<Value> = ran
        .json_lines()
        .iter()
        .filter(|event| event["event"] == "tool_finished")
        .map(|event| event["key"].as_str().expect("a key").rsplit_once('/').expect("parts").1.into())
        .collect();
    assert_eq!(order, ["2", "1", "0"], "they ended in another order");
}

/// bug 10: one stuck call holds up nothing else: lists, records, another session, and stopping it.
#[test]
fn a_stuck_call_holds_up_nothing() {
    let place = Place::new();
    let sleep = long_sleep();
    place.script(&json!([
        {"calls": [{"id": "a", "tool": "bash", "args": {"command": sleep, "timeout": 1000}}]}
    ]));
    let mut stuck = place.start(&[]);
    let id = stuck.id();
    stuck.event("tool_started");
    let begun = std::time::Instant::now();
    place.run(["ps"]).exits(0).prints(&id[id.len() - 8..]);
    assert_eq!(place.show(&id)["state"], "running");
    place.run(["logs", &id]).exits(0).prints("call       bash");
    // A second each, at three times its value.
    assert!(begun.elapsed() < std::time::Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(place.drive().exits(0).stdout, "next\n");
    place.run(["stop", &id]).exits(0);
    stuck.end().exits(125);

    // And after a call that was ended, short ones pass.
    let mut desk = place.desk();
    desk.call("bash", &json!({"command": "sleep 100", "timeout": 0.2})).fails("timeout");
    for n in 0..20 {
        assert_eq!(desk.bash(&format!("echo {n}")).ok(), format!("{n}\n"));
    }
}
