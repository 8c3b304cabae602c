//! A conversation as the wire wants it: each turn with its calls' ids and their results.
//!
//! Providers repeat ids (within a turn, or count from the start in each), leave them out, or have ids that another
//! provider does not take. A result belongs to its call by position; ids on the wire are made so that they are unique.

use std::collections::HashSet;

use crate::model::{AssistantTurn, CallResult, Message};

/// One turn with what came of it.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) turn: &'a AssistantTurn,
    /// An id for each call.
    pub(super) ids: Vec<String>,
    /// A result for each call; none for a turn that has none yet.
    pub(super) results: Vec<Answered<'a>>,
}

/// What a call is answered with.
#[derive(Debug)]
pub(super) enum Answered<'a> {
    /// Its result.
    With(&'a CallResult),
    /// There is none, though others of its turn have one.
    Lost,
}

impl Answered<'_> {
    /// What the model is told.
    pub(super) fn text(&self) -> &str {
        match self {
            // Some providers refuse text of nothing but space.
            Self::With(result) if result.text.trim().is_empty() => "(no output)",
            Self::With(result) => &result.text,
            Self::Lost => "the result of this call is lost",
        }
    }

    /// As [`Answered::text`], for wire formats that cannot say that it is an error.
    pub(super) fn plain(&self) -> String {
        if self.is_error() { format!("error: {}", self.text()) } else { self.text().to_owned() }
    }

    pub(super) fn is_error(&self) -> bool {
        match self {
            Self::With(result) => result.is_error,
            Self::Lost => true,
        }
    }

    /// An image: its media type and bytes.
    pub(super) fn image(&self) -> Option<&(String, Vec<u8>)> {
        match self {
            Self::With(result) => result.image.as_ref(),
            Self::Lost => None,
        }
    }
}

/// The turns of a conversation. `fits` says which ids the provider takes.
pub(super) fn of(messages: &[Message], fits: impl Fn(&str) -> bool) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut used = HashSet::new();
    let mut count = 0_u64;
    for message in messages {
        match message {
            Message::Assistant(turn) => {
                let mut ids = Vec::with_capacity(turn.calls.len());
                for call in &turn.calls {
                    count += 1;
                    let mut id = call.provider_id.clone();
                    // Nine letters and digits, which is all that Mistral takes. By place, so that the same conversation
                    // is the same bytes in each request and the provider's cache knows it.
                    let mut number = count;
                    while !fits(&id) || used.contains(&id) {
                        id = format!("call{number:05}");
                        number += 10_000;
                    }
                    used.insert(id.clone());
                    ids.push(id);
                }
                steps.push(Step { turn, ids, results: Vec::new() });
            }
            Message::Results(results) => {
                if let Some(step) = steps.last_mut() {
                    let result = |at: usize| results.get(at).map_or(Answered::Lost, Answered::With);
                    step.results = (0..step.ids.len()).map(result).collect();
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::ToolCallRequest;

    fn turn(ids: &[&str]) -> Message {
        let call =
            |id: &&str| ToolCallRequest { provider_id: (*id).to_owned(), name: "ls".to_owned(), args: json!({}) };
        Message::Assistant(AssistantTurn { calls: ids.iter().map(call).collect(), ..AssistantTurn::default() })
    }

    fn results(texts: &[&str]) -> Message {
        let result = |text: &&str| CallResult {
            provider_id: "same".to_owned(),
            name: "ls".to_owned(),
            is_error: false,
            text: (*text).to_owned(),
            image: None,
        };
        Message::Results(texts.iter().map(result).collect())
    }

    #[test]
    fn repeated_ids_become_unique_and_results_stay_with_their_calls() {
        let messages =
            [turn(&["a", "a"]), results(&["1", "2"]), turn(&["a", ""]), results(&["3", "4"]), turn(&["call00002"])];
        let steps = of(&messages, |id| !id.is_empty());
        let ids: Vec<&str> = steps.iter().flat_map(|step| &step.ids).map(String::as_str).collect();
        assert_eq!(ids, ["a", "call00002", "call00003", "call00004", "call00005"]);
        let texts: Vec<&str> = steps.iter().flat_map(|step| &step.results).map(Answered::text).collect();
        assert_eq!(texts, ["1", "2", "3", "4"]);
    }

    #[test]
    fn an_id_that_does_not_fit_is_replaced_the_same_way_each_time() {
        let messages = [turn(&["toolu_with/slash", "fine"])];
        let fits = |id: &str| !id.contains('/');
        assert_eq!(of(&messages, fits)[0].ids, ["call00001", "fine"]);
        assert_eq!(of(&messages, fits)[0].ids, of(&messages, fits)[0].ids);
    }

    #[test]
    fn a_missing_result_is_said_to_be_lost() {
        let messages = [turn(&["a", "b"]), results(&["1"])];
        let steps = of(&messages, |_| true);
        assert_eq!(steps[0].results[1].text(), "the result of this call is lost");
        assert!(steps[0].results[1].is_error());
    }
}
