//! What can be wrong with the files that people write.

use std::fmt;
use std::path::PathBuf;

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line and column, both from 1, when they are known.
    pub position: Option<(usize, usize)>,
}

impl Place {
    /// The place of the byte `offset` in `text`, the contents of `file`. Columns count characters.
    pub(super) fn at(file: impl Into<PathBuf>, text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        Self { file: file.into(), position: Some((line, before[line_start..].chars().count() + 1)) }
    }

    /// A file as a whole.
    pub(super) fn file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), position: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// Why a project or an agent cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// There is no project here.
    #[error("no project: neither {} nor a folder above it has a config.toml", .0.display())]
    NoProject(PathBuf),
    /// `--project` names something else.
    #[error("{} is not a project: it has no config.toml", .0.display())]
    NotAProject(PathBuf),
    /// The name fits no agent.
    #[error("{} has no agent `{name}`", project.display())]
    UnknownAgent {
        /// The project's folder.
        project: PathBuf,
        /// What was asked for.
        name: String,
        /// Names that are close to it, else all there are.
        near: Vec<String>,
    },
    /// A name or a folder that cannot be an agent's.
    #[error("{what}")]
    NotAnAgent {
        /// What is wrong, in words.
        what: String,
        /// What to do.
        hint: String,
    },
    /// A model that was asked for by name cannot be used.
    #[error("{what}")]
    Model {
        /// What is wrong, in words.
        what: String,
        /// What to do.
        hint: String,
    },
    /// What is to be made exists.
    #[error("{} exists already", .0.display())]
    Taken(PathBuf),
    /// A file cannot be read.
    #[error("{}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// A new file or its folder cannot be made.
    #[error("cannot write {}: {why}", file.display())]
    Unwritable {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// A file says something that cannot be.
    #[error("{place}: {what}")]
    Content {
        /// Where.
        place: Place,
        /// What is wrong, naming the key, the value and the range.
        what: String,
        /// What to do, when that is not obvious.
        hint: Option<String>,
    },
}

impl ProjectError {
    pub(super) fn content(place: Place, what: impl Into<String>) -> Self {
        Self::Content { place, what: what.into(), hint: None }
    }

    /// Where it is, when a file or folder is to blame.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Content { place, .. } => Some(place.clone()),
            Self::NoProject(path) | Self::NotAProject(path) | Self::Taken(path) => Some(Place::file(path)),
            Self::Unreadable { file, .. } | Self::Unwritable { file, .. } => Some(Place::file(file)),
            Self::UnknownAgent { .. } | Self::NotAnAgent { .. } | Self::Model { .. } => None,
        }
    }

    /// What is wrong, without the place that [`ProjectError::place`] tells.
    pub fn what(&self) -> String {
        match self {
            Self::Content { what, .. } => what.clone(),
            Self::Unreadable { why, .. } => why.clone(),
            other => other.to_string(),
        }
    }

    /// What the person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoProject(_) => {
                Some("go to a project's folder, name one with --project, or make one: `runner init`".to_owned())
            }
            Self::NotAProject(folder) => Some(format!("an empty {}/config.toml makes it one", folder.display())),
            Self::UnknownAgent { near, .. } if near.is_empty() => Some("make one: `runner new <name>`".to_owned()),
            Self::UnknownAgent { near, .. } => Some(format!("did you mean {}?", near.join(", "))),
            Self::NotAnAgent { hint, .. } | Self::Model { hint, .. } => Some(hint.clone()),
            Self::Taken(_) => Some("it is left as it is; choose another name or folder, or move it away".to_owned()),
            Self::Unwritable { .. } => {
                Some("name a folder that you can write to, or make room; nothing was left there".to_owned())
            }
            Self::Unreadable { .. } => None,
            Self::Content { hint, .. } => hint.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a = 1\nü = 2\n";
        assert_eq!(Place::at("f", text, 0).to_string(), "f:1:1");
        assert_eq!(Place::at("f", text, 9).to_string(), "f:2:3");
        assert_eq!(Place::at("f", text, 7).to_string(), "f:2:1", "inside a character is its beginning");
        assert_eq!(Place::at("f", text, 99).to_string(), "f:3:1");
    }
}
