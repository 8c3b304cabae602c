//! A conversation that another process goes on with, in the middle of a tool loop: from the journal alone.

use runner::model::provider::open;
use runner::model::{Model, TurnRequest};
use runner::project::{Provider as Name, ProviderSettings, ThinkingLevel};
use runner::session::{conversation, journal};
use runner::store::{SqliteStore, Store};
use serde_json::json;

use super::{place_with, run, session_of, start};
use crate::harness::provider::{Answer, KEY, Provider, Turn, Wire};

/// M-WIRE-1, M-WIRE-2: after each whole turn that is in the journal, the provider accepts the conversation that the
/// journal tells, thinking and signatures byte for byte.
#[test]
fn a_provider_accepts_what_the_journal_tells() {
    for wire in Wire::ALL {
        let turn = |number: u32| {
            Turn::new()
                .think(&format!("Thought {number}: \"日本\" \\ \n."), &format!("c2ln{number}+/=="))
                .redacted("cmVkYWN0ZWQ=")
                .say("I look.")
                .call("same", "bash", &json!({"command": format!("echo {number}")}))
                .call("same", "ls", &json!({"path": "/tmp"}))
        };
        let provider = Provider::with(wire, [turn(1), turn(2), turn(3)]);
        // What ends it does not pass.
        provider.push(Answer::status(401));
        let place = place_with(&provider);
        let level = if wire == Wire::Anthropic { "thinkingLevel = \"low\"\n" } else { "" };
        place.write("config.toml", format!("{}{level}", provider.config()));
        let ran = run(start(&place, &provider));
        ran.exits(4);
        let session = session_of(&ran);

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = SqliteStore::open(&place.state()).expect("the store");
            let key = store.session(&session).await.expect("the session").key;
            let events = journal::load(&store, key).await.expect("the journal");
            let whole = conversation::of(&session, &events);
            assert_eq!((whole.turns, whole.messages.len(), whole.open.len()), (3, 6, 0));
            let settings = ProviderSettings {
                provider: match wire {
                    Wire::Anthropic => Name::Anthropic,
                    Wire::Openai => Name::Openai,
                    Wire::Ollama => Name::Ollama,
                },
                model: wire.model().to_owned(),
                thinking: (wire == Wire::Anthropic).then_some(ThinkingLevel::Low),
                base_url: Some(provider.base_url()),
            };
            // A process that died after any event: calls without a result are made again or answered before it goes on.
            for end in 1..=events.len() {
                let told = conversation::of(&session, &events[..end]);
                if !told.open.is_empty() {
                    continue;
                }
                provider.push(Turn::new().say("I go on."));
                let model = open(&settings, Some(KEY.into())).expect("the settings are right");
                let request = TurnRequest {
                    system: "You are an agent.".to_owned(),
                    prompt: "Go on.".to_owned(),
                    messages: told.messages,
                    ..TurnRequest::default()
                };
                let (sender, _events) = tokio::sync::mpsc::unbounded_channel();
                let cancel = tokio_util::sync::CancellationToken::new();
                let turn = model.turn(&request, &sender, &cancel).await.unwrap_or_else(|error| panic!("{error:?}"));
                assert_eq!(turn.text, "I go on.");
            }
        });
        assert_eq!(provider.refused(), Vec::<String>::new(), "{wire:?}");
    }
}
