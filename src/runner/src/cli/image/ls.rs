//! `runner image ls`: the engine's images, and whether agents can run in them.

use std::io;

use serde_json::{Value, json};

use crate::cli::output;
use crate::cli::table::{self, Cell, Style};
use crate::exit::Failure;
use crate::sandbox::engine::{Engine, EngineError};
use crate::sandbox::image::{BASE, MINIMAL};

/// Arguments of `runner image ls`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
The last column is what an image's settings show, and no shell is seen there; `runner image check IMAGE`
also looks inside.

Examples:
  runner image ls
  runner image ls --json")]
pub struct LsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists the images that have names.
///
/// # Errors
/// The engine does not answer.
pub async fn run(args: LsArgs) -> Result<u8, Failure> {
    let engine = Engine::connect(None).await?;
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for image in engine.images().await? {
        // Another may remove it while we look.
        let refused = match engine.image(&image.name).await {
            Ok(_) => None,
            Err(EngineError::ImageRefused { reason, .. }) => Some(reason),
            Err(EngineError::NoImage { .. }) => continue,
            Err(other) => return Err(other.into()),
        };
        let ours = [BASE, MINIMAL].contains(&image.name.strip_suffix(":latest").unwrap_or(&image.name));
        objects.push(json!({
            "image": image.name, "id": image.id, "size": image.size, "ours": ours,
            "usable": refused.is_none(), "refused": refused,
        }));
        let short = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
        rows.push(vec![
            Cell::new(&image.name),
            Cell::new(short.get(..12).unwrap_or(short)),
            Cell::new(&table::size(image.size)),
            match refused {
                None => Cell::painted("yes", Style::good),
                Some(reason) => Cell::painted(&format!("no: {reason}"), Style::bad),
            },
        ]);
    }
    output::check(if args.json {
        output::json(&Value::from(objects))
    } else {
        let none = rows.is_empty();
        let printed = table::write(
            &mut io::stdout().lock(),
            Style::of_stdout(),
            &["IMAGE", "ID", "SIZE", "FOR AGENTS, AS FAR AS SEEN"],
            &rows,
        );
        if none {
            eprintln!("the engine has none; `runner image build` makes one");
        }
        printed
    })?;
    Ok(0)
}
