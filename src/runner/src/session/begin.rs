//! How a session of an agent comes to be: queued, with all that is needed to drive it in its journal's first line.

use std::path::Path;
use std::path::PathBuf;

use serde_json::{Value, json};
use uuid::Uuid;

use super::journal::{Event, Started};
use super::prompt;
use crate::exit::Failure;
use crate::fleet::{Newcomers, NoNewcomer};
use crate::model::PromptParts;
use crate::project::{Agent, Project, ProjectError, Settings};
use crate::store::{NewEvent, NewSession, OwnerId, Place};

/// What a session is to be.
pub(crate) struct Order {
    /// What the model is told.
    pub(crate) parts: PromptParts,
    /// Files and folders of the host, and where they go.
    pub(crate) copy_in: Vec<(PathBuf, String)>,
    /// Files and folders of the sandbox, and the folders they go to.
    pub(crate) copy_out: Vec<(String, PathBuf)>,
    /// Leave the sandbox at the end.
    pub(crate) keep: bool,
    /// Names of the models that it thinks with instead of its own; none: its own.
    pub(crate) models: Vec<String>,
}

impl Order {
    /// A session that nobody gave files, a task or models.
    pub(crate) fn by(trigger: Value, agent: &Agent) -> Self {
        let parts = PromptParts { task: None, trigger, params: agent.params.clone() };
        Self { parts, copy_in: Vec::new(), copy_out: Vec::new(), keep: false, models: Vec::new() }
    }
}

/// Makes a queued session and its first line, to be recorded by whoever begins it.
///
/// # Errors
/// A path that is to be copied cannot be written in the journal.
pub(crate) fn begin(
    project: &Project,
    agent: &Agent,
    order: Order,
    owner: &OwnerId,
) -> Result<(NewSession, NewEvent), Failure> {
    let prompts = prompt::write(agent, &order.parts, &jiff::Timestamp::now().to_string());
    let started = Started {
        task: order.parts.task,
        trigger: order.parts.trigger,
        params: order.parts.params,
        model: agent.models.first().map(|model| model.name.clone()),
        models: order.models,
        folder: folder(project, agent)?,
        copy_in: pairs(order.copy_in.into_iter().map(|(from, to)| Ok((absolute(&from)?, to))))?,
        copy_out: pairs(order.copy_out.into_iter().map(|(from, to)| Ok((from, absolute(&to)?))))?,
        system: Some(prompts.system),
        prompt: Some(prompts.user),
        ..described(project, agent)
    };
    let session = NewSession {
        id: Uuid::now_v7().to_string(),
        project: started.project.clone(),
        agent: agent.name.clone(),
        owner: owner.clone(),
        container: None,
        keep: order.keep,
        place: Place { queue: Some(agent.settings.queue), max_tokens: agent.settings.max_tokens },
    };
    Ok((session, Event::Started(started).to_row()))
}

/// What the first line says of the agent and its limits.
pub(super) fn described(project: &Project, agent: &Agent) -> Started {
    Started {
        agent: agent.name.clone(),
        project: project.root.display().to_string(),
        params: agent.params.clone(),
        image: agent.settings.image.clone(),
        limits: limits(&agent.settings),
        ..Started::default()
    }
}

fn limits(settings: &Settings) -> Value {
    json!({
        "sandbox": settings.limits,
        "timeoutSeconds": settings.timeout.as_secs(),
        "bashTimeoutSeconds": settings.bash_timeout.as_secs(),
        "maxTurns": settings.max_turns,
        "maxTokens": settings.max_tokens,
    })
}

/// The agent's folder, unless its name leads there.
fn folder(project: &Project, agent: &Agent) -> Result<Option<String>, Failure> {
    if agent.folder == project.root.join("agents").join(&agent.name) {
        return Ok(None);
    }
    absolute(&agent.folder).map(Some)
}

fn pairs(copies: impl Iterator<Item = Result<(String, String), Failure>>) -> Result<Vec<(String, String)>, Failure> {
    copies.collect()
}

/// A path that means the same to every process.
fn absolute(path: &Path) -> Result<String, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()), "name another file or folder");
    let whole = std::path::absolute(path).map_err(|error| wrong(error.to_string()))?;
    let text = whole.to_str().ok_or_else(|| wrong("its name is no UTF-8, so no journal can hold it".to_owned()))?;
    Ok(text.to_owned())
}

/// Makes the sessions that `call_agent` asks for.
pub(crate) struct Beginner {
    project: Project,
    owner: OwnerId,
}

impl Beginner {
    /// Of this project's agents, for this runner.
    pub(crate) fn new(project: Project, owner: OwnerId) -> Self {
        Self { project, owner }
    }
}

