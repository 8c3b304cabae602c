//! Results that the host has not journalled yet, kept for the case that it comes back and asks.

use std::collections::VecDeque;

use protocol::Outcome;

/// Most results that are kept; the oldest goes first.
const MOST: usize = 64;

/// A result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Result {
    /// The call's key.
    pub(super) key: String,
    /// How it ended.
    pub(super) outcome: Outcome,
    /// What is shown of its output.
    pub(super) payload: Vec<u8>,
}

/// The kept results, oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    results: VecDeque<Result>,
}

impl Kept {
    /// Keeps a result until it is forgotten or [`MOST`] newer ones came.
    pub(super) fn keep(&mut self, result: Result) {
        if self.results.len() == MOST {
            self.results.pop_front();
        }
        self.results.push_back(result);
    }

    /// The result of a call.
    pub(super) fn find(&self, key: &str) -> Option<&Result> {
        self.results.iter().find(|result| result.key == key)
    }

    /// Drops the result of a call.
    pub(super) fn forget(&mut self, key: &str) {
        self.results.retain(|result| result.key != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_until_forgotten_and_never_more_than_the_bound() {
        let mut kept = Kept::default();
        for number in 0..MOST + 3 {
            let (outcome, payload) = (Outcome::Nothing, vec![0; 10]);
            kept.keep(Result { key: format!("s/1/{number}"), outcome, payload });
        }
        assert!(kept.find("s/1/2").is_none(), "the oldest went");
        assert!(kept.find("s/1/3").is_some());
        kept.forget("s/1/3");
        kept.forget("s/1/3");
        assert!(kept.find("s/1/3").is_none());
        assert_eq!(kept.results.len(), MOST - 1);
    }
}
