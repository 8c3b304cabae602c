//! A project or one of its agents, checked as a whole: every mistake, and what could be loaded in spite of them.

use std::path::{Path, PathBuf};

use super::agent::{self, Agent};
use super::error::ProjectError;
use super::mistakes::Mistakes;
use super::{Project, unreadable};

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// The project, without what is wrong in its config.toml; none when that cannot be read at all.
    pub project: Option<Project>,
    /// The agents that nothing is wrong with, by name.
    pub agents: Vec<Agent>,
    /// How many were looked at.
    pub looked_at: usize,
    /// What is wrong, and the file or folder that was looked at then.
    pub mistakes: Vec<(PathBuf, ProjectError)>,
}

/// Checks the project in `root` and all its agents.
///
/// # Errors
/// The folder cannot be found, or is no project.
pub fn check_project(root: &Path) -> Result<Checked, ProjectError> {
    let root = root.canonicalize().map_err(|error| unreadable(root, &error))?;
    let mut checked = begin(&root)?;
    let agents = root.join("agents");
    let mut folders: Vec<PathBuf> = match std::fs::read_dir(&agents) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            checked.mistakes.push((agents.clone(), unreadable(&agents, &error)));
            Vec::new()
        }
    };
    // Hidden folders are other programs'.
    folders.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    folders.sort();
    for folder in folders {
        checked.look_at(&folder);
    }
    Ok(checked)
}

/// Checks the agent in `folder`, and the project that the folder is in.
///
/// # Errors
/// There is no such folder, or it is in no project.
pub fn check_agent(folder: &Path) -> Result<Checked, ProjectError> {
    let folder = folder.canonicalize().map_err(|error| unreadable(folder, &error))?;
    let root = Project::root_of(&folder)?;
    let mut checked = begin(&root)?;
    checked.look_at(&folder);
    Ok(checked)
}

/// Checks the project's own file.
fn begin(root: &Path) -> Result<Checked, ProjectError> {
    let mistakes = Mistakes::default();
    let project = match Project::load_noting(root, Some(&mistakes)) {
        Err(error @ ProjectError::NotAProject(_)) => return Err(error),
        loaded => Mistakes::keep(Some(&mistakes), loaded)?,
    };
    let file = root.join("config.toml");
    let mistakes = mistakes.into_list().into_iter().map(|error| (file.clone(), error)).collect();
    Ok(Checked { project, agents: Vec::new(), looked_at: 0, mistakes })
}

