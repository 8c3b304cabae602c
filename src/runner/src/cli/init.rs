//! `runner init`: a project to begin with.

use std::path::{Path, PathBuf};

use super::output;
use crate::exit::Failure;
use crate::observe::sanitise;
use crate::project::create_project;

/// Arguments of `runner init`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Makes config.toml, the agent hello and a script for it to play, so that it works without a
model's key. What exists is never written over.

Examples:
  runner init
  runner init mine && cd mine && runner start --agent hello")]
pub struct InitArgs {
    /// The project's folder, made when it is missing
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
}

/// Makes the project.
///
/// # Errors
/// A file of it exists, or the folder cannot be written.
pub fn run(args: &InitArgs) -> Result<u8, Failure> {
    // Here, without a `./` before every name.
    let folder = if args.folder.as_os_str() == "." { Path::new("") } else { &args.folder };
    let written = create_project(folder)?;
    let lines = written.iter().map(|path| format!("wrote {}\n", sanitise::line(&path.display().to_string())));
    let go = if folder.as_os_str().is_empty() {
        String::new()
    } else {
        format!("cd {} && ", sanitise::line(&folder.display().to_string()))
    };
    let all: String = lines.chain([format!("next: {go}runner start --agent hello")]).collect();
    output::check(output::line(&all))?;
    Ok(0)
}
