//! What a provider's failures mean, and what people are told of them.
//!
//! An error's body is text of others: it is cut, put on one line, stripped of what could steer a terminal, and of the key.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::model::{FailKind, ModelError};
use crate::observe::sanitise;
use crate::project::Provider;

/// Most characters of a provider's own words.
const WORDS: usize = 300;

/// Why there is no turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FailKind,
    /// What failed; may hold text of others.
    pub(super) words: String,
    pub(super) retry_after: Option<Duration>,
    /// Nobody listens at an address of this machine.
    pub(super) absent: bool,
}

impl Fault {
    pub(super) fn new(kind: FailKind, words: impl Into<String>) -> Self {
        Self { kind, words: words.into(), retry_after: None, absent: false }
    }

    /// A part of the answer that is not of the format.
    pub(super) fn format(what: &str) -> Self {
        Self::new(FailKind::Network, format!("the answer is not of the provider's format: {what}"))
    }

    /// An answer with a status that is no success.
    pub(super) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let (code, said) = read(body);
        let mut words = format!("it answers {}", status.as_u16());
        if let Some(reason) = status.canonical_reason() {
            words = format!("{words} {reason}");
        }
        if status.is_redirection() {
            words.push_str("; redirects are not followed with a key: does `baseUrl` name the right address?");
        } else if !said.is_empty() {
            words = format!("{words}: {}", cut(&said));
        }
        let retry_after = retry_after(headers, Timestamp::now()).or_else(|| retry_info(body));
        Self { kind: kind_of(status.as_u16(), &code, &said), words, retry_after, absent: false }
    }

    /// An error in the middle of a stream: an object with a message and perhaps a type or a code.
    pub(super) fn of_event(error: &Value) -> Self {
        let (code, said) = describe(error);
        let status = error["code"].as_u64().or_else(|| error["status"].as_u64());
        let status = status.and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
        let mut words = format!("it broke off with an error: {}", cut(&said));
        if !code.is_empty() && !said.contains(&code) {
            words = format!("{words} ({})", cut(&code));
        }
        Self::new(kind_of(status, &code, &said), words)
    }

    /// The error as it is told: one line, without the key.
    pub(super) fn tell(self, provider: Provider, model: &str, key: Option<&SecretString>) -> ModelError {
        let mut text = format!("{provider} ({}): {}", cut(model), self.words);
        if let Some(key) = key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
            text = text.replace(key, "[key]");
        }
        let message = one_line(&text, 2 * WORDS);
        ModelError { kind: self.kind, message, retry_after: self.retry_after, absent: self.absent }
    }
}

/// What kind of failure a status, an error's code and its words are.
fn kind_of(status: u16, code: &str, said: &str) -> FailKind {
    let (code, said) = (code.to_ascii_lowercase(), said.to_ascii_lowercase());
    let is = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    if is_too_long(&code, &said) {
        return FailKind::ContextLength;
    }
    // No more money: it does not pass, whatever the status says.
    if is(&["insufficient_quota", "billing"]) || status == 402 {
        return FailKind::Auth;
    }
    if is(&["content_filter", "content_policy"]) {
        return FailKind::Refused;
    }
    match status {
        429 => FailKind::RateLimit,
        401 | 403 => FailKind::Auth,
        408 | 504 => FailKind::Timeout,
        413 => FailKind::ContextLength,
        500.. => FailKind::Overloaded,
        300.. => FailKind::Invalid,
        _ if is(&["rate_limit", "too_many_requests", "resource_exhausted"]) => FailKind::RateLimit,
        _ if is(&["authentication", "permission", "invalid_api_key"]) => FailKind::Auth,
        _ if is(&["invalid", "not_found"]) => FailKind::Invalid,
        _ if is(&["timeout", "deadline_exceeded"]) => FailKind::Timeout,
        // An error that breaks an answer off is the server's more often than not.
        _ => FailKind::Overloaded,
    }
}

