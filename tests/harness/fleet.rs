//! Several agents in one place, and what became of their sessions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::engine::engine;
use super::host::until;
use super::place::{Place, Ran};

/// A source of webhooks that every fleet of the tests has.
const SOURCE: &str = "[webhooks.github]\ntype = \"github\"\n";

impl Place {
    /// A place with these lines in the project's `config.toml` and these agents, each with its `config.toml` and the
    /// turns of its script. The agent `worker` is there too and says `done`.
    pub(crate) fn fleet(project: &str, agents: &[(&str, &str, Value)]) -> Self {
        let place = Self::new();
        let mut config = format!("{project}\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n{SOURCE}");
        place.agent("worker", "models = [\"script\"]\n");
        for (name, more, turns) in agents {
            let _ = write!(config, "[models.{name}]\nprovider = \"script\"\nfile = \"{name}.json\"\n");
            let turn_limit = if more.contains("maxTurns") { "" } else { "maxTurns = 10000\n" };
            place.agent(name, &format!("models = [\"{name}\"]\n{turn_limit}{more}\n"));
            place.turns(name, turns);
        }
        place.write("config.toml", config);
        place
    }

    /// Writes the script of an agent of the fleet.
    pub(crate) fn turns(&self, agent: &str, turns: &Value) {
        self.write(&format!("{agent}.json"), json!({"turns": turns}).to_string());
    }

    /// Leaves a session to whoever serves, and gives its id.
    #[track_caller]
    pub(crate) fn detach(&self, agent: &str) -> String {
        let ran = self.run(["start", "--agent", agent, "--detach", "--json"]);
        id_in(&ran.exits(0).stdout).unwrap_or_else(|| panic!("no session in {ran}"))
    }

    /// Runs an agent with the agents it calls to its end, without a daemon, and gives its id.
    #[track_caller]
    pub(crate) fn alone(&self, agent: &str) -> String {
        let ran = self.run(["start", "--agent", agent, "--json"]);
        id_in(&ran.exits(0).stdout).unwrap_or_else(|| panic!("no session in {ran}"))
    }

    /// What `runner VERB --json` prints.
    #[track_caller]
    pub(crate) fn listed(&self, verb: &str) -> Vec<Value> {
        let ran = self.run([verb, "--json"]);
        serde_json::from_value(ran.exits(0).json()).unwrap_or_else(|error| panic!("{error} in {ran}"))
    }

    /// What `runner ps --all --json` prints, oldest first.
    #[track_caller]
    pub(crate) fn ps_json(&self) -> Vec<Value> {
        let ran = self.run(["ps", "--all", "--json"]);
        let mut sessions: Vec<Value> = serde_json::from_value(ran.exits(0).json()).expect("a list");
        sessions.reverse();
        sessions
    }

    /// Ids of an agent's sessions, oldest first.
    #[track_caller]
    pub(crate) fn sessions_of(&self, agent: &str) -> Vec<String> {
        let of_agent = |session: &Value| {
            (session["agent"] == agent).then(|| session["session"].as_str().expect("an id").to_owned())
        };
        self.ps_json().iter().filter_map(of_agent).collect()
    }

    /// Waits for an agent's first session, and gives its id.
    #[track_caller]
    pub(crate) fn session_of(&self, agent: &str) -> String {
        let mut found = Vec::new();
        until(&format!("{agent} has a session"), || {
            found = self.sessions_of(agent);
            !found.is_empty()
        });
        found.swap_remove(0)
    }

    /// The state that `ps` shows of a session.
    #[track_caller]
    pub(crate) fn state_of(&self, session: &str) -> String {
        self.show(session)["state"].as_str().expect("a state").to_owned()
    }

    /// Waits until a session has ended, and gives the cause.
    #[track_caller]
    pub(crate) fn ended(&self, session: &str) -> String {
        let mut shown = Value::Null;
        until(&format!("{session} has ended"), || {
            shown = self.show(session);
            shown["state"] == "ended"
        });
        shown["cause"].as_str().expect("a cause").to_owned()
    }

    /// Waits until every session has ended.
    #[track_caller]
    pub(crate) fn all_ended(&self) {
        self.all_ended_within(Duration::from_mins(1));
    }

