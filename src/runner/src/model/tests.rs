//! Conversations with the script model.

use std::path::PathBuf;

use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use super::retry::Retrying;
use super::script::ScriptModel;
use super::*;
use crate::project::{ModelSettings, ModelSource};

/// Runs `future` with time that passes only when everything waits.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

pub(super) fn request() -> TurnRequest {
    TurnRequest {
        parts: PromptParts {
            task: Some("say \"hi\"".to_owned()),
            trigger: json!({"type": "manual", "who": ["me"]}),
            params: json!({"repo": {"name": "x/y"}}),
        },
        ..TurnRequest::default()
    }
}

/// Talks with the script `turns`; each call is answered by `answer(tool, args)` as (is_error, text). Returns each
/// turn's text and calls, and how it ended.
fn converse(turns: &Value, answer: impl Fn(&str, &Value) -> (bool, String)) -> (Vec<Value>, Result<(), String>) {
    let model = match ScriptModel::parse(&json!({ "turns": turns }).to_string()) {
        Ok(model) => Retrying::with_jitter(model, Box::new(|most| most)),
        Err(why) => return (Vec::new(), Err(why)),
    };
    run(async {
        let (events, mut seen) = unbounded_channel();
        let cancel = CancellationToken::new();
        let mut request = request();
        let mut said = Vec::new();
        loop {
            let turn = match model.turn(&request, &events, &cancel).await {
                Ok(turn) => turn,
                Err(error) => return (said, Err(format!("{:?}: {error}", error.kind))),
            };
            while let Ok(event) = seen.try_recv() {
                if let ModelEvent::Retry { error, wait } = event {
                    said.push(json!(format!("{error}; again in {wait:?}")));
                }
            }
            let calls: Vec<Value> =
                turn.calls.iter().map(|call| json!([call.provider_id, call.name, call.args])).collect();
            said.push(json!([turn.text, calls]));
            if turn.calls.is_empty() {
                return (said, Ok(()));
            }
            let results = turn
                .calls
                .iter()
                .map(|call| {
                    let (is_error, text) = answer(&call.name, &call.args);
                    CallResult {
                        provider_id: call.provider_id.clone(),
                        name: call.name.clone(),
                        is_error,
                        text,
                        image: None,
                    }
                })
                .collect();
            request.messages.push(Message::Assistant(turn));
            request.messages.push(Message::Results(results));
        }
    })
}

fn echo(tool: &str, args: &Value) -> (bool, String) {
    (tool == "fail", args["command"].as_str().unwrap_or("nothing").to_owned())
}

/// How a script of these turns fails.
fn fault(turns: &Value) -> String {
    converse(turns, echo).1.unwrap_err()
}

#[test]
fn values_of_the_prompt_and_of_results_are_put_in() {
    let turns = json!([
        {"text": "Doing ${task}", "calls": [
            {"id": "a", "tool": "bash", "args": {"command": "{\"n\": [1, {\"k\": \"v\"}]}", "list": ["${trigger.who[0]}", 3]}},
            {"tool": "bash", "args": {"command": "${params.repo.name} $${HOME}"}}
        ]},
        {"text": "", "calls": [{"id": "b", "tool": "bash", "args": {"command": "${a.n[1].k} ${a.is_error} ${turn1-2}"}}]},
        {"text": "done: ${b.text} of ${trigger}"}
    ]);
    let (said, end) = converse(&turns, echo);
    assert_eq!(end, Ok(()));
    assert_eq!(
        said,
        [
            json!(["Doing say \"hi\"", [
                ["a", "bash", {"command": "{\"n\": [1, {\"k\": \"v\"}]}", "list": ["me", 3]}],
                ["turn1-2", "bash", {"command": "x/y ${HOME}"}]
            ]]),
            json!(["", [["b", "bash", {"command": "v false x/y ${HOME}"}]]]),
            json!(["done: v false x/y ${HOME} of {\"type\":\"manual\",\"who\":[\"me\"]}", []]),
        ]
    );
}

#[test]
fn a_script_that_runs_out_is_done() {
    let (said, end) = converse(&json!([{"calls": [{"tool": "bash"}]}]), echo);
    assert_eq!((said, end), (vec![json!(["", [["turn1-1", "bash", {}]]]), json!(["", []])], Ok(())));
    assert_eq!(converse(&json!([]), echo), (vec![json!(["", []])], Ok(())));
}