impl Newcomers for Beginner {
    fn session(&self, agent: &str, trigger: Value) -> Result<(NewSession, NewEvent), NoNewcomer> {
        let names = self.project.agent_names();
        // A name is no path: an agent calls only those of its project.
        if !names.iter().any(|name| name == agent) {
            return Err(NoNewcomer::Unknown(names.into_iter().collect()));
        }
        let agent = self.project.agent(agent).map_err(|error: ProjectError| NoNewcomer::Invalid(error.to_string()))?;
        if agent.settings.scale == 0 {
            return Err(NoNewcomer::Disabled);
        }
        let order = Order::by(trigger, &agent);
        begin(&self.project, &agent, order, &self.owner).map_err(|failure| NoNewcomer::Invalid(failure.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROJECT: &str = "[models.m]\nprovider = \"script\"\nfile = \"turns.json\"\n";

    fn project(folder: &Path, agents: &[(&str, &str)]) -> Project {
        std::fs::write(folder.join("config.toml"), PROJECT).unwrap();
        std::fs::write(folder.join("turns.json"), r#"{"turns": []}"#).unwrap();
        for (name, config) in agents {
            let agent = folder.join(name);
            std::fs::create_dir_all(&agent).unwrap();
            let skill = format!("---\nname: {}\ndescription: x\n---\nWork.\n", name.rsplit('/').next().unwrap());
            std::fs::write(agent.join("SKILL.md"), skill).unwrap();
            std::fs::write(agent.join("config.toml"), config).unwrap();
        }
        Project::open(folder).unwrap()
    }

    fn owner() -> OwnerId {
        OwnerId { id: "me".to_owned(), host: "here".to_owned() }
    }

    /// All that another process needs to drive it is in the first line.
    #[test]
    fn the_first_line_says_all() {
        let folder = tempfile::tempdir().unwrap();
        let config = "models = [\"m\"]\nmaxTokens = 500\nmaxWorkQueueSize = 7\n";
        let project = project(folder.path(), &[("elsewhere/worker", config)]);
        let agent = project.agent(&folder.path().join("elsewhere/worker").display().to_string()).unwrap();
        let order = Order {
            parts: PromptParts {
                task: Some("do it".to_owned()),
                trigger: json!({"type": "manual"}),
                params: json!({}),
            },
            copy_in: vec![(PathBuf::from("notes"), "/tmp/notes".to_owned())],
            copy_out: vec![("/tmp/report".to_owned(), PathBuf::from("/out"))],
            keep: true,
            models: vec!["m".to_owned()],
        };
        let (session, line) = begin(&project, &agent, order, &owner()).unwrap();
        assert_eq!((session.keep, session.place.queue, session.place.max_tokens), (true, Some(7), Some(500)));
        assert_eq!(session.container, None, "whoever gives it a slot names the container");
        let started: Started = serde_json::from_str(&line.body).unwrap();
        let notes = std::env::current_dir().unwrap().join("notes").display().to_string();
        assert_eq!(started.copy_in, [(notes, "/tmp/notes".to_owned())]);
        assert_eq!(started.copy_out, [("/tmp/report".to_owned(), "/out".to_owned())]);
        assert_eq!(started.folder, Some(agent.folder.display().to_string()));
        assert_eq!((started.task.as_deref(), started.models.as_slice()), (Some("do it"), &["m".to_owned()][..]));
        let again = project.agent_on(started.folder.as_deref().unwrap(), &started.models).unwrap();
        assert_eq!(again, agent);
    }

    /// S-CALL-1: who cannot be called, and that no path leads to an agent outside the project.
    #[test]
    fn only_agents_of_the_project_can_be_called() {
        let folder = tempfile::tempdir().unwrap();
        let agents = [
            ("agents/worker", "models = [\"m\"]\n"),
            ("agents/idle", "models = [\"m\"]\nscale = 0\n"),
            ("agents/broken", "modells = 1\n"),
            ("elsewhere/worker", "models = [\"m\"]\n"),
        ];
        let beginner = Beginner::new(project(folder.path(), &agents), owner());
        let (session, line) = beginner.session("worker", json!({"type": "agent_trigger"})).unwrap();
        let started: Started = serde_json::from_str(&line.body).unwrap();
        assert_eq!((session.agent.as_str(), started.trigger), ("worker", json!({"type": "agent_trigger"})));
        assert_eq!(beginner.session("idle", Value::Null).unwrap_err(), NoNewcomer::Disabled);
        assert!(
            matches!(beginner.session("broken", Value::Null), Err(NoNewcomer::Invalid(why)) if why.contains("modells"))
        );
        let elsewhere = folder.path().join("elsewhere/worker").display().to_string();
        for name in ["nobody", "../elsewhere/worker", elsewhere.as_str()] {
            let known = ["broken", "idle", "worker"].map(str::to_owned).into_iter().collect();
            assert_eq!(beginner.session(name, Value::Null).unwrap_err(), NoNewcomer::Unknown(known), "{name}");
        }
    }
}
