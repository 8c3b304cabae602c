//! Room in a conversation that has become longer than its model takes: old tool outputs are removed, oldest first, and
//! say where they can be read again.
//!
//! The journal keeps the originals. What was removed is journalled too, by the keys of the calls, so that whoever goes on
//! with the session shows the model the same conversation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::journal::{Event, Informed};
use crate::model::{CallResult, Message, ToolCallRequest};

/// Longest arguments that a marker repeats, in characters.
const ARGS: usize = 300;

/// The outputs of one session's calls, by the calls' keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// The session's id.
    session: String,
    /// Turns before the conversation's first: it began again after them.
    before: usize,
    /// Files of the sandbox that have the whole output of a call.
    kept: BTreeMap<String, String>,
    /// Calls whose outputs are gone from the conversation.
    removed: BTreeSet<String>,
}

/// What was removed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Keys of the calls.
    pub(crate) keys: Vec<String>,
    /// Bytes of what they had returned.
    pub(crate) bytes: usize,
}

impl Removed {
    /// The line of the journal that says so.
    pub(crate) fn event(&self) -> Event {
        let content = json!({"removed": self.keys, "bytes": self.bytes});
        Event::Informed(Informed { source: "context".to_owned(), content })
    }
}

impl Room {
    pub(crate) fn new(session: &str) -> Self {
        Self { session: session.to_owned(), ..Self::default() }
    }

    /// For a conversation that began again after this many turns.
    pub(crate) fn after(session: &str, before: u32) -> Self {
        Self { before: before as usize, ..Self::new(session) }
    }

    /// Remembers where a call's whole output is, if `details` of its result name a file.
    pub(crate) fn note(&mut self, key: String, details: &Value) {
        if let Some(path) = details["kept"].as_str() {
            self.kept.insert(key, path.to_owned());
        }
    }

    /// Removes the older half of what old outputs hold, or all of it; `None` when nothing is left that could go. The
    /// newest results stay: the model has not seen them yet.
    pub(crate) fn make(&mut self, messages: &mut [Message], all: bool) -> Option<Removed> {
        let mut candidates = Vec::new();
        for (key, call, result) in old_results(&self.session, self.before, messages) {
            if !self.removed.contains(&key) && size(result) > self.marker(&key, call, result).len() {
                candidates.push((key, size(result)));
            }
        }
        let total: usize = candidates.iter().map(|(_, size)| size).sum();
        let mut removed = Removed { keys: Vec::new(), bytes: 0 };
        for (key, size) in candidates {
            if !all && removed.bytes * 2 >= total && !removed.keys.is_empty() {
                break;
            }
            removed.bytes += size;
            removed.keys.push(key);
        }
        self.remove(messages, &removed.keys);
        Some(removed).filter(|removed| !removed.keys.is_empty())
    }

    /// Removes the outputs of these calls, as [`Self::make`] did when it named them.
    pub(crate) fn remove(&mut self, messages: &mut [Message], keys: &[String]) {
        let mut markers = BTreeMap::new();
        for (key, call, result) in old_results(&self.session, self.before, messages) {
            if keys.contains(&key) && !self.removed.contains(&key) {
                markers.insert(key.clone(), self.marker(&key, call, result));
            }
        }
        let session = self.session.clone();
        for (turn, message) in results_by_turn(self.before, messages) {
            for (index, result) in message.iter_mut().enumerate() {
                let key = key(&session, turn, index);
                if let Some(marker) = markers.remove(&key) {
                    result.text = marker;
                    result.image = None;
                    self.removed.insert(key);
                }
            }
        }
    }

    /// What stands in the place of an output.
    fn marker(&self, key: &str, call: Option<&ToolCallRequest>, result: &CallResult) -> String {
        let bytes = size(result);
        let args = call.map(|call| call.args.to_string()).filter(|args| args.chars().count() <= ARGS);
        let again = match (self.kept.get(key), result.name.as_str(), args) {
            (Some(path), _, _) => format!("all of it was kept in {path}: use read with offset"),
            (None, "write" | "edit", _) => "what it did is done: use read to see the file".to_owned(),
            (None, "call_agent" | "wait_for_trigger" | "return_value", _) => "what it did is done".to_owned(),
            (None, "bash", _) => "run the command again if you need it and if that changes nothing".to_owned(),
            (None, name, Some(args)) => format!("if you need it, ask again: {name} {args}"),
            (None, name, None) => format!("if you need it, ask {name} again with the same arguments"),
        };
        format!("[this output of {bytes} bytes was removed to make room; {again}]")
    }
}

fn key(session: &str, turn: usize, index: usize) -> String {
    format!("{session}/{turn}/{index}")
}

/// Bytes that a result takes in a request, about.
fn size(result: &CallResult) -> usize {
    result.text.len() + result.image.as_ref().map_or(0, |(_, bytes)| bytes.len())
}

/// The results of all turns but the newest, oldest first, with their keys and what was asked.
fn old_results<'a>(
    session: &str,
    before: usize,
    messages: &'a [Message],
) -> impl Iterator<Item = (String, Option<&'a ToolCallRequest>, &'a CallResult)> {
    let last = messages.iter().rposition(|message| matches!(message, Message::Results(_))).unwrap_or(0);
    let mut calls: &[ToolCallRequest] = &[];
    let mut found = Vec::new();
    let mut turn = before;
    for message in &messages[..last] {
        match message {
            Message::Assistant(assistant) => {
                turn += 1;
                calls = &assistant.calls;
            }
            Message::Results(results) => found.extend(
                results.iter().enumerate().map(|(index, result)| (key(session, turn, index), calls.get(index), result)),
            ),
        }
    }
    found.into_iter()
}

