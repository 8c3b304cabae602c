//! New projects and new agents, which work as they are written.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::agent::is_name;
use super::error::ProjectError;
use super::front_matter::Skill;
use super::{ModelSource, Project};

/// Files of a new project, and what is in them.
const PROJECT: [(&str, &str); 5] = [
    ("config.toml", include_str!("fresh/config.toml")),
    ("agents/hello/SKILL.md", include_str!("fresh/hello.md")),
    ("agents/hello/config.toml", include_str!("fresh/hello.toml")),
    ("models/hello.json", include_str!("fresh/hello.json")),
    (".gitignore", include_str!("fresh/gitignore")),
];

/// Makes a project with the agent `hello` in this folder, which is made when it is missing, and returns the files that
/// were written. A `.gitignore` that is there stays as it is.
///
/// # Errors
/// One of the files exists: nothing is written then. Or the folder cannot be written.
pub fn create_project(folder: &Path) -> Result<Vec<PathBuf>, ProjectError> {
    let wanted = PROJECT.iter().filter(|(name, _)| *name != ".gitignore" || !exists(&folder.join(name)));
    create(folder, wanted.map(|(name, text)| (*name, (*text).to_owned())))
}

impl Project {
    /// Makes an agent of this name in the project, and returns the files that were written.
    ///
    /// # Errors
    /// The name fits no agent, or its folder exists: nothing is written then. Or the folder cannot be written.
    pub fn create_agent(&self, name: &str) -> Result<Vec<PathBuf>, ProjectError> {
        if !is_name(name) {
            return Err(ProjectError::NotAnAgent {
                what: format!("{name:?} cannot be an agent's name"),
                hint: "names are lower-case letters and digits with single hyphens between, at most 64".to_owned(),
            });
        }
        let folder = self.root.join("agents").join(name);
        if exists(&folder) {
            return Err(taken(&folder));
        }
        // A script was written for another agent: any other model is a better guess.
        let mut models: Vec<_> = self.models().collect();
        models.sort_by_key(|model| matches!(model.source, ModelSource::Script { .. }));
        let models: Vec<String> = models.iter().map(|model| format!("{:?}", model.name)).collect();
        let models = match models.as_slice() {
            [] => "# models = [\"…\"]          # config.toml of the project has none yet: [models.<name>]".to_owned(),
            [only] => format!("models = [{only}]    # the project's only one"),
            [first, others @ ..] => format!("models = [{first}]    # or {}", others.join(", ")),
        };
        let skill = include_str!("fresh/agent.md").replace("NAME", name);
        let config = include_str!("fresh/agent.toml").replace("MODELS", &models);
        create(&folder, [("SKILL.md", skill), ("config.toml", config)])
    }
}

impl Skill {
    /// True when the instructions are still those of a fresh agent.
    pub fn is_untouched(&self) -> bool {
        let fresh = include_str!("fresh/agent.md").lines().find(|line| line.starts_with("Write here"));
        self.body.lines().next() == fresh
    }
}

/// Writes the files, all or none: half a project would be in the way of the next try.
fn create<'a>(folder: &Path, files: impl IntoIterator<Item = (&'a str, String)>) -> Result<Vec<PathBuf>, ProjectError> {
    let files: Vec<(PathBuf, String)> = files.into_iter().map(|(name, text)| (folder.join(name), text)).collect();
    if let Some((path, _)) = files.iter().find(|(path, _)| exists(path)) {
        return Err(taken(path));
    }
    let (mut written, mut made) = (Vec::new(), Vec::new());
    let wrote = files.iter().try_for_each(|(path, text)| write(path, text, &mut written, &mut made));
    if let Err(error) = wrote {
        // What cannot be removed any more stays, and the next try names it.
        for file in &written {
            let _ = fs::remove_file(file);
        }
        for folder in made.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
        return Err(error);
    }
    Ok(written)
}

