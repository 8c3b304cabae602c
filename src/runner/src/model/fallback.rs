//! An agent's list of models: when one fails, the next is asked.
//!
//! Who answered last goes on: which model leads a conversation is read from the conversation itself, so that a resumed
//! session stays with the model whose messages are in it. A turn asks each model at most once, from that one on and
//! around the end of the list.

use std::borrow::Cow;

use futures_util::future::LocalBoxFuture;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::{AssistantTurn, FailKind, Message, Model, ModelError, ModelEvent, TurnRequest};

/// Longest message of a failure, in characters. Some servers answer with a page of HTML.
const MESSAGE: usize = 1000;

/// One model of the list.
pub(super) struct Entry {
    /// Its name in the project.
    pub(super) name: String,
    /// What its turns say of who answered.
    pub(super) identity: String,
    /// It, with retries around it.
    pub(super) model: Box<dyn Model>,
    /// Its key, which no message may repeat.
    pub(super) key: Option<SecretString>,
}

/// Models, the first of which is asked before the others. Never empty.
pub(super) struct Fallback(Vec<Entry>);

impl Fallback {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// The place of the model that answered last.
    fn leader(&self, request: &TurnRequest) -> usize {
        let last = request.messages.iter().rev().find_map(|message| match message {
            Message::Assistant(turn) => Some(&turn.model),
            Message::Results(_) => None,
        });
        last.and_then(|last| self.0.iter().position(|entry| entry.identity == *last)).unwrap_or(0)
    }

    async fn ask(
        &self,
        request: &TurnRequest,
        events: &UnboundedSender<ModelEvent>,
        cancel: &CancellationToken,
    ) -> Result<AssistantTurn, ModelError> {
        let leader = self.leader(request);
        let (later, first) = (self.0[leader..].iter(), self.0[..leader].iter());
        let mut order = later.chain(first).peekable();
        loop {
            let Some(entry) = order.next() else {
                return Err(ModelError::new(FailKind::Invalid, "an agent needs at least one model"));
            };
            let request = if entry.model.takes_images() { Cow::Borrowed(request) } else { without_images(request) };
            let error = match entry.model.turn(&request, events, cancel).await {
                Ok(turn) => return Ok(turn),
                Err(error) => entry.presentable(error),
            };
            match order.peek() {
                Some(next) if falls_over(error.kind) => {
                    let (from, to) = (entry.name.clone(), next.name.clone());
                    let _ = events.send(ModelEvent::Fallback { from, to, error });
                }
                _ if self.0.len() > 1 && falls_over(error.kind) => {
                    let message = format!("{} (as the last of {} models)", error.message, self.0.len());
                    return Err(ModelError { message, ..error });
                }
                _ => return Err(error),
            }
        }
    }
}

/// True when another model may do better. A conversation that is too long is shortened instead, and a script that is at
/// fault must be seen to be.
fn falls_over(kind: FailKind) -> bool {
    !matches!(kind, FailKind::ContextLength | FailKind::Script | FailKind::Cancelled)
}

impl Entry {
    /// The error without the key, which a server may repeat in what it complains of, and no longer than a message.
    fn presentable(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = &self.key {
            error.message = error.message.replace(key.expose_secret(), "[the key]");
        }
        if let Some((end, _)) = error.message.char_indices().nth(MESSAGE) {
            error.message.truncate(end);
            error.message.push('…');
        }
        error
    }
}

/// The request for a model that takes no images: a word stands for each.
fn without_images(request: &TurnRequest) -> Cow<'_, TurnRequest> {
    let has_image = |message: &Message| match message {
        Message::Results(results) => results.iter().any(|result| result.image.is_some()),
        Message::Assistant(_) => false,
    };
    if !request.messages.iter().any(has_image) {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    for message in &mut request.messages {
        let Message::Results(results) = message else { continue };
        for result in results {
            if let Some((media_type, bytes)) = result.image.take() {
                let words = format!("[an image ({media_type}, {} bytes) that this model does not take]", bytes.len());
                result.text = if result.text.is_empty() { words } else { format!("{}\n{words}", result.text) };
            }
        }
    }
    Cow::Owned(request)
}

impl Model for Fallback {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(self.ask(request, events, cancel))
    }

    fn takes_images(&self) -> bool {
        self.0.iter().any(|entry| entry.model.takes_images())
    }
}
