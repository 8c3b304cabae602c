//! The way to a provider: one address, one key, bounded answers.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::timeout;

use super::fault::Fault;
use super::frames::Decoder;
use super::{Framing, Wire};
use crate::model::{FailKind, ModelError, OpenError};
use crate::project::{Provider, ProviderSettings};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(20);

/// Longest silence: before the answer begins (a local server loads the model first) and between two parts of it (models
/// that think without saying so).
const SILENCE: Duration = Duration::from_mins(5);

/// Most bytes of a whole answer. The longest that a model may write is a third of it with all its wrapping.
const MOST: u64 = 128 * 1024 * 1024;

/// Most bytes that are read of an error's body.
const MOST_OF_ERROR: usize = 64 * 1024;

/// Anthropic's version of the API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A provider's address with its key.
pub(super) struct Http {
    client: Client,
    url: Url,
    /// It is an address of this machine.
    loopback: bool,
    headers: HeaderMap,
    provider: Provider,
    model: String,
    key: Option<SecretString>,
    framing: Framing,
    silence: Duration,
}

impl fmt::Debug for Http {
    /// Without the key and the headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({} at {})", self.provider, self.url)
    }
}

impl Http {
    pub(super) fn new(settings: &ProviderSettings, wire: Wire, key: Option<SecretString>) -> Result<Self, OpenError> {
        let unusable = |why: &str| OpenError::BaseUrl { provider: settings.provider, why: why.to_owned() };
        let (url, loopback) = address(settings, wire).map_err(|why| unusable(&why))?;
        let headers = headers(wire, key.as_ref()).ok_or(OpenError::KeyCharacters { provider: settings.provider })?;
        // The program's own choice of cryptography; whoever embeds us may have made another.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // A redirect would take the conversation, if not the key, to another host.
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true);
        if url.scheme() == "http" {
            // No certificates are needed; a machine without any can still talk to itself.
            builder = builder.tls_certs_only([]);
        }
        if loopback {
            // A proxy elsewhere cannot reach this machine's servers, and need not see what is said to them.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| unusable(&format!("cannot set TLS up: {}", causes(&error))))?;
        Ok(Self {
            client,
            url,
            loopback,
            headers,
            provider: settings.provider,
            model: settings.model.clone(),
            key,
            framing: wire.framing(),
            silence: SILENCE,
        })
    }

    /// The key that requests carry.
    pub(super) fn key(&self) -> Option<&SecretString> {
        self.key.as_ref()
    }

    /// The error as it is told.
    pub(super) fn tell(&self, fault: Fault) -> ModelError {
        fault.tell(self.provider, &self.model, self.key.as_ref())
    }

    /// Sets the longest silence, for tests of it.
    #[cfg(test)]
    pub(super) fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Sends a request and waits until the answer begins.
    pub(super) async fn post(&self, body: &Value) -> Result<Stream, Fault> {
        let bytes = serde_json::to_vec(body).expect("JSON is written to memory");
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(bytes);
        let response = match timeout(self.silence, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(error)),
            Err(_) => return Err(self.silent()),
        };
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let page = kind == "text/html";
        let headers = response.headers().clone();
        let stream = Stream {
            response: Some(response),
            decoder: Decoder::new(self.framing),
            silence: self.silence,
            silent: self.silent(),
            read: 0,
        };
        if !status.is_success() {
            let body = stream.beginning().await;
            return Err(Fault::of_status(status, &headers, &body));
        }
        // Servers that do not stream answer with JSON, and some send their errors so.
        if page || (kind == "application/json" && self.framing == Framing::ServerSentEvents) {
            let body = stream.beginning().await;
            let error = serde_json::from_slice::<Value>(&body).unwrap_or_default();
            return Err(match &error["error"] {
                Value::Null => Fault::format(&format!("it is {kind:?} and no stream; is `baseUrl` right?")),
                error => Fault::of_event(error),
            });
        }
        Ok(stream)
    }

    fn silent(&self) -> Fault {
        let words = format!("no answer for {} s", self.silence.as_secs_f64());
        Fault::new(FailKind::Timeout, words)
    }

    fn unreachable(&self, error: reqwest::Error) -> Fault {
        // The address is ours to tell; the error's own may hold more than the host.
        let error = error.without_url();
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port().map_or_else(String::new, |port| format!(":{port}"));
        let kind = if error.is_timeout() { FailKind::Timeout } else { FailKind::Network };
        let (mut why, refused) = last_cause(&error);
        let absent = self.loopback && refused;
        if absent {
            why.push_str("; is it running?");
        }
        Fault { absent, ..Fault::new(kind, format!("cannot reach {host}{port}: {why}")) }
    }
}