impl Checked {
    fn look_at(&mut self, folder: &Path) {
        self.looked_at += 1;
        // What an agent's file says cannot be judged without the project's.
        let Some(project) = &self.project else { return };
        let mistakes = Mistakes::default();
        // Errors are all among the mistakes.
        self.agents.extend(agent::check(project, folder, &mistakes).ok().flatten());
        self.mistakes.extend(mistakes.into_list().into_iter().map(|error| (folder.to_owned(), error)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        place
    }

    fn said(place: &tempfile::TempDir, checked: &Checked) -> String {
        let root = place.path().canonicalize().unwrap();
        let lines = checked.mistakes.iter().map(|(_, error)| format!("{error}\n"));
        lines.collect::<String>().replace(root.to_str().unwrap(), "")
    }

    #[test]
    fn every_mistake_of_every_file_is_named() {
        let place = place(&[
            (
                "config.toml",
                "colour = 1\nmaxTurns = 0\nprojectName = \"No\"\n[models.a]\nprovider = \"scrip\"\n[models.b]\n\
                 provider = 5\n[models.c]\nprovider = \"script\"\nfile = \"c.json\"\n[local]\nmemory = \"1m\"\npids = \"x\"\n",
            ),
            ("agents/good/SKILL.md", "Do."),
            ("agents/good/config.toml", "models = [\"a\"]\n"),
            ("agents/bad/SKILL.md", "---\nname: other\n---\nDo.\n"),
            ("agents/bad/config.toml", "models = [\"d\"]\nbashTimeout = 0\nhooks = 1\n[local]\ncpus = \"x\"\n"),
            ("agents/Bad Name/SKILL.md", "Do."),
            ("agents/empty/notes", ""),
            ("agents/.git/x", ""),
            ("agents/readme", ""),
        ]);
        let checked = check_project(place.path()).unwrap();
        assert_eq!(checked.looked_at, 4);
        assert_eq!(checked.agents.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>(), ["good"]);
        insta::assert_snapshot!(said(&place, &checked), @r#"
        /config.toml:1:1: unknown key `colour`
        /config.toml:2:12: `maxTurns` must be a whole number from 1 up, not 0
        /config.toml:3:15: `projectName` "No" is not a name
        /config.toml:5:12: unknown provider "scrip"
        /config.toml:7:12: `models.b.provider` must be a string, not 5
        /config.toml:12:10: local.memory is "1m"; it must be 64m to 16t
        /config.toml:13:8: `local.pids` must be a whole number, not "x"
        /agents/Bad Name: cannot be an agent: its name is "Bad Name"
        /agents/bad/SKILL.md: `name` is "other", but the folder is "bad"
        /agents/bad/config.toml:1:11: `models` names "d", which the project does not have
        /agents/bad/config.toml:2:15: `bashTimeout` must be a whole number of seconds in 1–604800, not 0
        /agents/bad/config.toml:3:1: `hooks` is not supported yet
        /agents/bad/config.toml:5:8: `local.cpus` must be a number, not "x"
        /agents/empty: is not an agent: it has no SKILL.md
        /agents/empty/config.toml: `models` is missing and the project has several: `a`, `b`, `c`
        "#);
    }

    /// CLI-8: a wrong value hides no other, and none is told twice.
    #[test]
    fn no_mistake_hides_another() {
        let place = place(&[
            (
                "config.toml",
                "[models.a]\nprovidr = \"script\"\nfile = \"a.json\"\n[models.b]\nprovider = \"openai\"\n\
                 model = \"x y\"\nthinkingLevel = \"hgh\"\nbaseUrl = \"http://example.com\"\napiKey = \"sk-1\"\n\
                 [local]\nimage = \"a b\"\nmemory = \"1k\"\ncpus = 6400\npids = 3\ntimeout = 0\n",
            ),
            ("agents/one/SKILL.md", "Do."),
            ("agents/one/config.toml", "models = [\"a\"]\n[local]\npids = 1\nruntime = \"\"\ntmpInodes = 1\n"),
        ]);
        let checked = check_project(place.path()).unwrap();
        let said = said(&place, &checked);
        let said = said.lines().map(|line| format!("{}\n", line.split([';', ',']).next().unwrap()));
        insta::assert_snapshot!(said.collect::<String>(), @r#"
        /config.toml:2:1: unknown key `models.a.providr`
        /config.toml:6:9: `models.b.model` is not a usable name: "x y"
        /config.toml:7:17: `models.b.thinkingLevel` must be one of off
        /config.toml:8:11: `models.b.baseUrl` is plain http to another machine
        /config.toml:9:1: `models.b.apiKey`: keys never stand in a project
        /config.toml:11:9: `local.image` is not a usable name: "a b"
        /config.toml:12:10: local.memory is "1k"
        /config.toml:13:8: local.cpus is 6400
        /config.toml:14:8: local.pids is 3
        /config.toml:15:11: `local.timeout` must be a whole number of seconds in 1–604800
        /agents/one/config.toml:3:8: local.pids is 1
        /agents/one/config.toml:4:11: `local.runtime` is not a usable name: ""
        /agents/one/config.toml:5:13: local.tmpInodes is 1
        "#);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_one_mistake() {
        let place = place(&[("config.toml", "= 1"), ("agents/a/SKILL.md", "Do.")]);
        let checked = check_project(place.path()).unwrap();
        assert!(checked.project.is_none() && checked.agents.is_empty());
        insta::assert_snapshot!(said(&place, &checked), @"/config.toml:1:1: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`");
    }

    #[test]
    fn one_agent_is_checked_with_its_project() {
        let place = place(&[
            ("config.toml", "[models.a]\nprovider = \"script\"\nfile = \"a.json\"\n"),
            ("agents/a/SKILL.md", "Do."),
            ("agents/b/SKILL.md", ""),
        ]);
        let checked = check_agent(&place.path().join("agents/a")).unwrap();
        assert_eq!((checked.looked_at, checked.agents.len(), checked.mistakes.len()), (1, 1, 0));
        let checked = check_agent(&place.path().join("agents/b")).unwrap();
        assert_eq!((checked.looked_at, checked.agents.len(), checked.mistakes.len()), (1, 0, 1));
        assert!(matches!(check_project(&place.path().join("agents")), Err(ProjectError::NotAProject(_))));
    }
}
