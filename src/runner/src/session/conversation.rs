//! A session's conversation, told again from its journal: for whoever goes on with it.
//!
//! Nothing is asked and nothing is decided here. The same journal gives the same conversation, byte for byte, so the
//! provider accepts what it said, and its cache knows it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::journal::{Assistant, Call, Event, ToolFinished, Usage};
use super::room::Room;
use crate::model::{self, AssistantTurn, CallResult, Message, ToolCallRequest};

/// What a model has to be shown after the prompt, and where the session stands.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Turns and results. The last is a turn when its calls have not all been answered, or when it asked for none.
    pub messages: Vec<Message>,
    /// The calls of the last turn, when they have not all been answered.
    pub open: Vec<OpenCall>,
    /// How many turns there were.
    pub turns: u32,
    /// What they cost.
    pub usage: Usage,
    /// What the model said last.
    pub said: String,
    /// The inbox's position when the model was asked for the last turn.
    pub since: i64,
    /// What can go when the conversation becomes too long.
    pub(crate) room: Room,
}

/// A call of a turn that is not over.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// What was asked.
    pub call: Call,
    /// Somebody began it.
    pub begun: bool,
    /// Its result, if it has one.
    pub result: Option<CallResult>,
}

/// The source of the line that says that a session began again in a new sandbox.
pub(crate) const RESTARTED: &str = "sandbox_lost";

/// Tells the conversation of a session from its events.
pub fn of(session: &str, events: &[Event]) -> Conversation {
    let mut told = Conversation { room: Room::new(session), ..Conversation::default() };
    for event in events {
        match event {
            Event::Assistant(assistant) => {
                told.close();
                told.begin(assistant);
            }
            Event::ToolStarted(started) => {
                if let Some(open) = told.open.iter_mut().find(|open| open.call.key == started.key) {
                    open.begun = true;
                }
            }
            Event::ToolFinished(finished) => {
                told.room.note(finished.key.clone(), &finished.details);
                told.answer(finished);
            }
            Event::Informed(informed) if informed.source == "context" => {
                let keys = informed.content["removed"].as_array().into_iter().flatten();
                let keys: Vec<String> = keys.filter_map(|key| key.as_str().map(str::to_owned)).collect();
                told.room.remove(&mut told.messages, &keys);
            }
            // What the model knew was of a sandbox that is gone.
            Event::Informed(informed) if informed.source == RESTARTED => {
                told.messages.clear();
                told.open.clear();
                told.room = Room::after(session, told.turns);
            }
            _ => {}
        }
    }
    told
}

impl Conversation {
    fn begin(&mut self, assistant: &Assistant) {
        self.turns = assistant.turn;
        self.since = assistant.since;
        if !assistant.text.is_empty() {
            self.said.clone_from(&assistant.text);
        }
        self.usage.input += assistant.usage.input;
        self.usage.cached += assistant.usage.cached;
        self.usage.output += assistant.usage.output;
        let open = |call: &Call| OpenCall { call: call.clone(), begun: false, result: None };
        self.open = assistant.calls.iter().map(open).collect();
        self.messages.push(Message::Assistant(turn(assistant)));
    }

    fn answer(&mut self, finished: &ToolFinished) {
        let Some(open) = self.open.iter_mut().find(|open| open.call.key == finished.key) else { return };
        let image = finished.image.as_ref().and_then(|image| {
            // What we wrote ourselves; an image that is damaged all the same is one that nobody can show.
            STANDARD.decode(&image.base64).ok().map(|bytes| (image.media_type.clone(), bytes))
        });
        open.result = Some(CallResult {
            provider_id: open.call.provider_id.clone(),
            name: open.call.name.clone(),
            is_error: finished.is_error,
            text: finished.text.clone(),
            image,
        });
        if self.open.iter().all(|open| open.result.is_some()) {
            self.close();
        }
    }

    /// Ends the turn that is under way.
    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let results = self.open.drain(..).map(|open| {
            let OpenCall { call, result, .. } = open;
            // The model went on, so it was told something; the line that says what is lost.
            result.unwrap_or_else(|| CallResult {
                provider_id: call.provider_id,
                name: call.name,
                is_error: true,
                text: "the result of this call is lost; its effect is unknown".to_owned(),
                image: None,
            })
        });
        self.messages.push(Message::Results(results.collect()));
    }
}

