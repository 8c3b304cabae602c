//! `runner completions`: what a shell needs to complete the command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, output};
use crate::exit::Failure;

/// Arguments of `runner completions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  . <(runner completions bash)              in this shell
  runner completions bash >~/.local/share/bash-completion/completions/runner
  runner completions zsh >~/.zfunc/_runner  with ~/.zfunc in fpath
  runner completions fish >~/.config/fish/completions/runner.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the shell's script.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    // Into memory first: the generator panics where it cannot write, and a reader who has left is no bug.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "runner", &mut script);
    let mut out = io::stdout().lock();
    output::check(out.write_all(&script).and_then(|()| out.flush()))?;
    Ok(0)
}