/// An answer on its way. Dropping it closes the connection.
pub(super) struct Stream {
    response: Option<Response>,
    decoder: Decoder,
    silence: Duration,
    silent: Fault,
    read: u64,
}

impl Stream {
    /// The data of the next event; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Fault> {
        loop {
            if let Some(data) = self.decoder.next()? {
                return Ok(Some(data));
            }
            let Some(response) = &mut self.response else { return Ok(None) };
            match timeout(self.silence, response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.read += bytes.len() as u64;
                    if self.read > MOST {
                        return Err(Fault::new(FailKind::Network, "the answer is longer than 128 MiB"));
                    }
                    self.decoder.push(&bytes);
                }
                Ok(Ok(None)) => {
                    self.response = None;
                    return Ok(self.decoder.rest());
                }
                Ok(Err(error)) => {
                    let words = format!("the answer broke off: {}", causes(&error.without_url()));
                    return Err(Fault::new(FailKind::Network, words));
                }
                Err(_) => return Err(self.silent.clone()),
            }
        }
    }

    /// Gives the connection back for the next turn, if the server is done with it too.
    pub(super) async fn give_back(mut self) {
        /// The end of a body follows its last event at once.
        const PATIENCE: Duration = Duration::from_millis(100);
        if let Some(response) = &mut self.response {
            let _ = timeout(PATIENCE, response.chunk()).await;
        }
    }

    /// The beginning of an error's body, as far as it comes.
    async fn beginning(mut self) -> Vec<u8> {
        let mut body = Vec::new();
        if let Some(response) = &mut self.response {
            let read = async {
                while let Ok(Some(bytes)) = response.chunk().await {
                    body.extend_from_slice(&bytes[..bytes.len().min(MOST_OF_ERROR - body.len())]);
                    if body.len() == MOST_OF_ERROR {
                        break;
                    }
                }
            };
            let _ = timeout(self.silence.min(CONNECT), read).await;
        }
        body
    }
}

/// Where requests go, and whether that is this machine.
fn address(settings: &ProviderSettings, wire: Wire) -> Result<(Url, bool), String> {
    let default = match settings.provider {
        Provider::Anthropic => "https://api.anthropic.com/v1/",
        Provider::Openai => "https://api.openai.com/v1/",
        Provider::Google => "https://generativelanguage.googleapis.com/v1beta/",
        Provider::Groq => "https://api.groq.com/openai/v1/",
        Provider::Xai => "https://api.x.ai/v1/",
        Provider::Mistral => "https://api.mistral.ai/v1/",
        Provider::Openrouter => "https://openrouter.ai/api/v1/",
        Provider::Ollama => "http://127.0.0.1:11434/",
        Provider::Custom => "",
    };
    let base = settings.base_url.as_deref().unwrap_or(default);
    if base.is_empty() {
        return Err("it is missing; where is the server?".to_owned());
    }
    let mut url = Url::parse(base).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it begins with neither http:// nor https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a name or a password; a key belongs into the environment or a credential file".to_owned());
    }
    let model = format!("{}:streamGenerateContent", settings.model);
    let path: &[&str] = match wire {
        Wire::Anthropic => &["messages"],
        Wire::Openai => &["chat", "completions"],
        Wire::Ollama => &["api", "chat"],
        Wire::Gemini => &["models", &model],
    };
    url.path_segments_mut().expect("http has a path").pop_if_empty().extend(path);
    if wire == Wire::Gemini {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    Ok((url, loopback))
}

