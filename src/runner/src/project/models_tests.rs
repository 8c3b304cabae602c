//! `[models.<name>]` and `models`, right and wrong.

use proptest::prelude::*;

use super::tests::{MODEL, complaint, place};
use super::*;

/// The settings of a project's only model, which is written as `lines`.
fn provider(lines: &str) -> ProviderSettings {
    let place = place(&[("config.toml", &format!("[models.a]\n{lines}\n")), ("agents/a/SKILL.md", "Do.")]);
    let agent = Project::open(place.path()).and_then(|project| project.agent("a")).unwrap();
    match &agent.models[..] {
        [ModelSettings { name, source: ModelSource::Provider(settings) }] if name == "a" => settings.clone(),
        other => panic!("{other:?}"),
    }
}

/// The complaint about a project's only model.
fn wrong(lines: &str) -> String {
    complaint(&format!("[models.a]\n{lines}\n"), "")
}

/// The complaint about a server's address.
fn wrong_url(provider: &str, url: &str) -> String {
    wrong(&format!("provider = \"{provider}\"\nmodel = \"m\"\nbaseUrl = \"{url}\""))
}

/// The address as it is used.
fn url(provider: &str, url: &str) -> String {
    let lines = format!("provider = \"{provider}\"\nmodel = \"m\"\nbaseUrl = \"{url}\"");
    self::provider(&lines).base_url.unwrap()
}

#[test]
fn every_provider_is_read() {
    for expected in Provider::ALL {
        let url = if expected == Provider::Custom { "baseUrl = \"https://x/\"" } else { "" };
        let settings = provider(&format!("provider = \"{expected}\"\nmodel = \"some/model:free\"\n{url}"));
        assert_eq!(
            (settings.provider, settings.model.as_str(), settings.thinking),
            (expected, "some/model:free", None)
        );
    }
    for level in ThinkingLevel::ALL {
        let lines = format!(
            "provider = \"openai\"\nmodel = \"m\"\nauthType = \"api_key\"\nthinkingLevel = \"{}\"\nbaseUrl = \"https://h/v1\"",
            level.name()
        );
        let expected = ProviderSettings {
            provider: Provider::Openai,
            model: "m".to_owned(),
            thinking: Some(level),
            base_url: Some("https://h/v1/".to_owned()),
        };
        assert_eq!(provider(&lines), expected);
    }
}