/// Each provider has words of its own for a conversation that is too long, and most have no code.
fn is_too_long(code: &str, said: &str) -> bool {
    const CODES: [&str; 3] = ["context_length_exceeded", "request_too_large", "string_above_max_length"];
    const WORDS: [&str; 17] = [
        "prompt is too long",
        "exceed context limit",
        "context length",
        "context window",
        "context size",
        "context_length",
        "maximum context",
        "maximum prompt length",
        "input token count",
        "input is too long",
        "maximum number of tokens allowed",
        "too many input tokens",
        "reduce the length of the messages",
        "reduce your message size",
        "request_too_large",
        "too large for model",
        "exceeds the available context",
    ];
    CODES.iter().any(|one| code.contains(one)) || WORDS.iter().any(|one| said.contains(one))
}

/// An error body's code and words, whatever its shape.
fn read(body: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Array(items)) if !items.is_empty() => describe(&items[0]["error"]),
        Ok(value) if value["error"].is_object() => describe(&value["error"]),
        Ok(value) if value["error"].is_string() => (String::new(), string(&value["error"])),
        Ok(value) if value.is_object() => describe(&value),
        // A page of a proxy; its title says most.
        _ if text.trim_start().starts_with('<') => {
            let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
            (String::new(), title.map_or("an HTML page".to_owned(), |(title, _)| format!("an HTML page, {title:?}")))
        }
        _ => (String::new(), text.trim().to_owned()),
    }
}

/// An error object's code and words.
fn describe(error: &Value) -> (String, String) {
    if let Value::String(words) = error {
        return (String::new(), words.clone());
    }
    let codes: Vec<String> = ["type", "code", "status"].iter().map(|key| string(&error[*key])).collect();
    let code = codes.into_iter().filter(|code| !code.is_empty()).collect::<Vec<_>>().join(" ");
    let said = ["message", "detail", "error"].iter().map(|key| &error[*key]).find(|said| !said.is_null());
    let said = said.map(|said| said.as_str().map_or_else(|| said.to_string(), str::to_owned)).unwrap_or_default();
    (code, said)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// How long the provider wants to be left alone: milliseconds, seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    /// Nobody waits longer; and more seconds than this are no duration.
    const LONGEST: f64 = 7.0 * 86_400.0;
    let seconds = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(str::to_owned);
    let milliseconds = headers.get("retry-after-ms").and_then(text).and_then(|value| seconds(&value));
    let wait = milliseconds.map(|number| number / 1000.0).or_else(|| {
        let value = headers.get(RETRY_AFTER).and_then(text)?;
        seconds(&value).or_else(|| {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
            Some(date.duration_since(now).as_secs_f64().max(0.0))
        })
    })?;
    Some(Duration::from_secs_f64(wait.min(LONGEST)))
}

/// Google says it in the body: `"retryDelay": "34s"`.
fn retry_info(body: &[u8]) -> Option<Duration> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let error = if value.is_array() { &value[0]["error"] } else { &value["error"] };
    let delay = error["details"].as_array()?.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn cut(text: &str) -> String {
    one_line(text, WORDS)
}

