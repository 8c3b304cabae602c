//! Language models of providers.
//!
//! Each of four wire formats is a file that does two things: it writes a conversation as the provider wants it, and puts
//! a streamed answer together. A turn is one attempt; whoever wants more wraps it.
//!
//! What a provider said is kept as it was, in [`AssistantTurn::raw`], and goes back as it was: thinking blocks with their
//! signatures in their order, arguments as they were written, fields that we know nothing of. A turn of another provider
//! or model is told again from its text and calls, for nobody accepts another's signatures.

mod abilities;
mod anthropic;
mod echo;
mod fault;
mod frames;
mod gemini;
mod http;
mod kept;
mod ollama;
mod openai;
mod steps;
#[cfg(test)]
mod tests;

use futures_util::future::LocalBoxFuture;
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::{AssistantTurn, FailKind, Model, ModelError, ModelEvent, OpenError, ToolCallRequest, TurnRequest, Usage};
use crate::project::{Provider, ProviderSettings};
use echo::Echo;
use fault::Fault;
use frames::Framing;
use http::Http;

/// A model of a provider.
pub struct ProviderModel {
    settings: ProviderSettings,
    wire: Wire,
    http: Http,
}

/// A wire format. It follows from the provider, never from the model's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Anthropic,
    Gemini,
    Ollama,
    Openai,
}

/// Puts a streamed answer together.
trait Assembler {
    /// Takes the data of one event and appends what the model says with it to `said`; true when it was the last.
    fn take(&mut self, data: &str, said: &mut String) -> Result<bool, Fault>;

    /// The whole answer. `None` when the stream ended before the answer did.
    fn finish(self: Box<Self>) -> Option<Answer>;
}

/// An answer that has come to its end.
struct Answer {
    text: String,
    calls: Vec<ToolCallRequest>,
    /// What has to be sent back.
    message: Value,
    usage: Usage,
    end: End,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The model had said all.
    Whole,
    /// It reached the most tokens that it may write.
    Cut,
    /// The conversation filled the model's context.
    Full,
    /// The provider's policy or the model itself refuses, in the provider's words.
    Refused(String),
    /// The model's call could not be read by its own provider.
    Garbled(String),
}

/// Opens a model of a provider. The key goes to the provider's address and nowhere else.
///
/// # Errors
/// There is no key for a provider that needs one, or `baseUrl` cannot be used.
pub fn open(settings: &ProviderSettings, key: Option<SecretString>) -> Result<ProviderModel, OpenError> {
    if key.is_none() && settings.provider.needs_key() {
        return Err(OpenError::NoKey { provider: settings.provider });
    }
    let wire = Wire::of(settings.provider);
    // Nobody on the way may read a key.
    let key = key.filter(|_| settings.keeps_secrets());
    let http = Http::new(settings, wire, key)?;
    Ok(ProviderModel { settings: settings.clone(), wire, http })
}

impl Wire {
    fn of(provider: Provider) -> Self {
        match provider {
            Provider::Anthropic => Self::Anthropic,
            Provider::Google => Self::Gemini,
            Provider::Ollama => Self::Ollama,
            Provider::Openai
            | Provider::Groq
            | Provider::Xai
            | Provider::Mistral
            | Provider::Openrouter
            | Provider::Custom => Self::Openai,
        }
    }

    fn framing(self) -> Framing {
        match self {
            Self::Anthropic | Self::Gemini | Self::Openai => Framing::ServerSentEvents,
            Self::Ollama => Framing::Lines,
        }
    }

    fn body(self, settings: &ProviderSettings, request: &TurnRequest) -> Value {
        match self {
            Self::Anthropic => anthropic::body(settings, request),
            Self::Gemini => gemini::body(settings, request),
            Self::Ollama => ollama::body(settings, request),
            Self::Openai => openai::body(settings, request),
        }
    }

    fn assembler(self) -> Box<dyn Assembler> {
        match self {
            Self::Anthropic => Box::new(anthropic::Reading::default()),
            Self::Gemini => Box::new(gemini::Reading::default()),
            Self::Ollama => Box::new(ollama::Reading::default()),
            Self::Openai => Box::new(openai::Reading::default()),
        }
    }
}

impl ProviderModel {
    /// One attempt. Dropping it closes the connection.
    async fn attempt(
        &self,
        request: &TurnRequest,
        events: &UnboundedSender<ModelEvent>,
    ) -> Result<AssistantTurn, Fault> {
        let mut stream = self.http.post(&self.wire.body(&self.settings, request)).await?;
        let mut assembler = self.wire.assembler();
        let mut said = String::new();
        let mut echo = Echo::of(self.http.key());
        loop {
            let Some(data) = stream.next().await? else { break };
            let last = assembler.take(&data, &mut said)?;
            if !said.is_empty() {
                echo.hear(&said)?;
                // Nobody listening means nobody is watching; the turn goes on all the same.
                let _ = events.send(ModelEvent::Text(std::mem::take(&mut said)));
            }
            if last {
                break;
            }
        }
        let answer = assembler.finish().ok_or_else(|| {
            Fault::new(FailKind::Network, "the answer broke off: its stream ended before the answer did")
        })?;
        stream.give_back().await;
        echo.search(&answer.message)?;
        for call in &answer.calls {
            // Arguments are kept as they were written too, where letters may be escaped.
            echo.search(&call.args)?;
        }
        self.judge(answer)
    }

    /// Makes a turn of an answer, unless it is none.
    fn judge(&self, answer: Answer) -> Result<AssistantTurn, Fault> {
        let Answer { text, calls, message, usage, end } = answer;
        let nothing = calls.is_empty() && text.trim().is_empty();
        match end {
            End::Refused(why) => return Err(Fault::new(FailKind::Refused, format!("the model refuses: {why}"))),
            End::Garbled(why) => return Err(Fault::new(FailKind::Overloaded, format!("the answer is garbled: {why}"))),
            End::Full => {
                return Err(Fault::new(FailKind::ContextLength, "the conversation filled the model's context window"));
            }
            // Without a call it would count as the agent's last word. With calls the session goes on: one that is not
            // whole has text for arguments, which no schema takes.
            End::Cut if calls.is_empty() => {
                let written = usage.output;
                let words =
                    format!("the answer was cut at the most tokens that the model may write ({written} written)");
                return Err(Fault::new(FailKind::Invalid, words));
            }
            End::Whole | End::Cut if nothing => {
                return Err(Fault::new(FailKind::Overloaded, "the answer is empty: no text and no tool call"));
            }
            End::Whole | End::Cut => {}
        }
        let raw = kept::keep(&self.settings, message);
        let model = format!("{}/{}", self.settings.provider, self.settings.model);
        Ok(AssistantTurn { text, calls, model, raw, usage })
    }
}

impl Model for ProviderModel {
    fn turn<'a>(
        &'a self,
        request: &'a TurnRequest,
        events: &'a UnboundedSender<ModelEvent>,
        cancel: &'a CancellationToken,
    ) -> LocalBoxFuture<'a, Result<AssistantTurn, ModelError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(ModelError::cancelled()),
                turn = self.attempt(request, events) => turn.map_err(|fault| self.http.tell(fault)),
            }
        })
    }

    fn takes_images(&self) -> bool {
        abilities::takes_images(self.settings.provider, &self.settings.model)
    }
}