/// The results of each turn, by its number.
fn results_by_turn(before: usize, messages: &mut [Message]) -> impl Iterator<Item = (usize, &mut Vec<CallResult>)> {
    let mut turn = before;
    messages.iter_mut().filter_map(move |message| match message {
        Message::Assistant(_) => {
            turn += 1;
            None
        }
        Message::Results(results) => Some((turn, results)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::AssistantTurn;

    /// A conversation whose turns returned these texts.
    fn conversation(turns: &[Vec<String>]) -> Vec<Message> {
        let mut messages = Vec::new();
        for texts in turns {
            let call = |index: usize| ToolCallRequest {
                provider_id: format!("id{index}"),
                name: ["read", "bash"][index % 2].to_owned(),
                args: json!({"path": "/tmp/x"}),
            };
            let calls = (0..texts.len()).map(call).collect();
            messages.push(Message::Assistant(AssistantTurn { calls, ..AssistantTurn::default() }));
            let result = |(index, text): (usize, &String)| CallResult {
                provider_id: format!("id{index}"),
                name: ["read", "bash"][index % 2].to_owned(),
                is_error: false,
                text: text.clone(),
                image: None,
            };
            messages.push(Message::Results(texts.iter().enumerate().map(result).collect()));
        }
        messages
    }

    fn texts(messages: &[Message]) -> Vec<Vec<String>> {
        let of = |message: &Message| match message {
            Message::Results(results) => Some(results.iter().map(|result| result.text.clone()).collect()),
            Message::Assistant(_) => None,
        };
        messages.iter().filter_map(of).collect()
    }

    fn long(letter: &str) -> String {
        letter.repeat(1000)
    }

    /// M-ROOM-1: oldest first, half at a time, and each says where it can be read again.
    #[test]
    fn old_outputs_go_first_and_say_where_they_are() {
        let mut messages =
            conversation(&[vec![long("a"), long("b")], vec![long("c"), "short".into()], vec![long("d")]]);
        let mut room = Room::new("s");
        room.note("s/1/1".to_owned(), &json!({"kept": "/tmp/.runner/out/1.log"}));
        room.note("s/2/0".to_owned(), &json!({"total_lines": 3}));
        let removed = room.make(&mut messages, false).unwrap();
        assert_eq!(removed, Removed { keys: vec!["s/1/0".to_owned(), "s/1/1".to_owned()], bytes: 2000 });
        insta::assert_snapshot!(texts(&messages)[0].join("\n"), @r#"
        [this output of 1000 bytes was removed to make room; if you need it, ask again: read {"path":"/tmp/x"}]
        [this output of 1000 bytes was removed to make room; all of it was kept in /tmp/.runner/out/1.log: use read with offset]
        "#);
        assert_eq!(texts(&messages)[1..], [vec![long("c"), "short".to_owned()], vec![long("d")]]);
        assert_eq!(room.make(&mut messages, false).unwrap().keys, ["s/2/0"]);
        assert_eq!(room.make(&mut messages, true), None, "the newest and what is short stays");
        assert_eq!(texts(&messages)[1..], [vec![texts(&messages)[1][0].clone(), "short".to_owned()], vec![long("d")]]);
    }

    #[test]
    fn an_image_goes_with_its_text() {
        let mut messages = conversation(&[vec!["a picture".to_owned()], vec!["x".to_owned()]]);
        let Message::Results(results) = &mut messages[1] else { panic!("results come second") };
        results[0].image = Some(("image/png".to_owned(), vec![0; 5000]));
        assert_eq!(Room::new("s").make(&mut messages, false).unwrap().bytes, 5009);
        let Message::Results(results) = &messages[1] else { panic!("results come second") };
        assert_eq!(results[0].image, None);
    }

    #[test]
    fn an_empty_conversation_has_nothing_to_remove() {
        assert_eq!(Room::new("s").make(&mut [], true), None);
        assert_eq!(Room::new("s").make(&mut conversation(&[vec![long("a")]]), true), None);
    }

    proptest! {
        /// M-ROOM-2: it ends, the newest results stay, nothing grows, and the keys in the journal lead to the same
        /// conversation.
        #[test]
        fn rounds_end_and_can_be_done_again(sizes in prop::collection::vec(prop::collection::vec(0usize..4000, 0..4), 0..12)) {
            let turns: Vec<Vec<String>> =
                sizes.iter().map(|turn| turn.iter().map(|size| "x".repeat(*size)).collect()).collect();
            let (original, mut messages) = (conversation(&turns), conversation(&turns));
            let mut room = Room::new("s");
            let mut keys = Vec::new();
            let mut rounds = 0;
            while let Some(removed) = room.make(&mut messages, false) {
                keys.extend(removed.keys);
                rounds += 1;
            }
            prop_assert!(rounds <= turns.iter().map(Vec::len).sum::<usize>());
            let (before, after) = (texts(&original), texts(&messages));
            prop_assert_eq!(after.last(), before.last());
            for (before, after) in before.concat().iter().zip(after.concat()) {
                prop_assert!(after.len() <= before.len());
            }
            let mut again = original.clone();
            Room::new("s").remove(&mut again, &keys);
            prop_assert_eq!(&again, &messages);
            let mut at_once = original;
            prop_assert_eq!(Room::new("s").make(&mut at_once, true).map(|removed| removed.keys).unwrap_or_default(), keys);
            prop_assert_eq!(at_once, messages);
        }
    }
}
