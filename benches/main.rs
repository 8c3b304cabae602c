//! The figures that README promises, each against a floor that is measured in the same run, block by block in turn.
//!
//! `cargo bench -p runner --bench figures [-- NAME]` writes `target/bench/summary.json`. Needs an engine with the images
//! `runner/minimal` and `runner/base`, and gcc for the twin. Latencies are judged here and nowhere else.

mod engine;
mod floor;
mod place;
mod stats;

mod commits;
mod daemon;
mod edit;
mod journal;
mod link;
mod memory;
mod models;
#[allow(dead_code, unused_imports, reason = "shared with the tests, which use other parts")]
#[path = "../tests/harness/provider/mod.rs"]
mod provider;
mod search;
mod shell;
mod start;
mod store;
mod suspend;
mod waiting;
mod waits;
mod wake;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use place::Place;
use stats::Figure;

/// Every figure with its measurement, in the order of the README's table.
const FIGURES: [&str; 30] = [
    "link_ping",
    "read_1k",
    "read_1m",
    "edit_1m",
    "bash_true",
    "bash_vs_exec",
    "bash_vs_exec_base",
    "session_start",
    "session_stop",
    "toolbox_rss",
    "toolbox_rss_after_64m",
    "flood_rss",
    "journal_read",
    "journal_bash",
    "model_loop",
    "grep_big",
    "grep_small",
    "find_big",
    "suspend",
    "resume",
    "wake",
    "waiting_cpu",
    "waiting_rss",
    "match_waits",
    "match_waits_hot",
    "lock_pairs",
    "journal_appends",
    "journal_stall",
    "startup",
    "admission",
];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, path] = args.as_slice()
        && mode == floor::ECHO
    {
        return Ok(floor::echo_process(Path::new(path))?);
    }
    // cargo adds `--bench`.
    let only = args.iter().find(|arg| !arg.starts_with("--")).map(String::as_str);
    if let Some(name) = only
        && !FIGURES.contains(&name)
    {
        anyhow::bail!("there is no figure {name:?}; there are {}", FIGURES.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(only))?;
    write_summary(&figures)?;
    for figure in &figures {
        let verdict = if figure.ok { "ok  " } else { "MISS" };
        println!("{verdict} {:<22} {:>8} {} (bound {})", figure.name, figure.value, figure.unit, figure.bound);
        println!("     {}", figure.detail);
    }
    Ok(())
}

async fn measure(only: Option<&str>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut waiting = waiting::Measured::default();
    for name in FIGURES {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        eprintln!("measuring {name}");
        // A fresh place for each: nothing of one figure warms or burdens the next.
        let place = Place::new().await?;
        let figure = match name {
            "link_ping" => link::ping(&place).await,
            "read_1k" => link::read_1k(&place).await,
            "read_1m" => link::read_1m(&place).await,
            "edit_1m" => edit::one_in_1m(&place).await,
            "bash_true" => shell::against_twin(&place).await,
            "bash_vs_exec" => shell::against_exec(&place).await,
            "bash_vs_exec_base" => shell::against_exec_on_base(&place).await,
            "session_start" => start::start(&place).await,
            "session_stop" => start::stop(&place).await,
            "toolbox_rss" => memory::idle(&place).await,
            "toolbox_rss_after_64m" => memory::after_64m(&place).await,
            "flood_rss" => memory::flood(&place).await,
            "journal_read" => journal::read(&place).await,
            "journal_bash" => journal::bash(&place).await,
            "model_loop" => models::turn(&place).await,
            "grep_big" => search::grep_big(&place).await,
            "grep_small" => search::grep_small(&place).await,
            "find_big" => search::find_big(&place).await,
            "suspend" => suspend::suspend(&place).await,
            "resume" => suspend::resume(&place).await,
            "wake" => wake::wake(&place).await,
            name @ ("waiting_cpu" | "waiting_rss" | "startup") => match waiting.take(name) {
                Some(figure) => Ok(figure),
                None => waiting.measure(&place, name).await,
            },
            "admission" => wake::admission(&place).await,
            "match_waits" => waits::of_a_thousand(&place).await,
            "match_waits_hot" => waits::of_one(&place).await,
            "lock_pairs" => store::lock_pairs(&place).await,
            "journal_appends" => store::journal_appends(&place).await,
            _ => store::journal_stall(&place).await,
        };
        figures.push(figure.with_context(|| format!("measuring {name}"))?);
    }
    Ok(figures)
}

/// Writes the summary; a run of one figure replaces only that figure's line.
fn write_summary(new: &[Figure]) -> anyhow::Result<()> {
    let path = target_folder().join("bench/summary.json");
    fs::create_dir_all(path.parent().expect("it has a parent"))?;
    let old: Vec<serde_json::Value> =
        fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let line = |name: &&str| {
        let fresh = new.iter().find(|figure| figure.name == *name).map(|figure| serde_json::to_value(figure).ok());
        fresh.flatten().or_else(|| old.iter().find(|line| line["name"] == **name).cloned())
    };
    let lines: Vec<serde_json::Value> = FIGURES.iter().filter_map(line).collect();
    let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
    serde_json::to_writer_pretty(file, &lines)?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The workspace's target folder: this program lies in `release/deps` of it.
fn target_folder() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    own.ancestors().nth(3).expect("cargo puts it three folders down").to_owned()
}