fn turn(assistant: &Assistant) -> AssistantTurn {
    let call = |call: &Call| ToolCallRequest {
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        args: call.args.clone(),
    };
    let Usage { input, cached, output } = assistant.usage;
    AssistantTurn {
        text: assistant.text.clone(),
        calls: assistant.calls.iter().map(call).collect(),
        model: assistant.model.clone(),
        raw: assistant.raw.clone(),
        usage: model::Usage { input, cached, output },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::session::journal::{Image, Informed, Status, ToolStarted};

    fn assistant(turn: u32, calls: usize) -> Event {
        let call = |index| Call {
            key: format!("s/{turn}/{index}"),
            // Providers repeat ids.
            provider_id: "same".to_owned(),
            name: "read".to_owned(),
            args: json!({"path": format!("/tmp/{index}")}),
        };
        Event::Assistant(Assistant {
            turn,
            text: format!("turn {turn}"),
            calls: (0..calls).map(call).collect(),
            model: "anthropic/claude".to_owned(),
            raw: json!({"message": [{"type": "thinking", "signature": turn}]}),
            usage: Usage { input: 10, cached: 4, output: 2 },
            since: 3,
        })
    }

    fn finished(turn: u32, index: usize) -> Event {
        Event::ToolFinished(ToolFinished {
            key: format!("s/{turn}/{index}"),
            name: "read".to_owned(),
            text: format!("result {turn}/{index}"),
            ..ToolFinished::default()
        })
    }

    fn texts(conversation: &Conversation) -> Vec<String> {
        let of = |message: &Message| match message {
            Message::Assistant(turn) => turn.text.clone(),
            Message::Results(all) => all.iter().map(|r| r.text.as_str()).collect::<Vec<_>>().join(", "),
        };
        conversation.messages.iter().map(of).collect()
    }

    #[test]
    fn results_come_in_the_order_asked_whatever_the_order_they_came_in() {
        let events = [
            assistant(1, 2),
            Event::Status(Status { text: "reading".to_owned() }),
            finished(1, 1),
            finished(1, 0),
            assistant(2, 0),
        ];
        let told = of("s", &events);
        assert_eq!(texts(&told), ["turn 1", "result 1/0, result 1/1", "turn 2"]);
        assert_eq!((told.turns, told.usage, told.open.len()), (2, Usage { input: 20, cached: 8, output: 4 }, 0));
        let Message::Assistant(first) = &told.messages[0] else { panic!("a turn comes first") };
        assert_eq!(first.raw, json!({"message": [{"type": "thinking", "signature": 1}]}));
        assert_eq!(first.model, "anthropic/claude");
    }

    /// A runner that died in the middle of a turn.
    #[test]
    fn a_turn_that_is_not_over_says_what_is_missing() {
        let told = of("s", &[assistant(1, 3), finished(1, 1)]);
        assert_eq!(texts(&told), ["turn 1"]);
        let have: Vec<bool> = told.open.iter().map(|open| open.result.is_some()).collect();
        assert_eq!(have, [false, true, false]);
        assert_eq!(told.open[2].call.key, "s/1/2");
    }

    /// What was begun may have had its effect; what was not has none.
    #[test]
    fn calls_that_were_begun_are_told_apart() {
        let begun = Event::ToolStarted(ToolStarted { key: "s/1/1".to_owned(), ..ToolStarted::default() });
        let told = of("s", &[assistant(1, 3), begun]);
        assert_eq!(told.open.iter().map(|open| open.begun).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!((told.since, told.said.as_str()), (3, "turn 1"));
    }

    /// `onSandboxLost = "restart"`: the conversation is a new one, its turns go on, and so do the keys of what is removed.
    #[test]
    fn a_session_that_begins_again_knows_nothing_of_before() {
        let restarted = Event::Informed(Informed { source: RESTARTED.to_owned(), content: json!({}) });
        let content = json!({"removed": ["s/3/0"], "bytes": 10});
        let room = Event::Informed(Informed { source: "context".to_owned(), content });
        let before = [assistant(1, 1), finished(1, 0), assistant(2, 1), restarted];
        let after = [assistant(3, 1), finished(3, 0), assistant(4, 1), finished(4, 0), room];
        let told = of("s", &before);
        assert_eq!((told.messages.len(), told.open.len(), told.turns), (0, 0, 2));
        let told = of("s", &[before.as_slice(), after.as_slice()].concat());
        let texts = texts(&told);
        assert_eq!((texts.len(), texts[0].as_str(), told.turns, told.usage.input), (4, "turn 3", 4, 40));
        assert!(texts[1].contains("was removed to make room"), "{texts:?}");
        assert_eq!(texts[3], "result 4/0");
    }

    #[test]
    fn a_lost_line_is_an_error_and_no_gap() {
        let told = of("s", &[assistant(1, 2), finished(1, 0), assistant(2, 0)]);
        let Message::Results(results) = &told.messages[1] else { panic!("results follow") };
        assert_eq!((results.len(), results[1].is_error), (2, true));
    }

    #[test]
    fn images_come_back_as_bytes() {
        let image = Image { media_type: "image/png".to_owned(), base64: STANDARD.encode(b"crab") };
        let Event::ToolFinished(result) = finished(1, 0) else { unreachable!("it is one") };
        let result = Event::ToolFinished(ToolFinished { image: Some(image), ..result });
        let told = of("s", &[assistant(1, 1), result]);
        let Message::Results(results) = &told.messages[1] else { panic!("results follow") };
        assert_eq!(results[0].image, Some(("image/png".to_owned(), b"crab".to_vec())));
    }

    /// What was removed to make room is removed again.
    #[test]
    fn room_that_was_made_is_made_again() {
        let content = json!({"removed": ["s/1/0"], "bytes": 10});
        let made = Event::Informed(Informed { source: "context".to_owned(), content });
        let events = [assistant(1, 1), finished(1, 0), assistant(2, 1), finished(2, 0), made];
        let told = texts(&of("s", &events));
        assert!(told[1].contains("was removed to make room"), "{told:?}");
        assert_eq!(told[3], "result 2/0");
    }

    proptest! {
        /// Wherever a journal is cut, what it tells is a beginning of what the whole one tells.
        #[test]
        fn a_shorter_journal_tells_a_beginning(calls in prop::collection::vec(0_usize..4, 1..6), cut in 0_usize..40) {
            let mut events = Vec::new();
            for (turn, count) in (1..).zip(&calls) {
                events.push(assistant(turn, *count));
                events.extend((0..*count).rev().map(|index| finished(turn, index)));
            }
            let whole = of("s", &events);
            prop_assert!(whole.open.is_empty());
            let part = of("s", &events[..cut.min(events.len())]);
            prop_assert!(whole.messages.starts_with(&part.messages));
        }
    }
}
