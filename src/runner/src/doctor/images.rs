//! Our images: are they there, how old and how large are they?

use jiff::Timestamp;

use super::{Finding, NO_ENGINE, Usable};
use crate::sandbox::engine::EngineError;
use crate::sandbox::image::{BASE, MINIMAL};

/// Looks at them; gives the one that a probe can be made from.
pub(super) async fn examine(engine: Option<&Usable>) -> (Vec<Finding>, Option<String>) {
    let mut findings = Vec::new();
    let mut probe = None;
    for (check, reference) in [("image-minimal", MINIMAL), ("image-base", BASE)] {
        let Some(usable) = engine else {
            findings.push(Finding::skipped(check, NO_ENGINE));
            continue;
        };
        findings.push(match usable.engine.image(reference).await {
            Ok(_) => {
                probe = probe.or_else(|| Some(reference.to_owned()));
                Finding::fine(check, format!("{reference}{}", age_and_size(usable, reference).await))
            }
            Err(EngineError::NoImage { .. }) => missing(check, reference),
            Err(error) => Finding::from_error(check, &error),
        });
    }
    (findings, probe)
}

/// Agents may all name other images, so a missing one of ours is no error.
fn missing(check: &'static str, reference: &str) -> Finding {
    let (seen, remedy) = if check == "image-minimal" {
        (format!("{reference}, which agents get that name no image, is not there"), "make it: `runner image build`")
    } else {
        (
            format!("{reference} is not there"),
            "if an agent needs git, python3 or node: `runner image build --base debian`",
        )
    };
    Finding::warning(check, seen, remedy)
}

async fn age_and_size(usable: &Usable, reference: &str) -> String {
    let Ok((created, size)) = usable.engine.image_age_and_size(reference).await else { return String::new() };
    let size = size >> 20;
    // An image of ours with a date in 1970 is one that is the same whenever it is made.
    match created.and_then(|created| days_since(&created)).filter(|days| *days < 365 * 50) {
        Some(days) => format!(", {size} MiB, {days} days old"),
        None => format!(", {size} MiB"),
    }
}

fn days_since(created: &str) -> Option<i64> {
    let created: Timestamp = created.parse().ok()?;
    Some((Timestamp::now().as_second() - created.as_second()).max(0) / (24 * 3600))
}