/// Text on one line, without what steers terminals or hides, at most this many characters.
fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for c in text.chars() {
        let space = c.is_whitespace() || sanitise::is_unsafe(c);
        if space && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if count == most {
            line.push('…');
            break;
        }
        line.push(if space { ' ' } else { c });
        count += 1;
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Fault {
        Fault::of_status(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn statuses_have_kinds() {
        let kinds = [
            (400, FailKind::Invalid),
            (401, FailKind::Auth),
            (402, FailKind::Auth),
            (403, FailKind::Auth),
            (404, FailKind::Invalid),
            (408, FailKind::Timeout),
            (413, FailKind::ContextLength),
            (422, FailKind::Invalid),
            (429, FailKind::RateLimit),
            (500, FailKind::Overloaded),
            (502, FailKind::Overloaded),
            (503, FailKind::Overloaded),
            (504, FailKind::Timeout),
            (529, FailKind::Overloaded),
            (302, FailKind::Invalid),
        ];
        for (status, kind) in kinds {
            assert_eq!(of(status, "{}").kind, kind, "{status}");
        }
    }

    #[test]
    fn each_provider_s_words_for_too_long_are_known() {
        for words in [
            // Anthropic
            "prompt is too long: 201234 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            // OpenAI, OpenRouter, vLLM
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            // Google
            "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
            // Groq, xAI, Mistral, llama.cpp
            "Please reduce the length of the messages or completion.",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "the request exceeds the available context size. try increasing the context size",
        ] {
            let body = serde_json::json!({"error": {"message": words, "type": "invalid_request_error"}}).to_string();
            assert_eq!(of(400, &body).kind, FailKind::ContextLength, "{words}");
        }
        let by_code = r#"{"error": {"message": "no", "code": "context_length_exceeded"}}"#;
        assert_eq!(of(400, by_code).kind, FailKind::ContextLength);
    }

    #[test]
    fn no_money_left_does_not_pass() {
        let body = r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#;
        assert_eq!(of(429, body).kind, FailKind::Auth);
    }

    #[test]
    fn bodies_of_every_shape_are_read() {
        let said = |body: &str| of(400, body).words.replace("it answers 400 Bad Request: ", "");
        assert_eq!(said(r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}"#), "no");
        assert_eq!(said(r#"{"error": "model not found"}"#), "model not found");
        assert_eq!(
            said(r#"[{"error": {"code": 400, "message": "bad key", "status": "INVALID_ARGUMENT"}}]"#),
            "bad key"
        );
        assert_eq!(said(r#"{"detail": [{"loc": ["body"], "msg": "extra"}]}"#), r#"[{"loc":["body"],"msg":"extra"}]"#);
        assert_eq!(said("<html><title>502 Bad Gateway</title>"), r#"an HTML page, "502 Bad Gateway""#);
        assert_eq!(said("<!DOCTYPE html>"), "an HTML page");
        assert_eq!(said("upstream\n\tgone"), "upstream gone");
    }

    #[test]
    fn a_wait_is_milliseconds_seconds_or_a_date() {
        let now: Timestamp = "2015-10-21T07:27:30Z".parse().unwrap();
        let wait = |pairs: &[(&'static str, &str)]| retry_after(&headers(pairs), now);
        assert_eq!(wait(&[("retry-after", "2")]), Some(Duration::from_secs(2)));
        assert_eq!(wait(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "9")]), Some(Duration::from_millis(250)));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), Some(Duration::from_secs(30)));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")]), Some(Duration::ZERO));
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(Duration::from_hours(7 * 24)));
        for nonsense in ["soon", "-1", "NaN", ""] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        let google = br#"[{"error": {"details": [{"@type": "x"}, {"retryDelay": "34.5s"}]}}]"#;
        assert_eq!(retry_info(google), Some(Duration::from_millis(34_500)));
    }

    #[test]
    fn what_is_told_is_one_short_line_without_the_key() {
        let key = SecretString::from("sk-secret-1");
        let nasty = format!("key sk-secret-1\u{1b}[2J is\r\n\u{202e}wrong {}", "x".repeat(5000));
        let error = of(401, &nasty).tell(Provider::Openai, "gpt\u{7}-5", Some(&key));
        assert!(error.message.starts_with("openai (gpt -5): it answers 401 Unauthorized: key [key] [2J is wrong xxx"));
        assert!(error.message.ends_with('…') && error.message.chars().count() < 400, "{}", error.message);
        assert!(!error.message.chars().any(sanitise::is_unsafe));
    }

    #[test]
    fn errors_in_a_stream_have_kinds() {
        for (error, kind) in [
            (r#"{"type": "overloaded_error", "message": "Overloaded"}"#, FailKind::Overloaded),
            (r#"{"type": "api_error", "message": "Internal server error"}"#, FailKind::Overloaded),
            (r#"{"type": "rate_limit_error", "message": "slow down"}"#, FailKind::RateLimit),
            (r#"{"type": "invalid_request_error", "message": "no"}"#, FailKind::Invalid),
            (r#"{"code": 502, "message": "Provider returned error"}"#, FailKind::Overloaded),
            (r#"{"code": "context_length_exceeded", "message": "no"}"#, FailKind::ContextLength),
            (r#""model runner has unexpectedly stopped""#, FailKind::Overloaded),
        ] {
            assert_eq!(Fault::of_event(&serde_json::from_str(error).unwrap()).kind, kind, "{error}");
        }
    }
}