/// The headers of every request; none when the key cannot stand in one.
fn headers(wire: Wire, key: Option<&SecretString>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if wire == Wire::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    let Some(key) = key else { return Some(headers) };
    let key = key.expose_secret();
    let (name, text) = match wire {
        Wire::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        Wire::Gemini => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
        Wire::Openai | Wire::Ollama => (AUTHORIZATION, format!("Bearer {key}")),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    // Whoever prints headers prints `Sensitive`.
    value.set_sensitive(true);
    headers.insert(name, value);
    Some(headers)
}

/// The innermost cause, which says what happened (those around it are the libraries' own layers), without the system's
/// number for it; and whether it is that nobody listens.
fn last_cause(error: &(dyn Error + 'static)) -> (String, bool) {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let mut words = last.to_string();
    if let Some(at) = words.rfind(" (os error ") {
        words.truncate(at);
    }
    let refused = last.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
    (words, refused)
}

/// An error with its causes, each said once.
fn causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(provider: Provider, base_url: Option<&str>) -> ProviderSettings {
        let base_url = base_url.map(str::to_owned);
        ProviderSettings { provider, model: "m/1".to_owned(), thinking: None, base_url }
    }

    fn at(provider: Provider, base_url: Option<&str>) -> Result<String, String> {
        address(&settings(provider, base_url), Wire::of(provider)).map(|(url, _)| url.to_string())
    }

    #[test]
    fn addresses_are_the_provider_s_or_the_one_given() {
        let own: Vec<String> = Provider::ALL.iter().filter_map(|provider| at(*provider, None).ok()).collect();
        assert_eq!(
            own,
            [
                "https://api.anthropic.com/v1/messages",
                "https://api.openai.com/v1/chat/completions",
                "https://generativelanguage.googleapis.com/v1beta/models/m%2F1:streamGenerateContent?alt=sse",
                "https://api.groq.com/openai/v1/chat/completions",
                "https://api.x.ai/v1/chat/completions",
                "https://api.mistral.ai/v1/chat/completions",
                "https://openrouter.ai/api/v1/chat/completions",
                "http://127.0.0.1:11434/api/chat",
            ]
        );
        let custom = |base| at(Provider::Custom, Some(base));
        assert_eq!(custom("http://10.0.0.7:8000/v1/").unwrap(), "http://10.0.0.7:8000/v1/chat/completions");
        assert_eq!(custom("https://h/v1?api-version=2").unwrap(), "https://h/v1/chat/completions?api-version=2");
        for bad in ["ftp://h/", "h", "https://me:pass@h/", "file:///etc/passwd"] {
            assert!(custom(bad).is_err(), "{bad}");
        }
        assert!(at(Provider::Custom, None).is_err());
    }

    #[test]
    fn only_this_machine_is_spoken_to_without_a_proxy() {
        for (base, loopback) in [
            ("http://localhost:1/", true),
            ("http://127.0.0.2/", true),
            ("http://[::1]:1/", true),
            ("http://10.0.0.1/", false),
            ("https://localhost.example/", false),
        ] {
            assert_eq!(address(&settings(Provider::Custom, Some(base)), Wire::Openai).unwrap().1, loopback, "{base}");
        }
    }

    /// The providers' own addresses, with TLS.
    #[test]
    fn every_provider_can_be_opened() {
        for provider in Provider::ALL.into_iter().filter(|provider| *provider != Provider::Custom) {
            let opened = Http::new(&settings(provider, None), Wire::of(provider), Some("key".into()));
            assert!(opened.is_ok(), "{provider}: {:?}", opened.err());
        }
    }

    /// The key is in no debug output of what holds it.
    #[test]
    fn the_key_is_not_shown() {
        let key = SecretString::from("sk-very-secret");
        for provider in Provider::ALL {
            let settings = settings(provider, Some("http://127.0.0.1:1/"));
            let http = Http::new(&settings, Wire::of(provider), Some(key.clone())).unwrap();
            let shown = format!("{http:?} {:?} {:?} {:?}", http.headers, http.key, http.client);
            assert!(!shown.contains("very-secret"), "{shown}");
        }
        let broken = Http::new(&settings(Provider::Openai, None), Wire::Openai, Some("a\nb".into())).unwrap_err();
        assert_eq!(broken.to_string(), "the key of openai holds characters that no header can; was it copied whole?");
    }
}