#[test]
fn missing_values_name_the_turn_and_the_reason() {
    let after = |text: &str| {
        fault(&json!([{"calls": [{"id": "a", "tool": "bash", "args": {"command": "plain"}}]}, {"text": text}]))
    };
    insta::assert_snapshot!(after("${a.key}"), @"Script: turn 2 of the script: `${a.key}` has no value: the result is not JSON");
    insta::assert_snapshot!(after("${b.text}"), @"Script: turn 2 of the script: `${b.text}` has no value: no earlier call has this id (write `$${` for a literal `${`)");
    insta::assert_snapshot!(after("${params.repo.nam}"), @"Script: turn 2 of the script: `${params.repo.nam}` has no value: nothing is there in the agent's params");
    insta::assert_snapshot!(after("${task.x}"), @"Script: turn 2 of the script: `${task.x}` has no value: the task is text");
}

#[test]
fn expectations_are_checked_when_the_results_are_there() {
    let expect = |tool: &str, expect: Value| {
        let turns =
            json!([{"calls": [{"id": "a", "tool": tool, "args": {"command": "one two"}}], "expect": {"a": expect}}]);
        converse(&turns, echo).1
    };
    assert_eq!(expect("bash", json!({"is_error": false, "contains": "one", "matches": "t.o$"})), Ok(()));
    assert_eq!(expect("fail", json!({"is_error": true})), Ok(()));
    insta::assert_snapshot!(expect("fail", json!({"is_error": false})).unwrap_err(), @r#"Script: turn 1 of the script: expected "a" to succeed, but its error is "one two""#);
    insta::assert_snapshot!(expect("bash", json!({"is_error": true})).unwrap_err(), @r#"Script: turn 1 of the script: expected "a" to fail, but its result is "one two""#);
    insta::assert_snapshot!(expect("bash", json!({"contains": "${task}"})).unwrap_err(), @r#"Script: turn 1 of the script: expected "a" to contain "say \"hi\"", but its result is "one two""#);
    insta::assert_snapshot!(expect("bash", json!({"matches": "^two"})).unwrap_err(), @r#"Script: turn 1 of the script: expected "a" to match "^two", but its result is "one two""#);
}

#[test]
fn turns_repeat_until_their_condition_holds() {
    let count = std::cell::Cell::new(0);
    let answer = |_: &str, _: &Value| {
        count.set(count.get() + 1);
        (false, json!({"status": if count.get() < 3 { "running" } else { "completed" }, "n": count.get()}).to_string())
    };
    let turns = |max: u64| {
        json!([
            {"calls": [{"id": "a", "tool": "check"}],
             "repeat": {"until": {"a.status": "completed"}, "max": max, "everyMs": 100}},
            {"text": "after ${a.n}"}
        ])
    };
    let (said, end) = converse(&turns(50), answer);
    let asked = json!(["", [["a", "check", {}]]]);
    assert_eq!((said, end), (vec![asked.clone(), asked.clone(), asked.clone(), json!(["after 3", []])], Ok(())));
    count.set(-10);
    let (said, end) = converse(&turns(2), answer);
    assert_eq!(said, [asked.clone(), asked]);
    insta::assert_snapshot!(end.unwrap_err(), @"Script: turn 1 of the script: `until` does not hold after 2 times");
}

#[test]
fn passing_failures_are_retried_and_others_end() {
    let (said, end) = converse(&json!([{"fail": {"kind": "rate_limit", "times": 2}}, {"text": "there"}]), echo);
    assert_eq!(end, Ok(()));
    assert_eq!(
        said,
        [
            json!("turn 1: too many requests; again in 500ms"),
            json!("turn 1: too many requests; again in 1s"),
            json!(["there", []])
        ]
    );
    insta::assert_snapshot!(fault(&json!([{"fail": {"kind": "overloaded", "times": 9}}])), @"Overloaded: turn 1: the provider is overloaded (asked 6 times)");
    insta::assert_snapshot!(fault(&json!([{"fail": {"kind": "auth"}}, {"text": "x"}])), @"Auth: turn 1: the provider does not accept the key");
}

#[test]
fn a_cancelled_wait_ends_at_once() {
    let model = Retrying::new(ScriptModel::parse(r#"{"turns": [{"fail": {"kind": "network", "times": 3}}]}"#).unwrap());
    let (events, _seen) = unbounded_channel();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = run(async { model.turn(&request(), &events, &cancel).await }).unwrap_err();
    assert_eq!(error, ModelError::cancelled());
}

#[test]
fn broken_scripts_are_refused_with_their_place() {
    let open = |text: &str| ScriptModel::parse(text).unwrap_err();
    insta::assert_snapshot!(open("{\"turns\": [\n {\"txt\": 1}]}"), @"unknown field `txt`, expected one of `text`, `calls`, `expect`, `repeat`, `fail`, `usage` at line 2 column 7");
    insta::assert_snapshot!(open("{\"turns\": ["), @"EOF while parsing a list at line 1 column 11");
    insta::assert_snapshot!(fault(&json!([{"fail": {"kind": "sunspots"}}])), @"unknown variant `sunspots`, expected one of `rate_limit`, `overloaded`, `timeout`, `network`, `auth`, `invalid`, `context_length`, `refused` at line 1 column 36");
    insta::assert_snapshot!(fault(&json!([{}, {"text": "${"}])), @r#"turn 2: `${` without `}` in "${" (write `$${` for a literal `${`)"#);
    insta::assert_snapshot!(fault(&json!([{"calls": [{"id": "task", "tool": "x"}]}])), @r#"turn 1: "task" cannot be a call's id (letters, digits, `_`, `-`; not task, trigger, params)"#);
    insta::assert_snapshot!(fault(&json!([{"calls": [{"id": "a", "tool": "x"}, {"id": "a", "tool": "x"}]}])), @r#"turn 1: two calls have the id "a""#);
    insta::assert_snapshot!(fault(&json!([{"expect": {"b": {}}}])), @r#"turn 1: `expect` names "b", which is no call of this turn"#);
    insta::assert_snapshot!(fault(&json!([{"calls": [{"id": "a", "tool": "x"}], "expect": {"a": {"matches": "("}}}])), @r#"turn 1: `matches` of "a": unclosed group"#);
    insta::assert_snapshot!(fault(&json!([{"calls": [{"id": "a", "tool": "x"}], "repeat": {"until": {}}}])), @"turn 1: `repeat` needs `until` with at least one condition, and `max` of at least 1");
    insta::assert_snapshot!(fault(&json!([{"fail": {"kind": "auth"}, "text": "x"}])), @"turn 1: `fail` stands alone: a failed turn has no text and no calls");
}

/// A second process goes on where the first stopped, from the conversation alone.
#[test]
fn the_place_in_the_script_comes_from_the_conversation() {
    let text = json!({"turns": [{"calls": [{"id": "a", "tool": "bash"}]}, {"text": "second ${a.text}"}]}).to_string();
    let (events, _seen) = unbounded_channel();
    let cancel = CancellationToken::new();
    run(async {
        let mut request = request();
        let first = ScriptModel::parse(&text).unwrap().turn(&request, &events, &cancel).await.unwrap();
        request.messages.push(Message::Assistant(first));
        let result = CallResult {
            provider_id: "a".to_owned(),
            name: "bash".to_owned(),
            is_error: false,
            text: "kept".to_owned(),
            image: None,
        };
        request.messages.push(Message::Results(vec![result]));
        let second = ScriptModel::parse(&text).unwrap().turn(&request, &events, &cancel).await.unwrap();
        assert_eq!(second.text, "second kept");
    });
}

#[test]
fn a_missing_script_is_named() {
    let settings = ModelSettings {
        name: "main".to_owned(),
        source: ModelSource::Script { file: PathBuf::from("/nonexistent/turns.json") },
    };
    let error = open(&[settings]).err().unwrap();
    assert_eq!(error.to_string(), "/nonexistent/turns.json: No such file or directory (os error 2)");
}

/// `runner show --script` quotes what a session said; the script says it again.
#[test]
fn quoted_turns_are_said_again() {
    let args = json!({"command": "echo ${HOME} $${x}", "n": [1, "${task}"]});
    let turns =
        json!([{"text": literal("cost: ${5}"), "calls": [{"id": "a", "tool": "bash", "args": literal_value(&args)}]}]);
    let (said, _) = converse(&turns, echo);
    assert_eq!(said[0], json!(["cost: ${5}", [["a", "bash", args]]]));
}
