//! `runner image rm`: removes images that nothing is made from.

use crate::cli::output;
use crate::exit::{self, Failure};
use crate::sandbox::engine::Engine;

/// Arguments of `runner image rm`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Never by force: an image that a container is made from stays, and the container is named.

Example:
  runner image rm runner/base")]
pub struct RmArgs {
    /// The images
    #[arg(required = true, value_name = "IMAGE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub images: Vec<String>,
}

/// Removes them one by one; one that stays does not keep the others.
///
/// # Errors
/// Those that could not be removed; all but the last are said at once.
pub async fn run(args: RmArgs) -> Result<u8, Failure> {
    let engine = Engine::connect(None).await?;
    let mut failures = Vec::new();
    for image in &args.images {
        match engine.remove_image(image).await {
            Ok(()) => output::check(output::line(&format!("removed {image}")))?,
            Err(error) => failures.push(Failure::new(exit::engine_code(&error), &error)),
        }
    }
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        crate::cli::complain(failure);
    }
    Err(last)
}
