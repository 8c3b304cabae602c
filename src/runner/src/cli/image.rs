//! `runner image build`: the base image, without a registry.

use super::output;
use crate::exit::Failure;
use crate::sandbox::engine::Engine;
use crate::sandbox::image::Programs;

/// Arguments of `runner image build`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Takes the static bash and busybox of this machine (Debian: bash-static, busybox-static;
or RUNNER_STATIC_DIR) and loads runner/minimal into the engine. The same programs always
give the same image id.

Examples:
  runner image build
  RUNNER_STATIC_DIR=./static runner image build --quiet")]
pub struct BuildArgs {
    /// Print only the image's id
    #[arg(short, long)]
    pub quiet: bool,
}

/// Builds and loads the image.
///
/// # Errors
/// A program is missing, or the engine does not take the image.
pub async fn run(args: &BuildArgs) -> Result<u8, Failure> {
    let programs = Programs::find()?;
    let engine = Engine::connect(None).await?;
    let image = engine.build_minimal(&programs).await?;
    let line = if args.quiet { image.id } else { format!("{} is ready: {}", image.reference, image.id) };
    output::check(output::line(&line))?;
    Ok(0)
}
