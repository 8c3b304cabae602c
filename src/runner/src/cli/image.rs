//! `runner image`: the images that agents run in.

pub mod build;

use clap::Subcommand;

use crate::exit::Failure;

/// What can be done with images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build runner/minimal or runner/base, without a registry
    Build(build::BuildArgs),
}

/// Does it.
///
/// # Errors
/// As the subcommand says.
pub async fn run(command: ImageCommand) -> Result<u8, Failure> {
    match command {
        ImageCommand::Build(args) => build::run(args).await,
    }
}
