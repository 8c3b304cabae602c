//! A look into an image from inside: a sandbox of it, made like any other, that answers one command.

use std::fs;
use std::io;

use serde::Serialize;
use serde_json::json;

use crate::cli::progress::Notes;
use crate::cli::tool::Work;
use crate::cli::{means, signals};
use crate::exit::Failure;
use crate::project::Project;
use crate::session::journal::EndCause;
use crate::session::life::{Plan, live};

/// The command.
const PROBE: &str = include_str!("probe.sh");

/// Most characters of a version that are kept.
const LONGEST: usize = 80;

/// A program that the image has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) path: String,
    /// The first line of what it says of itself.
    pub(super) version: String,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) programs: Vec<Program>,
    /// Python's module for environments works.
    pub(super) venv: bool,
    /// `ls` and its like are GNU's.
    pub(super) gnu: bool,
    /// The file of certificate authorities.
    pub(super) certificates: Option<String>,
    /// The home folder, when it can be written and programs run from it.
    pub(super) home: Option<String>,
}

impl Found {
    pub(super) fn has(&self, program: &str) -> bool {
        self.programs.iter().any(|found| found.name == program)
    }

    /// Reads the probe's answer. It comes from the image, so a line that is none is passed over.
    fn read(answer: &str) -> Found {
        let mut found = Found::default();
        for line in answer.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["program", name, path, version] => found.programs.push(Program {
                    name: name.to_owned(),
                    path: path.to_owned(),
                    version: version.chars().take(LONGEST).collect(),
                }),
                ["has", "venv"] => found.venv = true,
                ["has", "gnu"] => found.gnu = true,
                ["certificates", file] => found.certificates = Some(file.to_owned()),
                ["home", folder] => found.home = Some(folder.to_owned()),
                _ => {}
            }
        }
        found
    }
}

/// Asks an image. An agent needs a project, so it gets one that lasts as long as the question.
pub(super) async fn ask(reference: &str) -> Result<Found, Failure> {
    let written = |error: io::Error| Failure {
        code: 1,
        message: format!("cannot write the probe's project: {error}"),
        hint: Some("set TMPDIR to a folder that can be written".to_owned()),
    };
    let folder = tempfile::Builder::new().prefix("runner-probe-").tempdir().map_err(written)?;
    let agent = folder.path().join("agents/image-check");
    fs::create_dir_all(&agent).map_err(written)?;
    let model = "[models.none]\nprovider = \"script\"\nfile = \"none.json\"\n";
    let local = format!("[local]\nimage = {}\n", json!(reference));
    let skill = "---\nname: image-check\ndescription: Looks into an image.\n---\n\nNothing is to be done.\n";
    for (path, content) in [("config.toml", format!("{model}{local}")), ("none.json", json!({"turns": []}).to_string())]
    {
        fs::write(folder.path().join(path), content).map_err(written)?;
    }
    fs::write(agent.join("SKILL.md"), skill).map_err(written)?;

    let project = Project::open(folder.path())?;
    let agent = project.agent("image-check")?;
    let means = means::open(&Notes).await?;
    let interrupt = signals::interrupt();
    let plan = Plan {
        project: &project,
        agent: &agent,
        keep: false,
        copy_in: Vec::new(),
        copy_out: Vec::new(),
        trigger: json!({"type": "image check"}),
    };
    let mut answer = None;
    let ended = live(&means, plan, &Notes, &interrupt, async |caller, limits| {
        let work = Work { caller, limits, interrupt: &interrupt };
        work.ask("bash", json!({"command": PROBE, "timeout": 60}), &mut answer).await
    })
    .await?;
    if ended.cause != EndCause::Done {
        return Err(Failure { code: ended.cause.exit_code(), message: ended.message, hint: None });
    }
    Ok(Found::read(&answer.map(|answer| answer.text).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_what_is_none_is_passed_over() {
        let answer =
            "program\tgit\t/usr/bin/git\tgit version 2\nprogram\tx\nhas\tgnu\nhome\t/tmp/home\n[exit code 1]\n";
        let found = Found::read(answer);
        assert!(found.has("git") && !found.has("x") && found.gnu && !found.venv);
        assert_eq!((found.home.as_deref(), found.certificates), (Some("/tmp/home"), None));
        let long = format!("program\ta\tb\t{}\n", "é".repeat(500));
        assert_eq!(Found::read(&long).programs[0].version.chars().count(), LONGEST);
    }
}
