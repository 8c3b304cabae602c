//! `runner image build`: our images, without a registry.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{output, signals, table};
use crate::exit::{self, Failure};
use crate::observe::sanitise;
use crate::sandbox::engine::Engine;
use crate::sandbox::image::{Debian, DebianError, Image, Programs, Progress};

/// Arguments of `runner image build`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
minimal: takes the static bash and busybox of this machine (Debian: bash-static, busybox-static; or
RUNNER_STATIC_DIR) and loads runner/minimal. The same programs always give the same image id.

debian: makes runner/base, with git, python3, node, npm, gcc, make, curl, jq, ripgrep and ssh, by
debootstrap. Needs root, a mirror and some minutes; the packages come from where this machine's come from.

Examples:
  runner image build
  sudo runner image build --base debian")]
pub struct BuildArgs {
    /// What the image is made from
    #[arg(long, value_enum, default_value_t = Base::Minimal)]
    pub base: Base,
    /// With --base debian: the release, if not this machine's
    #[arg(long, value_name = "NAME")]
    pub suite: Option<String>,
    /// With --base debian: the mirror, if not those of this machine's apt
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Print only the image's id
    #[arg(short, long)]
    pub quiet: bool,
}

/// What an image is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Base {
    /// Static bash and busybox: runner/minimal
    Minimal,
    /// Debian's packages: runner/base
    Debian,
}

/// Builds and loads an image.
///
/// # Errors
/// Something to build from is missing, or the engine does not take the image.
pub async fn run(args: BuildArgs) -> Result<u8, Failure> {
    let image = match args.base {
        Base::Minimal if args.suite.is_some() || args.mirror.is_some() => {
            return Err(Failure::usage(
                "--suite and --mirror say where Debian's packages come from",
                "add --base debian",
            ));
        }
        Base::Minimal => minimal().await?,
        Base::Debian => debian(args.suite, args.mirror, args.quiet).await?,
    };
    let line = if args.quiet { image.id } else { format!("{} is ready: {}", image.reference, image.id) };
    output::check(output::line(&line))?;
    Ok(0)
}

async fn minimal() -> Result<Image, Failure> {
    let programs = Programs::find()?;
    let engine = Engine::connect(None).await?;
    Ok(engine.build_minimal(&programs).await?)
}

async fn debian(suite: Option<String>, mirror: Option<String>, quiet: bool) -> Result<Image, Failure> {
    let engine = Engine::connect(None).await?;
    let steps = Steps::new(quiet);
    let built =
        engine.build_base(&Debian { suite, mirror }, &|progress| steps.see(progress), &signals::interrupt()).await;
    steps.end();
    Ok(built?)
}

/// Shows the steps on standard error: a spinner on a terminal, a line for each step elsewhere.
struct Steps {
    quiet: bool,
    spinner: Option<ProgressBar>,
    begun: Cell<Option<Instant>>,
}

impl Steps {
    fn new(quiet: bool) -> Self {
        let spinner = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or(ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { quiet, spinner, begun: Cell::new(None) }
    }

    fn see(&self, progress: Progress<'_>) {
        match (progress, &self.spinner) {
            (Progress::Step(step), spinner) => {
                self.took();
                self.begun.set(Some(Instant::now()));
                match spinner {
                    Some(spinner) => {
                        spinner.set_prefix(step.to_owned());
                        spinner.set_message("");
                    }
                    None if self.quiet => {}
                    None => eprintln!("{}", sanitise::line(step)),
                }
            }
            (Progress::Line(line), Some(spinner)) => spinner.set_message(sanitise::line(line).into_owned()),
            (Progress::Line(_), None) => {}
        }
    }

    /// Leaves a line behind for a step that is over.
    fn took(&self) {
        if let (Some(spinner), Some(begun)) = (&self.spinner, self.begun.take()) {
            let took = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
            spinner.println(format!("{} ({})", spinner.prefix(), table::duration(took)));
        }
    }

    fn end(&self) {
        self.took();
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

impl From<DebianError> for Failure {
    fn from(error: DebianError) -> Self {
        let code = match &error {
            DebianError::Engine(error) => exit::engine_code(error),
            DebianError::Unable { .. } | DebianError::NoSources | DebianError::Flag { .. } => exit::USAGE,
            DebianError::Folder { .. } | DebianError::Step { .. } => 1,
            DebianError::Interrupted => exit::INTERRUPTED,
        };
        if let DebianError::Step { output, .. } = &error {
            for line in output {
                eprintln!("  {}", sanitise::line(line));
            }
        }
        Failure::new(code, &error)
    }
}
