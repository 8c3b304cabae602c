//! What providers' models can do, as far as it follows from their names. Providers have no way to ask.

use serde_json::{Value, json};

use crate::project::{Provider, ThinkingLevel};

/// True when tool results may hold images. A model that is not known is told of images in words: a request with one is
/// refused as a whole by models that take none.
pub(super) fn takes_images(provider: Provider, model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    let any = |parts: &[&str]| parts.iter().any(|part| model.contains(part));
    match provider {
        Provider::Anthropic | Provider::Google => true,
        Provider::Openai => {
            !any(&["gpt-3.5", "o1-mini", "o1-preview", "o3-mini", "gpt-4-0", "audio"]) && model != "gpt-4"
        }
        Provider::Xai => any(&["vision", "grok-4", "grok-5"]),
        Provider::Mistral => any(&["pixtral", "mistral-medium", "mistral-small", "mistral-large", "ministral"]),
        Provider::Openrouter => any(&[
            "anthropic/claude",
            "openai/gpt-4o",
            "openai/gpt-4.1",
            "openai/gpt-5",
            "google/gemini",
            "vision",
            "-vl",
        ]),
        Provider::Groq | Provider::Ollama | Provider::Custom => any(&[
            "vision",
            "-vl",
            "vl:",
            "llava",
            "llama-4",
            "llama4",
            "gemma3",
            "gemma-3",
            "gemma4",
            "gemma-4",
            "pixtral",
            "minicpm-v",
        ]),
    }
}

/// Major and minor version in the name of a Claude model, whichever side of the family's name they stand on; names
/// without one are taken for the newest.
fn claude_version(model: &str) -> (u32, u32) {
    // Longer numbers are dates.
    let mut numbers = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| part.len() <= 2)
        .filter_map(|part| part.parse::<u32>().ok());
    numbers.next().map_or((u32::MAX, 0), |major| (major, numbers.next().unwrap_or(0)))
}

/// The most tokens that an answer of a Claude model may have. Anthropic wants the number in each request; it counts
/// against the context on older models, so it is no more than a turn needs.
pub(super) fn claude_output(model: &str, thinking: Option<ThinkingLevel>) -> u64 {
    let limit = match claude_version(model) {
        (..=2, _) | (3, ..=4) => 4_096,
        (3, 5..=6) => 8_192,
        (4, 0..=1) if model.contains("opus") => 32_000,
        _ => 64_000,
    };
    let wanted = match thinking {
        Some(ThinkingLevel::High | ThinkingLevel::Xhigh) => 64_000,
        _ => 32_000,
    };
    limit.min(wanted)
}

/// Anthropic's `thinking` and `output_config.effort`.
pub(super) fn claude_thinking(model: &str, level: ThinkingLevel, output: u64) -> (Option<Value>, Option<&'static str>) {
    let version = claude_version(model);
    // From 4.6 on models decide themselves how long they think, and are told how hard to try.
    let adaptive = version >= (4, 6);
    if level == ThinkingLevel::Off {
        // From 5 on they think unless told not to.
        let by_default = (5..u32::MAX).contains(&version.0);
        return (by_default.then(|| json!({"type": "disabled"})), None);
    }
    if adaptive {
        let effort = match level {
            ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::Xhigh if version >= (4, 7) => "xhigh",
            ThinkingLevel::High | ThinkingLevel::Xhigh => "high",
        };
        return (Some(json!({"type": "adaptive"})), Some(effort));
    }
    let budget = match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => 1_024,
        ThinkingLevel::Low => 4_096,
        ThinkingLevel::Medium => 8_192,
        ThinkingLevel::High => 16_384,
        ThinkingLevel::Xhigh => 32_000,
    };
    // The budget is part of the answer's tokens, and something must be left to say.
    let budget = budget.min(output - output / 4).max(1_024);
    (Some(json!({"type": "enabled", "budget_tokens": budget})), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_claude() {
        for (model, version) in [
            ("claude-3-opus-20240229", (3, 0)),
            ("claude-3-5-sonnet-latest", (3, 5)),
            ("claude-3-7-sonnet-20250219", (3, 7)),
            ("claude-opus-4-20250514", (4, 0)),
            ("claude-opus-4-1", (4, 1)),
            ("claude-sonnet-4-5-20250929", (4, 5)),
            ("claude-opus-4-6", (4, 6)),
            ("claude-sonnet-5", (5, 0)),
            ("claude-fable", (u32::MAX, 0)),
        ] {
            assert_eq!(claude_version(model), version, "{model}");
        }
    }

    #[test]
    fn answers_have_room_and_thinking_fits_into_it() {
        assert_eq!(claude_output("claude-3-haiku-20240307", None), 4_096);
        assert_eq!(claude_output("claude-sonnet-4-5", None), 32_000);
        assert_eq!(claude_output("claude-sonnet-4-5", Some(ThinkingLevel::Xhigh)), 64_000);
        assert_eq!(claude_output("claude-opus-4-1", Some(ThinkingLevel::Xhigh)), 32_000);
        for model in ["claude-3-7-sonnet-latest", "claude-opus-4-1", "claude-sonnet-4-5"] {
            for level in ThinkingLevel::ALL {
                let output = claude_output(model, Some(level));
                let (thinking, effort) = claude_thinking(model, level, output);
                assert_eq!(effort, None);
                let budget = thinking.map(|thinking| thinking["budget_tokens"].as_u64().unwrap());
                assert_eq!(budget.is_none(), level == ThinkingLevel::Off);
                assert!(budget.is_none_or(|budget| (1024..output).contains(&budget)), "{model} {level:?}");
            }
        }
    }

    #[test]
    fn newer_models_are_told_how_hard_to_try() {
        let of = |model, level| claude_thinking(model, level, 32_000);
        assert_eq!(of("claude-opus-4-6", ThinkingLevel::Xhigh), (Some(json!({"type": "adaptive"})), Some("high")));
        assert_eq!(of("claude-opus-4-8", ThinkingLevel::Xhigh), (Some(json!({"type": "adaptive"})), Some("xhigh")));
        assert_eq!(of("claude-sonnet-4-6", ThinkingLevel::Off), (None, None));
        assert_eq!(of("claude-sonnet-5", ThinkingLevel::Off), (Some(json!({"type": "disabled"})), None));
        assert_eq!(of("claude-fable", ThinkingLevel::Off), (None, None));
    }

    #[test]
    fn images_only_for_models_that_are_known_to_take_them() {
        assert!(takes_images(Provider::Anthropic, "claude-sonnet-4-5"));
        assert!(takes_images(Provider::Openai, "gpt-5-mini"));
        assert!(!takes_images(Provider::Openai, "gpt-3.5-turbo"));
        assert!(takes_images(Provider::Ollama, "qwen3-vl:8b"));
        assert!(!takes_images(Provider::Ollama, "qwen3:8b"));
        assert!(!takes_images(Provider::Custom, "my-model"));
    }
}