/// Writes one file, and remembers it and the folders that were made for it.
fn write(path: &Path, text: &str, written: &mut Vec<PathBuf>, made: &mut Vec<PathBuf>) -> Result<(), ProjectError> {
    let parents: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty()).collect();
    for folder in parents.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => made.push(folder.to_owned()),
            // Also a mount that cannot be written has folders that are there.
            Err(_) if folder.is_dir() => {}
            Err(error) => return Err(unwritable(folder, &error)),
        }
    }
    // Somebody may have been faster: what is there is never replaced, links are not followed.
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => taken(path),
        _ => unwritable(path, &error),
    })?;
    written.push(path.to_owned());
    file.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> ProjectError {
    ProjectError::Unwritable { file: file.to_owned(), why: error.to_string() }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn taken(path: &Path) -> ProjectError {
    ProjectError::Taken(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_project_is_right_and_is_never_written_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        let written = create_project(&folder).unwrap();
        assert_eq!(written.len(), PROJECT.len());
        let project = Project::open(&folder).unwrap();
        assert_eq!(project.agent("hello").unwrap().name, "hello");

        fs::write(folder.join("config.toml"), "# mine").unwrap();
        fs::remove_dir_all(folder.join("agents")).unwrap();
        let error = create_project(&folder).unwrap_err();
        assert!(error.to_string().ends_with("config.toml exists already") && error.hint().is_some(), "{error}");
        assert!(!folder.join("agents").exists(), "nothing is half done");
        assert_eq!(fs::read_to_string(folder.join("config.toml")).unwrap(), "# mine");
    }

    /// A disk that is full in the middle, or a name that is too long: what was written goes again.
    #[test]
    fn what_fails_in_the_middle_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("mine");
        let long = format!("b/{}", "x".repeat(300));
        let error = create(&folder, [("a/one", String::new()), (&long, String::new())]).unwrap_err();
        assert!(matches!(error, ProjectError::Unwritable { .. }) && error.hint().is_some(), "{error}");
        assert!(!folder.exists(), "nothing is left of it");
        fs::create_dir(&folder).unwrap();
        create(&folder, [("a/one", String::new()), (&long, String::new())]).unwrap_err();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "what was there stays");
        let file = place.path().join("file");
        fs::write(&file, "mine").unwrap();
        insta::assert_snapshot!(create_project(&file).unwrap_err().hint().unwrap(), @"name a folder that you can write to, or make room; nothing was left there");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn an_ignore_file_that_is_there_stays() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(".gitignore"), "mine").unwrap();
        assert_eq!(create_project(place.path()).unwrap().len(), PROJECT.len() - 1);
        assert_eq!(fs::read_to_string(place.path().join(".gitignore")).unwrap(), "mine");
    }

    #[test]
    fn a_fresh_agent_fits_its_project() {
        let place = tempfile::tempdir().unwrap();
        create_project(place.path()).unwrap();
        let project = Project::open(place.path()).unwrap();
        assert_eq!(project.create_agent("tidy-up").unwrap().len(), 2);
        let agent = project.agent("tidy-up").unwrap();
        assert!(agent.skill.body.starts_with("Write here"), "{:?}", agent.skill);
        assert!(project.create_agent("tidy-up").unwrap_err().to_string().ends_with("agents/tidy-up exists already"));
        for bad in ["", "Tidy", "a/b", "..", "a--b", "-a", "a b"] {
            assert!(matches!(project.create_agent(bad), Err(ProjectError::NotAnAgent { .. })), "{bad:?}");
        }
        // With several models it names one.
        let two = format!("{}\n[models.other]\nprovider = \"ollama\"\nmodel = \"x\"\n", PROJECT[0].1);
        fs::write(place.path().join("config.toml"), two).unwrap();
        let project = Project::open(place.path()).unwrap();
        project.create_agent("second").unwrap();
        assert_eq!(project.agent("second").unwrap().models[0].name, "other", "no script of another agent");
        assert_eq!(project.agent("tidy-up").unwrap().models[0].name, "hello", "a second model changes nothing");
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", place.path().join("config.toml")).unwrap();
        assert!(matches!(create_project(place.path()), Err(ProjectError::Taken(_))));
    }
}
