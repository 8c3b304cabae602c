//! `runner image check`: whether agents can run in an image, and what they will miss there.

use std::io::{self, Write};

use serde::Serialize;

use super::probe::{self, Found, Program};
use crate::cli::output;
use crate::cli::table::{self, Cell, Style};
use crate::exit::Failure;
use crate::sandbox::engine::{Engine, EngineError};
use crate::sandbox::environment;
use crate::sandbox::image::Image;

/// What agents use programs for: the words of what is missing without one.
const USES: [(&str, &str); 14] = [
    ("bash", "commands run in sh, which knows less than bash"),
    ("git", "no version control, no patches by git diff"),
    ("python3", "no Python scripts"),
    ("pip3", "no Python packages can be installed"),
    ("node", "no JavaScript"),
    ("npm", "no npm scripts"),
    ("rg", "no ripgrep in commands; the tools grep and find need none"),
    ("curl", "no HTTP from commands, for agents that have a network"),
    ("jq", "no JSON in shell lines"),
    ("gcc", "no C compiler"),
    ("make", "no Makefiles"),
    ("ssh", "no ssh, nor git over it, for agents that have a network"),
    ("tar", "no archives"),
    ("awk", "no awk in shell lines"),
];

/// Arguments of `runner image check`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Starts a sandbox of the image, as for an agent, asks it, and removes it.
What an agent will miss is no failure: it may not need it.

Examples:
  runner image check runner/base
  runner image check debian:12 --json

Exit codes: 0 agents can run in it · 3 the engine has no such image, or failed · 6 it is refused")]
pub struct CheckArgs {
    /// The image
    #[arg(value_name = "IMAGE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub image: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What is known of an image at the end.
#[derive(Debug, Serialize)]
struct Report<'a> {
    image: &'a str,
    id: &'a str,
    size: u64,
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    programs: &'a [Program],
    missing: Vec<Missing>,
    home: Option<&'a str>,
    certificates: Option<&'a str>,
    /// Names of its variables that commands do not get, and why.
    dropped_variables: Vec<(String, &'static str)>,
    labels: Vec<(&'a str, &'a str)>,
}

/// Something that is not there.
#[derive(Debug, Serialize)]
struct Missing {
    name: &'static str,
    consequence: &'static str,
}

/// Checks an image.
///
/// # Errors
/// The engine fails, or the image is refused, by what its settings show or by what its PID 1 found.
pub async fn run(args: CheckArgs) -> Result<u8, Failure> {
    let engine = Engine::connect(None).await?;
    let image = match engine.image(&args.image).await {
        Ok(image) => image,
        Err(error) => {
            if let (true, EngineError::ImageRefused { reason, .. }) = (args.json, &error) {
                let refused = serde_json::json!({"image": args.image, "usable": false, "refused": reason});
                output::check(output::json(&refused))?;
            }
            return Err(error.into());
        }
    };
    let (_, size) = engine.image_age_and_size(&image.id).await?;
    let asked = probe::ask(&args.image).await;
    let (found, refusal) = match asked {
        Ok(found) => (found, None),
        // PID 1 refused it; everything else says nothing about the image.
        Err(failure) if failure.code == crate::exit::POLICY => (Found::default(), Some(failure)),
        Err(failure) => return Err(failure),
    };
    let refused = refusal.as_ref().map(|failure| failure.message.as_str());
    let report = Report::of(&image, size, &found, refused);
    output::check(if args.json {
        output::json(&report)
    } else if refused.is_none() {
        report.write(&mut io::stdout().lock(), Style::of_stdout())
    } else {
        Ok(())
    })?;
    refusal.map_or(Ok(0), Err)
}

impl<'a> Report<'a> {
    fn of(image: &'a Image, size: u64, found: &'a Found, refused: Option<&'a str>) -> Self {
        let mut missing = Vec::new();
        let mut miss = |there: bool, name, consequence| {
            if !there && refused.is_none() {
                missing.push(Missing { name, consequence });
            }
        };
        for (program, consequence) in USES {
            miss(found.has(program), program, consequence);
        }
        miss(!found.has("python3") || found.venv, "venv", "no Python environments (python3-venv)");
        miss(found.gnu, "GNU tools", "options of ls, sed, grep, find and their like that only GNU has");
        miss(found.home.is_some(), "home", "programs that keep settings fail: its /tmp cannot be used");
        miss(found.certificates.is_some(), "certificates", "no HTTPS, for agents that have a network");
        let mut labels: Vec<(&str, &str)> =
            image.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        labels.sort_unstable();
        let dropped = environment::names_to_drop(&image.environment).into_iter();
        Report {
            image: &image.reference,
            id: &image.id,
            size,
            usable: refused.is_none(),
            refused,
            programs: &found.programs,
            missing,
            home: found.home.as_deref(),
            certificates: found.certificates.as_deref(),
            dropped_variables: dropped
                .map(|name| {
                    let why = environment::refusal(&name).unwrap_or("its value is too long or no text");
                    (name, why)
                })
                .collect(),
            labels,
        }
    }

    fn write(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        writeln!(out, "{} {}", style.bold(self.image), style.dim(&format!("{}, {}", self.id, table::size(self.size))))?;
        let mut rows = Vec::new();
        let cell = |text: &str| Cell::new(text);
        for program in self.programs {
            rows.push(vec![Cell::painted("has", Style::good), cell(&program.name), cell(&program.version)]);
        }
        if let Some(file) = self.certificates {
            rows.push(vec![Cell::painted("has", Style::good), cell("certificates"), cell(file)]);
        }
        if let Some(home) = self.home {
            let what = format!("{home}: settings can be written, programs run from it");
            rows.push(vec![Cell::painted("has", Style::good), cell("home"), cell(&what)]);
        }
        for missing in &self.missing {
            rows.push(vec![Cell::painted("lacks", Style::busy), cell(missing.name), cell(missing.consequence)]);
        }
        for (name, why) in &self.dropped_variables {
            rows.push(vec![Cell::painted("drops", Style::busy), cell(name), cell(why)]);
        }
        for (name, value) in &self.labels {
            rows.push(vec![Cell::painted("label", Style::dim), cell(name), cell(value)]);
        }
        table::write(out, style, &["", "WHAT", ""], &rows)?;
        writeln!(out, "agents can run in it")
    }
}
