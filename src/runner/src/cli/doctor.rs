//! `runner doctor`: is this machine fit, and what is to be done.

use serde_json::json;

use super::output;
use super::table::Style;
use crate::doctor::{CHECKS, Finding, Level, examine};
use crate::exit::{ENGINE, Failure};
use crate::observe::sanitise;

/// Arguments of `runner doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Each line says ok, warning, error or skipped, what was looked at, what was seen, and what
to do. docs/troubleshooting.md has a section for each.

Examples:
  runner doctor
  runner doctor --fix      remove what sessions left behind, only ours; settings are not touched
  runner doctor --json | jq -r '.checks[] | select(.level == \"error\").remedy'

Exit code: 3 when a line says error, else 0.")]
pub struct DoctorArgs {
    /// Print JSON: {checks: [{name, level, seen, remedy}], fixed: [...]}
    #[arg(long)]
    pub json: bool,
    /// Remove leftovers of ended sessions, make missing folders, close our own files to others
    #[arg(long)]
    pub fix: bool,
}

/// Examines the machine.
///
/// # Errors
/// Standard output cannot be written.
pub async fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    let style = Style::of_stdout();
    let mut findings: Vec<Finding> = Vec::new();
    let mut printed = Ok(());
    let fixed = examine(args.fix, |finding| {
        if !args.json && printed.is_ok() {
            printed = output::line(&lines(&finding, style));
        }
        findings.push(finding);
    })
    .await;
    if args.json {
        let checks: Vec<_> = findings.iter().map(object).collect();
        printed = output::json(&json!({"checks": checks, "fixed": fixed}));
    } else if printed.is_ok() {
        printed = fixed.iter().try_for_each(|said| output::line(&format!("fix      {}", sanitise::line(said))));
        if args.fix && fixed.is_empty() && printed.is_ok() {
            printed = output::line("fix      there was nothing to do");
        }
    }
    output::check(printed)?;
    Ok(if findings.iter().any(|finding| finding.level == Level::Error) { ENGINE } else { 0 })
}

fn object(finding: &Finding) -> serde_json::Value {
    json!({
        "name": finding.check,
        "level": finding.level.as_str(),
        "seen": finding.seen,
        "remedy": finding.remedy,
    })
}

/// A finding for people: one line, and the remedy below it.
fn lines(finding: &Finding, style: Style) -> String {
    let word = finding.level.as_str();
    let painted = match finding.level {
        Level::Fine => style.good(word),
        Level::Warning => style.busy(word),
        Level::Error => style.bad(word),
        Level::Skipped => style.dim(word),
    };
    let widest = CHECKS.iter().map(|name| name.len()).max().unwrap_or_default();
    let (gap, check) = (" ".repeat(9 - word.len()), finding.check);
    let line = format!("{painted}{gap}{check:widest$}  {}", sanitise::line(&finding.seen));
    match &finding.remedy {
        Some(remedy) => format!("{line}\n{}→ {}", " ".repeat(9 + widest + 2), sanitise::line(remedy)),
        None => line,
    }
}
