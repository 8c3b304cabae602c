//! `runner image`: the images that agents run in.

pub mod build;
pub mod check;
pub mod ls;
mod probe;
pub mod rm;

use clap::Subcommand;

use crate::exit::Failure;

/// Examples, for the help of all of them.
pub(super) const AFTER: &str = "\
Examples:
  runner image build                       make runner/minimal
  sudo runner image build --base debian    make runner/base
  runner image ls
  runner image check debian:12";

/// What can be done with images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build runner/minimal or runner/base, without a registry
    Build(build::BuildArgs),
    /// List the engine's images and whether agents can run in them
    Ls(ls::LsArgs),
    /// Remove images, unless something is made from them
    Rm(rm::RmArgs),
    /// Say what an agent in this image will miss
    Check(check::CheckArgs),
}

/// Does it.
///
/// # Errors
/// As the subcommand says.
pub async fn run(command: ImageCommand) -> Result<u8, Failure> {
    match command {
        ImageCommand::Build(args) => build::run(args).await,
        ImageCommand::Ls(args) => ls::run(args).await,
        ImageCommand::Rm(args) => rm::run(args).await,
        ImageCommand::Check(args) => check::run(args).await,
    }
}
