//! Who answers a model's requests, and how it is asked.

use std::fmt;

/// A provider of language models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Anthropic's messages API.
    Anthropic,
    /// OpenAI's chat completions.
    Openai,
    /// Google's Gemini API.
    Google,
    /// Groq; speaks OpenAI's chat format.
    Groq,
    /// xAI; speaks OpenAI's chat format.
    Xai,
    /// Mistral; speaks OpenAI's chat format.
    Mistral,
    /// OpenRouter; speaks OpenAI's chat format.
    Openrouter,
    /// An Ollama server, on this machine unless `baseUrl` says otherwise; needs no key.
    Ollama,
    /// Any server that speaks OpenAI's chat format at `baseUrl`; a key is sent when there is one.
    Custom,
}

impl Provider {
    /// All of them, as documents list them.
    pub const ALL: [Self; 9] = [
        Self::Anthropic,
        Self::Openai,
        Self::Google,
        Self::Groq,
        Self::Xai,
        Self::Mistral,
        Self::Openrouter,
        Self::Ollama,
        Self::Custom,
    ];

    /// Its name in `config.toml` and in the names of credentials.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Google => "google",
            Self::Groq => "groq",
            Self::Xai => "xai",
            Self::Mistral => "mistral",
            Self::Openrouter => "openrouter",
            Self::Ollama => "ollama",
            Self::Custom => "custom",
        }
    }

    /// The environment variable that holds its key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
            Self::Google => "GEMINI_API_KEY",
            Self::Groq => "GROQ_API_KEY",
            Self::Xai => "XAI_API_KEY",
            Self::Mistral => "MISTRAL_API_KEY",
            Self::Openrouter => "OPENROUTER_API_KEY",
            Self::Ollama => "OLLAMA_API_KEY",
            Self::Custom => "CUSTOM_API_KEY",
        }
    }

    /// True when no request can succeed without a key.
    pub fn needs_key(self) -> bool {
        !matches!(self, Self::Ollama | Self::Custom)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much a model may think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingLevel {
    /// Not at all.
    Off,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Xhigh,
}

impl ThinkingLevel {
    /// All of them, from least to most.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// Its name in `config.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }
}

/// A language model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// Who answers.
    pub provider: Provider,
    /// The provider's name of the model.
    pub model: String,
    /// How much it may think; the provider's default when absent.
    pub thinking: Option<ThinkingLevel>,
    /// Where the provider is; its public address when absent. Ends in `/`.
    pub base_url: Option<String>,
}
