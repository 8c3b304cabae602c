//! What `queue`, `locks`, `waits` and `calls` share: of which project, and as a table or as JSON.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;

use super::records::{Records, RecordsError, unless_closed};
use super::table::{self, Cell, Style};
use crate::observe::sanitise;
use crate::project::{Project, ProjectError};

/// Arguments of such a command.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OverviewArgs {
    /// Of all projects
    #[arg(short, long, conflicts_with = "project")]
    pub all: bool,
    /// The project's folder; else it is found upward from the working directory
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl OverviewArgs {
    /// The project that is meant, by its recorded path; none for all of them.
    pub(super) fn project(&self) -> Result<Option<String>, RecordsError> {
        match (&self.project, self.all) {
            (_, true) => Ok(None),
            (Some(folder), _) => Ok(Some(recorded(folder.clone()))),
            (None, _) => here().map(Some),
        }
    }
}

/// A project is recorded by its canonical path; one that is gone by now is looked for as it was typed.
pub(super) fn recorded(folder: PathBuf) -> String {
    std::fs::canonicalize(&folder).unwrap_or(folder).display().to_string()
}

/// The project that the working directory is in.
pub(super) fn here() -> Result<String, RecordsError> {
    let folder = std::env::current_dir()
        .map_err(|error| ProjectError::Unreadable { file: PathBuf::from("."), why: error.to_string() })?;
    Ok(Project::root_of(&folder)?.display().to_string())
}

/// Opens the records and lets `list` print what it finds of the project that is meant, as JSON or in the style of
/// standard output.
pub(super) async fn show(
    args: &OverviewArgs,
    list: impl AsyncFnOnce(&Records, Option<String>, bool, Style, &mut dyn Write) -> Result<u8, RecordsError>,
) -> Result<u8, RecordsError> {
    let project = args.project()?;
    let records = Records::open()?;
    unless_closed(list(&records, project, args.json, Style::of_stdout(), &mut io::stdout().lock()).await)
}

/// A row for people, and the same for programs.
pub(super) type Entry = (Vec<Cell>, Value);

/// Prints the entries.
pub(super) fn print(
    entries: Vec<Entry>,
    headings: &[&str],
    json: bool,
    style: Style,
    out: &mut dyn Write,
) -> Result<u8, RecordsError> {
    let (rows, objects): (Vec<Vec<Cell>>, Vec<Value>) = entries.into_iter().unzip();
    if json {
        writeln!(out, "{}", sanitise::json(&Value::from(objects).to_string()))?;
    } else {
        table::write(out, style, headings, &rows)?;
    }
    Ok(0)
}

/// Time from now until a moment, for people.
pub(super) fn left(until: i64, now: i64) -> String {
    table::duration(until - now)
}
