//! A recorded session as a file for the script model, which makes the same calls again.
//!
//! It says what the model said, whoever that was, and of each call whether it failed. It does not say what the calls
//! returned: ids, times and the like are others the next time.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::model::{literal, literal_value};
use crate::session::journal::{Assistant, Event, Usage};

/// The session as turns of the script model. Calls keep their order and get ids of their own, because providers repeat
/// theirs; what looks like a reference is quoted.
pub(super) fn script(events: &[Event]) -> Value {
    let mut failed = BTreeMap::new();
    for event in events {
        if let Event::ToolFinished(e) = event {
            failed.insert(e.key.as_str(), e.is_error);
        }
    }
    let turns = events.iter().filter_map(|event| match event {
        Event::Assistant(e) => Some(turn(e, &failed)),
        _ => None,
    });
    json!({ "turns": turns.collect::<Vec<Value>>() })
}

fn turn(turn: &Assistant, failed: &BTreeMap<&str, bool>) -> Value {
    let mut calls = Vec::new();
    let mut expect = Map::new();
    for (call, n) in turn.calls.iter().zip(1..) {
        let id = format!("t{}c{n}", turn.turn);
        calls.push(json!({"id": id, "tool": call.name, "args": literal_value(&call.args)}));
        // A call that has no end was cut off, and may well end the next time.
        if let Some(is_error) = failed.get(call.key.as_str()) {
            expect.insert(id, json!({"is_error": is_error}));
        }
    }
    let mut members = Map::new();
    members.insert("text".to_owned(), literal(&turn.text).into());
    if !calls.is_empty() {
        members.insert("calls".to_owned(), calls.into());
    }
    if !expect.is_empty() {
        members.insert("expect".to_owned(), expect.into());
    }
    if turn.usage != Usage::default() {
        members.insert("usage".to_owned(), json!(turn.usage));
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::model::script::ScriptModel;
    use crate::model::{CallResult, Message, Model, TurnRequest};
    use crate::session::journal::{Call, ToolFinished};

    /// One turn: its text, and the tool, arguments and failure of each call; `None` is a call that never ended.
    type Told = (String, Vec<(String, Value, Option<bool>)>);

    fn events(turns: &[Told]) -> Vec<Event> {
        let mut events = Vec::new();
        for ((text, told), turn) in turns.iter().zip(1..) {
            let key = |n: usize| format!("s/{turn}/{n}");
            let call = |(n, (name, args, _)): (usize, &(String, Value, _))| Call {
                key: key(n),
                // Some servers give every call the same id, or none.
                provider_id: String::new(),
                name: name.clone(),
                args: args.clone(),
            };
            let calls = told.iter().enumerate().map(call).collect();
            let usage = Usage { input: 5, cached: 1, output: turn.into() };
            events.push(Event::Assistant(Assistant { turn, text: text.clone(), calls, usage, ..Assistant::default() }));
            for (n, (name, _, failed)) in told.iter().enumerate() {
                if let Some(is_error) = *failed {
                    let (key, name) = (key(n), name.clone());
                    events.push(Event::ToolFinished(ToolFinished { key, name, is_error, ..ToolFinished::default() }));
                }
            }
        }
        events
    }

    /// Plays a script whose calls fail as they did; returns what it said.
    fn play(script: &Value, turns: &[Told]) -> Vec<Told> {
        let model = ScriptModel::parse(&script.to_string()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (events, _seen) = unbounded_channel();
            let mut request = TurnRequest::default();
            let mut said = Vec::new();
            for (_, told) in turns {
                let turn = model.turn(&request, &events, &CancellationToken::new()).await.unwrap();
                let results = turn.calls.iter().zip(told).map(|(call, (_, _, failed))| CallResult {
                    provider_id: call.provider_id.clone(),
                    name: call.name.clone(),
                    is_error: failed.unwrap_or(true),
                    text: "other than then".to_owned(),
                    image: None,
                });
                let results = results.collect();
                let calls =
                    turn.calls.iter().zip(told).map(|(call, told)| (call.name.clone(), call.args.clone(), told.2));
                said.push((turn.text.clone(), calls.collect()));
                request.messages.extend([Message::Assistant(turn), Message::Results(results)]);
            }
            said
        })
    }

    #[test]
    fn a_recording_says_what_was_said_and_what_failed() {
        let call = |name: &str, args: Value, failed| (name.to_owned(), args, failed);
        let turns = [
            (
                "I look at ${task}.".to_owned(),
                vec![
                    call("bash", json!({"command": "echo ${HOME} $${x}"}), Some(true)),
                    call("nonsense", json!("not {JSON"), Some(false)),
                    call("ls", Value::Null, None),
                ],
            ),
            ("done".to_owned(), Vec::new()),
        ];
        let script = script(&events(&turns));
        assert_eq!(
            script,
            json!({"turns": [
                {
                    "text": "I look at $${task}.",
                    "calls": [
                        {"id": "t1c1", "tool": "bash", "args": {"command": "echo $${HOME} $$${x}"}},
                        {"id": "t1c2", "tool": "nonsense", "args": "not {JSON"},
                        {"id": "t1c3", "tool": "ls", "args": null}
                    ],
                    "expect": {"t1c1": {"is_error": true}, "t1c2": {"is_error": false}},
                    "usage": {"input": 5, "cached": 1, "output": 1}
                },
                {"text": "done", "usage": {"input": 5, "cached": 1, "output": 2}}
            ]})
        );
        assert_eq!(play(&script, &turns), turns);
    }

    fn any_args() -> impl Strategy<Value = Value> {
        let text = "[${}\"a. \\\\\n]{0,12}|.{0,12}";
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(3, 16, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((text, inner), 0..4).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// M-REC-1: whatever a model said and asked for, its recording says and asks for the same.
        #[test]
        fn every_session_can_be_played_again(
            turns in prop::collection::vec(
                ("[${}a. \n]{0,12}|.{0,12}", prop::collection::vec(("[a-z$ {}]{0,8}", any_args(), any::<Option<bool>>()), 1..4)),
                1..5,
            )
        ) {
            let script = script(&events(&turns));
            prop_assert_eq!(play(&script, &turns), turns);
        }
    }
}
