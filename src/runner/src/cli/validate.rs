//! `runner validate`: every mistake in a project.

use std::path::PathBuf;

use serde_json::json;

use super::output;
use super::table::{Style, count};
use crate::doctor::project::{Complaint, validate};
use crate::exit::{Failure, USAGE};
use crate::observe::sanitise;

/// Arguments of `runner validate`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Reads config.toml, every agent and every script, and asks the engine, if there is one, for
the images. A missing key or image is a warning: another machine may have it.

Examples:
  runner validate
  runner validate agents/review
  runner validate --json | jq -r '.[] | select(.level == \"error\").file'

Exit code: 2 when something is wrong, else 0.")]
pub struct ValidateArgs {
    /// A project's folder or an agent's; else the project that the working directory is in
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Print a JSON array of {level, file, line, column, message, hint}
    #[arg(long)]
    pub json: bool,
}

/// Validates.
///
/// # Errors
/// There is no project.
pub async fn run(args: &ValidateArgs) -> Result<u8, Failure> {
    let found = validate(args.path.as_deref()).await?;
    let errors = found.complaints.iter().filter(|complaint| complaint.is_error).count();
    if args.json {
        let all: Vec<_> = found.complaints.iter().map(object).collect();
        output::check(output::json(&all))?;
    } else {
        let style = Style::of_stdout();
        let complaints: String = found.complaints.iter().map(|complaint| lines(complaint, style)).collect();
        let warnings = found.complaints.len() - errors;
        let verdict = match (errors, warnings) {
            (0, 0) => style.good("all is right"),
            (0, _) => format!("{}, {}", style.good("nothing is wrong"), counted(warnings, "warning")),
            (_, 0) => style.bad(&counted(errors, "error")),
            _ => format!("{}, {}", style.bad(&counted(errors, "error")), counted(warnings, "warning")),
        };
        let project = sanitise::line(&found.root.display().to_string()).into_owned();
        let agents = counted(found.agents, "agent");
        output::check(output::line(&format!("{complaints}{project}, {agents}: {verdict}")))?;
    }
    Ok(if errors == 0 { 0 } else { USAGE })
}

fn counted(number: usize, thing: &str) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX), thing)
}

fn lines(complaint: &Complaint, style: Style) -> String {
    let place = match complaint.position {
        Some((line, column)) => format!("{}:{line}:{column}", complaint.file.display()),
        None => complaint.file.display().to_string(),
    };
    let level = if complaint.is_error { style.bad("error") } else { style.busy("warning") };
    let line = format!("{level}: {}: {}\n", sanitise::line(&place), sanitise::line(&complaint.message));
    match &complaint.hint {
        Some(hint) => format!("{line}  hint: {}\n", sanitise::line(hint)),
        None => line,
    }
}

fn object(complaint: &Complaint) -> serde_json::Value {
    json!({
        "level": if complaint.is_error { "error" } else { "warning" },
        "file": complaint.file.display().to_string(),
        "line": complaint.position.map(|(line, _)| line),
        "column": complaint.position.map(|(_, column)| column),
        "message": complaint.message,
        "hint": complaint.hint,
    })
}