/// bug 38: a wrong value names file, line, key, and what may stand there.
#[test]
fn wrong_values_name_their_place_and_the_remedy() {
    insta::assert_snapshot!(wrong("provider = \"scirpt\""), @r#"/config.toml:2:12: unknown provider "scirpt" [did you mean `script`?]"#);
    insta::assert_snapshot!(wrong("provider = \"gemini\""), @r#"/config.toml:2:12: unknown provider "gemini" [did you mean `google`?]"#);
    insta::assert_snapshot!(wrong("provider = \"zzz\""), @r#"/config.toml:2:12: unknown provider "zzz" [known: anthropic, openai, google, groq, xai, mistral, openrouter, ollama, custom, script]"#);
    insta::assert_snapshot!(wrong("provider = 3"), @"/config.toml:2:12: `models.a.provider` must be a string, not 3");
    insta::assert_snapshot!(wrong("file = \"x\""), @r#"/config.toml:1:9: `models.a` has no `provider` [provider = "anthropic", or another of the providers]"#);
    insta::assert_snapshot!(wrong("provider = \"script\""), @r#"/config.toml:1:9: `models.a` has no `file` [file = "script.json", relative to this config.toml]"#);
    insta::assert_snapshot!(wrong("provider = \"script\"\nfile = \"f\"\nmodel = \"m\""), @"/config.toml:4:9: `models.a.model` means nothing for the provider `script` [remove it]");
    insta::assert_snapshot!(wrong("provider = \"openai\"\nmodel = \"m\"\nfile = 3"), @"/config.toml:4:8: `models.a.file` means nothing for the provider `openai` [remove it]");
    insta::assert_snapshot!(wrong("provider = \"openai\""), @r#"/config.toml:1:9: `models.a` has no `model` [model = "…", openai's own name of it]"#);
    insta::assert_snapshot!(wrong("provider = \"openai\"\nmodel = \"\""), @r#"/config.toml:3:9: `models.a.model` is not a usable name: "" [1–200 characters as openai lists it, without spaces]"#);
    insta::assert_snapshot!(wrong("provider = \"openai\"\nmodel = \"a b\""), @r#"/config.toml:3:9: `models.a.model` is not a usable name: "a b" [1–200 characters as openai lists it, without spaces]"#);
    insta::assert_snapshot!(wrong("provider = \"google\"\nmodel = \"../files\""), @r#"/config.toml:3:9: `models.a.model` is not a usable name: "../files" [1–200 characters as google lists it, without spaces]"#);
    insta::assert_snapshot!(wrong("provider = \"openai\"\nmodel = \"m\"\nthinkingLevel = \"hihg\""), @r#"/config.toml:4:17: `models.a.thinkingLevel` must be one of off, minimal, low, medium, high, xhigh, not "hihg" [did you mean `high`?]"#);
    insta::assert_snapshot!(wrong("provider = \"openai\"\nmodel = \"m\"\nthinkingLevel = true"), @"/config.toml:4:17: `models.a.thinkingLevel` must be a string, not true");
    insta::assert_snapshot!(wrong("provider = \"anthropic\"\nmodel = \"m\"\nauthType = \"pi_auth\""), @r#"/config.toml:4:12: `models.a.authType` "pi_auth" is not supported [use authType = "api_key" with a key in ANTHROPIC_API_KEY]"#);
    insta::assert_snapshot!(wrong("provider = \"anthropic\"\nmodel = \"m\"\nauthType = \"oauth_token\""), @r#"/config.toml:4:12: `models.a.authType` "oauth_token" is not supported [use authType = "api_key" with a key in ANTHROPIC_API_KEY]"#);
    insta::assert_snapshot!(wrong("provider = \"anthropic\"\nmodel = \"m\"\nauthType = \"apikey\""), @r#"/config.toml:4:12: `models.a.authType` must be "api_key", not "apikey" [did you mean `api_key`?]"#);
    insta::assert_snapshot!(wrong("provider = \"anthropic\"\nmodle = \"m\""), @"/config.toml:3:1: unknown key `models.a.modle` [did you mean `models.a.model`?]");
    insta::assert_snapshot!(wrong("provider = \"anthropic\"\nzzz = \"m\""), @"/config.toml:3:1: unknown key `models.a.zzz` [known here: provider, model, file, authType, thinkingLevel, baseUrl]");
}

/// M-URL-1: a key is never sent in plain text over a network.
#[test]
fn servers_are_https_or_near() {
    assert_eq!(url("openai", "https://Proxy.example.com:8443/v1"), "https://proxy.example.com:8443/v1/");
    assert_eq!(url("openai", "https://h"), "https://h/");
    for host in ["localhost:1", "127.0.0.1", "127.1.2.3:8", "[::1]:8"] {
        assert_eq!(url("anthropic", &format!("http://{host}/v1/")), format!("http://{host}/v1/"));
    }
    for host in ["192.168.1.5:11434", "10.0.0.1", "172.31.0.1", "169.254.1.1", "[fd00::1]", "[fe80::1]"] {
        for provider in ["ollama", "custom"] {
            let lines = format!("provider = \"{provider}\"\nmodel = \"m\"\nbaseUrl = \"http://{host}\"");
            assert!(!self::provider(&lines).keeps_secrets(), "no key goes to {host}");
        }
        let said = wrong_url("anthropic", &format!("http://{host}/"));
        assert!(said.contains("config.toml:4:11: `models.a.baseUrl` is plain http to another machine"), "{said}");
    }
    assert!(provider("provider = \"openai\"\nmodel = \"m\"").keeps_secrets());
    assert!(provider("provider = \"ollama\"\nmodel = \"m\"\nbaseUrl = \"http://localhost:11434\"").keeps_secrets());
    insta::assert_snapshot!(wrong_url("openai", "http://h/v1"), @"/config.toml:4:11: `models.a.baseUrl` is plain http to another machine, which would show the key to the network [use https]");
    insta::assert_snapshot!(wrong_url("ollama", "http://localhost.example.com"), @"/config.toml:4:11: `models.a.baseUrl` is plain http to another machine [use https; plain http is for this machine and private addresses such as 192.168.1.5]");
    insta::assert_snapshot!(wrong_url("ollama", "http://172.32.0.1"), @"/config.toml:4:11: `models.a.baseUrl` is plain http to another machine [use https; plain http is for this machine and private addresses such as 192.168.1.5]");
}

/// M-URL-1: what is no address of a server is refused, and not repeated where it may hold a password.
#[test]
fn what_is_no_server_is_refused() {
    insta::assert_snapshot!(wrong("provider = \"custom\"\nmodel = \"m\""), @r#"/config.toml:1:9: `models.a` has no `baseUrl` [baseUrl = "https://…/v1", where the server answers OpenAI's chat format]"#);
    insta::assert_snapshot!(wrong_url("custom", "example.com/v1"), @r#"/config.toml:4:11: `models.a.baseUrl` is not a URL: relative URL without a base [such as "https://models.example.com/v1"]"#);
    insta::assert_snapshot!(wrong_url("custom", "file:///etc/passwd"), @r#"/config.toml:4:11: `models.a.baseUrl` must be http or https, not "file" [such as "https://models.example.com/v1"]"#);
    insta::assert_snapshot!(wrong_url("custom", "https://"), @r#"/config.toml:4:11: `models.a.baseUrl` is not a URL: empty host [such as "https://models.example.com/v1"]"#);
    insta::assert_snapshot!(wrong_url("custom", "https://me:secret@h/"), @"/config.toml:4:11: `models.a.baseUrl` has a user or a password in it [put the key into CUSTOM_API_KEY instead]");
    insta::assert_snapshot!(wrong_url("custom", "https://h/v1?key=secret"), @"/config.toml:4:11: `models.a.baseUrl` has a query or a fragment [end it after the path]");
    insta::assert_snapshot!(wrong_url("custom", "https://h/\\n"), @r#"/config.toml:4:11: `models.a.baseUrl` has a space or a control character [such as "https://models.example.com/v1"]"#);
    insta::assert_snapshot!(wrong_url("custom", &format!("https://h/{}", "a".repeat(2000))), @r#"/config.toml:4:11: `models.a.baseUrl` is longer than 2000 bytes [such as "https://models.example.com/v1"]"#);
}

const THREE: &str = "[models.main]\nprovider = \"script\"\nfile = \"turns.json\"\n[models.other]\nprovider = \"openai\"\n\
                     model = \"o\"\n[models.third]\nprovider = \"ollama\"\nmodel = \"q\"\n";

/// M-LIST-1: the first is asked, the others are for when it fails; nothing is guessed.
#[test]
fn an_agent_names_its_models() {
    insta::assert_snapshot!(complaint("", ""), @r#"/config.toml: no model: there is no [models.<name>] [add one with a `provider` and its `model`, or `provider = "script"` and a `file`]"#);
    insta::assert_snapshot!(complaint(THREE, ""), @r#"/agents/a/config.toml: `models` is missing and the project has several: `main`, `other`, `third` [name at least one, such as models = ["main"]]"#);
    insta::assert_snapshot!(complaint(THREE, "models = [\"main\", \"mian\"]"), @r#"/agents/a/config.toml:1:19: `models` names "mian", which the project does not have [did you mean `main`?]"#);
    insta::assert_snapshot!(complaint(THREE, "models = [\"zzz\"]"), @r#"/agents/a/config.toml:1:11: `models` names "zzz", which the project does not have [it has `main`, `other`, `third`]"#);
    insta::assert_snapshot!(complaint("", "models = [\"zzz\"]"), @r#"/agents/a/config.toml:1:11: `models` names "zzz", which the project does not have [the project's config.toml has no [models.<name>]]"#);
    insta::assert_snapshot!(complaint(THREE, "models = [\n\"main\",\n\"other\",\n\"main\"]"), @r#"/agents/a/config.toml:4:1: `models` names "main" twice [name each once: a model that failed is not asked again in the same turn]"#);
    insta::assert_snapshot!(complaint(THREE, "models = []"), @"/agents/a/config.toml:1:10: `models` is empty [name at least one, or remove `models` to take the project's only model]");
    insta::assert_snapshot!(complaint(THREE, "models = \"main\""), @r#"/agents/a/config.toml:1:10: `models` must be a list of strings, not "main""#);
    insta::assert_snapshot!(complaint(THREE, "models = [\"main\", 3]"), @"/agents/a/config.toml:1:19: `models` must be a list of strings, not 3");
    insta::assert_snapshot!(complaint(MODEL, "model = \"main\""), @"/agents/a/config.toml:1:1: unknown key `model` [did you mean `models`?]");
}

/// M-LIST-2: `--model` takes the place of the agent's list.
#[test]
fn a_command_line_can_name_others() {
    let files = [("config.toml", THREE), ("agents/a/SKILL.md", "Do."), ("agents/a/config.toml", "models = [\"main\"]")];
    let place = place(&files);
    let project = Project::open(place.path()).unwrap();
    let names = |models: &[&str]| {
        let models: Vec<String> = models.iter().map(|name| (*name).to_owned()).collect();
        match project.agent_on("a", &models) {
            Ok(agent) => agent.models.into_iter().map(|model| model.name).collect::<Vec<_>>().join(" "),
            Err(error) => format!("{error} [{}]", error.hint().unwrap_or_default()),
        }
    };
    assert_eq!(names(&[]), "main");
    assert_eq!(names(&["third", "other"]), "third other");
    insta::assert_snapshot!(names(&["othr"]), @r#"--model names "othr", which the project does not have [did you mean `other`?]"#);
    insta::assert_snapshot!(names(&["third", "third"]), @r#"--model names "third" twice [name each once: a model that failed is not asked again in the same turn]"#);
}

/// Text that is nearly a project's configuration.
fn nearly_a_config() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("provider"),
        Just("model"),
        Just("file"),
        Just("authType"),
        Just("thinkingLevel"),
        Just("baseUrl"),
        Just("models"),
        Just("local"),
        Just("zzz"),
    ];
    let value = prop_oneof![
        Just("\"script\"".to_owned()),
        Just("\"openai\"".to_owned()),
        Just("\"custom\"".to_owned()),
        Just("\"api_key\"".to_owned()),
        Just("\"high\"".to_owned()),
        Just("\"m\"".to_owned()),
        Just("[]".to_owned()),
        Just("\"http://[::1\"".to_owned()),
        Just("{}".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        "https?://[a-z.:@/\\[\\]?#%0-9]{0,20}".prop_map(|url| format!("\"{url}\"")),
        ".{0,12}".prop_map(|text| format!("{text:?}")),
        ".{0,8}",
    ];
    let line = prop_oneof![
        8 => (key, value).prop_map(|(key, value)| format!("{key} = {value}\n")),
        2 => Just("[models.a]\n".to_owned()),
        1 => Just("[models.b]\n".to_owned()),
        1 => ".{0,20}\n",
    ];
    prop::collection::vec(line, 0..10).prop_map(|lines| lines.concat())
}

proptest! {
    /// bug 38: whatever is written, it is read or refused with its file and line, and nothing panics.
    #[test]
    fn any_text_is_read_or_refused_with_its_place(text in nearly_a_config()) {
        let place = place(&[("config.toml", &text), ("agents/a/SKILL.md", "Do.")]);
        let root = place.path().canonicalize().unwrap();
        match Project::open(&root).and_then(|project| project.agent("a")) {
            Ok(agent) => prop_assert!(!agent.models.is_empty()),
            Err(ProjectError::Content { place, what, .. }) => {
                prop_assert!(place.position.is_some() || what.starts_with("no model") || what.contains("several"), "{what}");
                prop_assert!(place.file.starts_with(&root));
                prop_assert!(!what.is_empty());
            }
            Err(other) => prop_assert!(matches!(other, ProjectError::Unreadable { .. }), "{}", other),
        }
    }
}