    /// Waits until every session has ended, for at most this long.
    #[track_caller]
    pub(crate) fn all_ended_within(&self, most: Duration) {
        let begun = Instant::now();
        loop {
            let live = self.listed("ps");
            if live.is_empty() {
                return;
            }
            assert!(begun.elapsed() < most, "{most:?} have passed and these are not over: {live:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a session waits and its container is paused.
    #[track_caller]
    pub(crate) fn waiting(&self, session: &str) {
        until(&format!("{session} waits"), || {
            let last = self
                .events(session)
                .into_iter()
                .rfind(|event| ["suspended", "resumed", "ended"].iter().any(|kind| event["kind"] == *kind));
            last.is_some_and(|event| event["kind"] == "suspended")
        });
        until(&format!("{session} is paused"), || self.is_paused(session));
    }

    /// What the engine says of a session's container.
    #[track_caller]
    pub(crate) fn container_of(&self, session: &str) -> Value {
        let shown = self.show(session);
        let name = shown["container"]["name"].as_str().unwrap_or_else(|| panic!("no container in {shown}"));
        let (_, found) = engine("GET", &format!("/containers/{name}/json"));
        found
    }

    /// The engine says that the session's container is paused.
    #[track_caller]
    pub(crate) fn is_paused(&self, session: &str) -> bool {
        self.container_of(session)["State"]["Paused"] == true
    }

    /// How many events of one kind a session's journal has.
    #[track_caller]
    pub(crate) fn kinds(&self, session: &str, kind: &str) -> usize {
        self.bodies(session, kind).len()
    }

    /// What a session's calls were answered: the id in the script, and the answer, as JSON when it is.
    #[track_caller]
    pub(crate) fn answers(&self, session: &str) -> Vec<(String, Value)> {
        let mut ids = BTreeMap::new();
        let mut answers = Vec::new();
        for event in self.events(session) {
            let body = &event["body"];
            if event["kind"] == "assistant" {
                for call in body["calls"].as_array().into_iter().flatten() {
                    let text = |name: &str| call[name].as_str().expect("a text").to_owned();
                    ids.insert(text("key"), text("provider_id"));
                }
            } else if event["kind"] == "tool_finished" {
                let text = body["text"].as_str().expect("a text");
                let answer = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
                answers.push((ids[body["key"].as_str().expect("a key")].clone(), answer));
            }
        }
        answers
    }

    /// The last answer to the call with this id in the script.
    #[track_caller]
    pub(crate) fn answer(&self, session: &str, id: &str) -> Value {
        let answers = self.answers(session);
        let found = answers.iter().rev().find(|(call, _)| call == id);
        found.unwrap_or_else(|| panic!("no answer to {id:?} in {answers:#?}")).1.clone()
    }

    /// Waits until the call with this id is answered, and gives the last answer.
    #[track_caller]
    pub(crate) fn answered(&self, session: &str, id: &str) -> Value {
        until(&format!("{id} is answered"), || self.answers(session).iter().any(|(call, _)| call == id));
        self.answer(session, id)
    }

    /// Whether the call with this id failed, and the cause that the runner gave.
    #[track_caller]
    pub(crate) fn failure(&self, session: &str, id: &str) -> (bool, Value) {
        let turns = self.bodies(session, "assistant");
        let calls = turns.iter().flat_map(|turn| turn["calls"].as_array().into_iter().flatten());
        let keys: Vec<&Value> = calls.filter(|call| call["provider_id"] == id).map(|call| &call["key"]).collect();
        let finished = self.bodies(session, "tool_finished");
        let last = finished.iter().rev().find(|body| keys.contains(&&body["key"])).expect("it is answered");
        (last["is_error"] == true, last["cause"].clone())
    }

    /// The same answer with what no two runs share replaced: ids of sessions by their agents, times and tokens by `…`.
    #[track_caller]
    pub(crate) fn tidy(&self, answer: &Value) -> Value {
        let mut names = BTreeMap::new();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for session in self.ps_json() {
            let agent = session["agent"].as_str().expect("a name").to_owned();
            let count = seen.entry(agent.clone()).or_default();
            *count += 1;
            let name = if *count == 1 { agent } else { format!("{agent}-{count}") };
            names.insert(session["session"].as_str().expect("an id").to_owned(), name);
        }
        tidied(answer, &names)
    }

    /// Emits a GitHub event of this kind for a repository, with more members of the payload.
    #[track_caller]
    pub(crate) fn emit(&self, event: &str, repo: &str, more: &Value) -> Ran {
        let mut payload = json!({
            "action": "opened",
            "repository": {"full_name": repo, "name": repo.rsplit('/').next(), "owner": {"login": "acme"}},
            "sender": {"login": "octocat"},
        });
        if let (Value::Object(payload), Value::Object(more)) = (&mut payload, more) {
            payload.extend(more.clone());
        }
        let path = self.write("event.json", payload.to_string());
        let path = path.to_str().expect("UTF-8");
        let ran = self.run(["emit", "webhook", "--source", "github", "--event", event, path]);
        ran.exits(0);
        ran
    }

    /// Asserts that nothing of the fleet is left: no session, queue, lock, wait, call, container, folder or driver.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        for verb in ["ps", "queue", "locks", "waits", "calls"] {
            assert_eq!(self.listed(verb), Vec::<Value>::new(), "`runner {verb}` still lists something");
        }
        // The daemon removes a sandbox after the session's end is recorded.
        until("containers and folders are gone", || self.containers().is_empty() && self.session_folders().is_empty());
    }
}

/// The first session id in a text.
fn id_in(text: &str) -> Option<String> {
    let id = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").expect("a pattern");
    id.find(text).map(|found| found.as_str().to_owned())
}

/// Members that differ from run to run.
const VOLATILE: [&str; 5] = ["fencing_token", "expires_at", "held_since", "waited_seconds", "deadline"];

fn tidied(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => {
            Value::from(names.iter().fold(text.clone(), |text, (id, name)| text.replace(id.as_str(), name)))
        }
        Value::Array(items) => items.iter().map(|item| tidied(item, names)).collect(),
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                let volatile = VOLATILE.contains(&key.as_str()) && !value.is_null();
                (key.clone(), if volatile { Value::from("…") } else { tidied(value, names) })
            };
            Value::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

/// Asserts that a value has these members, whatever else it has.
#[track_caller]
pub(crate) fn has(found: &Value, expected: &Value) {
    let (Value::Object(members), Value::Object(all)) = (expected, found) else {
        panic!("not two objects: {expected} in {found}");
    };
    let part: serde_json::Map<String, Value> =
        members.keys().filter_map(|key| Some((key.clone(), all.get(key)?.clone()))).collect();
    assert_eq!(&Value::Object(part), expected, "in {found}");
}
