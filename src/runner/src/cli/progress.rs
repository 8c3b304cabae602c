//! The progress of a session on standard output: a spinner and lines on a terminal, plain lines elsewhere, or NDJSON.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::output;
use super::render::arguments;
use super::speech::Speech;
use super::table::{Style, count, duration};
use crate::observe::sanitise;
use crate::session::progress::{Progress, Watcher};

/// Whoever shows progress in the way that standard output asks for.
pub(super) fn watcher(json: bool) -> Box<dyn Watcher> {
    if json {
        return Box::new(Json);
    }
    let spinner = io::stdout().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}").unwrap_or(ProgressStyle::default_spinner()),
        );
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    });
    Box::new(Lines { spinner, style: Style::of_stdout(), begun: Instant::now(), seen: RefCell::default() })
}

/// Only what somebody should know, on standard error: for commands whose output is their result.
pub(super) struct Notes;

impl Watcher for Notes {
    fn see(&self, progress: &Progress<'_>) {
        match progress {
            Progress::Note { message } => eprintln!("note: {}", sanitise::line(message)),
            Progress::Copied { from, skipped, .. } => {
                for left in *skipped {
                    eprintln!("note: left out of {}: {}", sanitise::line(from), sanitise::line(left));
                }
            }
            _ => {}
        }
    }
}

/// One JSON object a line.
struct Json;

impl Watcher for Json {
    fn see(&self, progress: &Progress<'_>) {
        // Programs get texts whole: parts may turn out to be void.
        if matches!(progress, Progress::Writing { .. }) {
            return;
        }
        // A reader who has left is no reason to fail: the session goes on.
        let _ = output::json(progress);
    }
}

/// Lines for people.
struct Lines {
    spinner: Option<ProgressBar>,
    style: Style,
    begun: Instant,
    seen: RefCell<Seen>,
}

/// What the summary counts.
#[derive(Default)]
struct Seen {
    turns: u32,
    calls: u32,
    failed: u32,
    container: Option<String>,
    /// How the model failed last in this turn, and how often.
    failing: Option<(String, u32)>,
    /// What the model is writing.
    speech: Speech,
    /// Arguments of calls that run, by key.
    running: Vec<(String, String)>,
}

impl Watcher for Lines {
    fn see(&self, progress: &Progress<'_>) {
        let seen = &mut *self.seen.borrow_mut();
        for line in lines(progress, seen, self.begun.elapsed(), self.style) {
            match &self.spinner {
                Some(spinner) => spinner.println(line),
                None => drop(output::line(&line)),
            }
        }
        if let Some(spinner) = &self.spinner {
            match activity(progress, seen) {
                Activity::Now(text) => spinner.set_message(text),
                Activity::Same => {}
                Activity::Over => spinner.finish_and_clear(),
            }
        }
    }
}

/// Characters of the line that is being written, as the spinner shows them.
const WRITING: usize = 60;

/// What the spinner says.
enum Activity {
    Now(String),
    Same,
    Over,
}

fn activity(progress: &Progress<'_>, seen: &Seen) -> Activity {
    match progress {
        Progress::Queued { .. } => Activity::Now("waiting for a slot".to_owned()),
        Progress::Started { .. } => Activity::Now("making the sandbox".to_owned()),
        Progress::Waiting { on, .. } => Activity::Now(format!("waiting for {}", sanitise::line(&clipped(on)))),
        Progress::SandboxReady { .. }
        | Progress::Resumed { .. }
        | Progress::Thinking { .. }
        | Progress::Retry { .. }
        | Progress::Fallback { .. } => Activity::Now("thinking".to_owned()),
        Progress::Writing { .. } => match seen.speech.tail(WRITING) {
            Some(tail) => Activity::Now(tail),
            None => Activity::Same,
        },
        Progress::ToolStarted { name, .. } => Activity::Now(sanitise::line(&clipped(name)).into_owned()),
        Progress::ToolFinished { .. } if seen.running.is_empty() => Activity::Now("thinking".to_owned()),
        Progress::Removing => Activity::Now("removing the sandbox".to_owned()),
        Progress::Ended { .. } => Activity::Over,
        _ => Activity::Same,
    }
}

/// The lines for one thing that happened, sanitised; and what the summary counts.
fn lines(progress: &Progress<'_>, seen: &mut Seen, elapsed: Duration, style: Style) -> Vec<String> {
    match progress {
        Progress::Queued { session, agent, why } => {
            vec![
                format!("{} {}", style.bold(agent), style.dim(&format!("session {session}"))),
                style.busy(&format!("queued: {why}")),
            ]
        }
        Progress::Waiting { on, deadline, .. } => {
            let until = Timestamp::from_millisecond(*deadline).unwrap_or(Timestamp::MAX);
            vec![style.busy(&format!("waits for {on}, until {until:.0}; its container is paused"))]
        }
        Progress::Resumed { by, .. } => vec![style.busy(&format!("goes on: {by}"))],
        Progress::Started { session, agent, image } => {
            vec![format!("{} {}", style.bold(agent), style.dim(&format!("session {session}, image {image}")))]
        }
        Progress::SandboxReady { container, duration_ms } => {
            seen.container = Some((*container).to_owned());
            vec![style.dim(&format!("sandbox ready in {} (container {})", took(*duration_ms), short(container)))]
        }
        Progress::Copied { from, to, files, bytes, skipped } => {
            let mut lines = vec![style.dim(&format!(
                "copied {from} to {to}: {}, {}",
                count(*files, "file"),
                count(*bytes, "byte")
            ))];
            lines.extend(skipped.iter().map(|left| format!("  {}", style.busy(&format!("left out: {left}")))));
            lines
        }
        Progress::Thinking { turn } => {
            seen.turns = *turn;
            seen.failing = None;
            Vec::new()
        }
        Progress::Writing { text } => seen.speech.write(text),
        Progress::Text { text } => seen.speech.end(text),
        Progress::Retry { error, wait_ms } => {
            let mut lines = seen.speech.break_off();
            let wait = took(*wait_ms);
            match &mut seen.failing {
                // Said once, it need not be said again.
                Some((words, times)) if words == error => {
                    *times += 1;
                    lines.push(style.busy(&format!("the model failed again ({times} times); again in {wait}")));
                }
                failing => {
                    *failing = Some(((*error).to_owned(), 1));
                    lines.push(style.busy(&format!("the model failed: {error}; again in {wait}")));
                }
            }
            lines
        }
        Progress::Fallback { from, to, error } => {
            let mut lines = seen.speech.break_off();
            seen.failing = None;
            lines.push(style.busy(&format!("the model {from} failed: {error}; {to} is asked instead")));
            lines
        }
        Progress::ToolStarted { key, args, .. } => {
            seen.running.push(((*key).to_owned(), arguments(args, false)));
            Vec::new()
        }
        Progress::ToolFinished { key, name, is_error, cause, text, duration_ms } => {
            let args = match seen.running.iter().position(|(running, _)| running == key) {
                Some(at) => seen.running.remove(at).1,
                None => String::new(),
            };
            seen.calls += 1;
            let mark = if *is_error { style.bad("✗") } else { style.good("✓") };
            let why = match cause {
                Some(cause) => {
                    let name = serde_json::to_value(cause).unwrap_or_default();
                    format!(" {}", style.bad(name.as_str().unwrap_or_default()))
                }
                None => String::new(),
            };
            seen.failed += u32::from(*is_error);
            vec![
                format!("{mark} {} {args} {}{why}", style.bold(&clipped(name)), style.dim(&took(*duration_ms))),
                format!("  {}", style.dim(&preview(text, *is_error))),
            ]
        }
        Progress::Note { message } => vec![style.busy(&format!("note: {message}"))],
        Progress::Removing => Vec::new(),
        Progress::Ended { session, cause, exit_code, message, sandbox_removed, .. } => {
            let cause = if *exit_code == 0 { style.good(cause) } else { style.bad(cause) };
            let counts = format!(
                "{}, {} ({} failed), {}",
                count(seen.turns, "turn"),
                count(seen.calls, "tool call"),
                seen.failed,
                took(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
            );
            let container = match (&seen.container, sandbox_removed) {
                (Some(id), true) => format!("container {} is gone", short(id)),
                (Some(id), false) => {
                    format!("container {} is still there: `runner stop {session}` removes it", short(id))
                }
                (None, _) => "no container is left".to_owned(),
            };
            let mut lines = seen.speech.break_off();
            lines.push(format!("{cause}: {}", sanitise::line(message)));
            lines.push(style.dim(&format!("{counts}; {container}; exit code {exit_code}")));
            lines
        }
    }
}

/// The first line of a result and how many follow; of an error also the last, which says what went wrong.
fn preview(text: &str, is_error: bool) -> String {
    let mut lines = text.trim_end().lines();
    let first = clipped(lines.next().unwrap_or_default());
    match (lines.clone().count(), lines.next_back()) {
        (1, Some(last)) if is_error => format!("{first} {}", clipped(last)),
        (more, Some(last)) if is_error => format!("{first} (+{}) {}", count(more as u64 - 1, "line"), clipped(last)),
        (0, _) => first,
        (more, _) => format!("{first} (+{})", count(more as u64, "line")),
    }
}

fn clipped(line: &str) -> String {
    const MOST: usize = 160;
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

fn took(ms: u64) -> String {
    duration(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn short(container: &str) -> &str {
    container.get(..12).unwrap_or(container)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(events: &[Progress<'_>]) -> String {
        let mut seen = Seen::default();
        let all: Vec<String> = events
            .iter()
            .flat_map(|event| lines(event, &mut seen, Duration::from_millis(1234), Style::PLAIN))
            .collect();
        all.join("\n")
    }

    const CONTAINER: &str = "0123456789abcdef0123456789abcdef";

    fn session(args: &serde_json::Value) -> String {
        shown(&[
            Progress::Started { session: "0190", agent: "hello", image: "runner/minimal" },
            Progress::SandboxReady { container: CONTAINER, duration_ms: 180 },
            Progress::Copied { from: "a", to: "/tmp/a", files: 2, bytes: 30, skipped: &["b: a FIFO".to_owned()] },
            Progress::Thinking { turn: 1 },
            Progress::Text { text: "First\nthis." },
            Progress::Retry { error: "too many requests", wait_ms: 500 },
            Progress::Retry { error: "too many requests", wait_ms: 900 },
            Progress::ToolStarted { key: "k/1/0", name: "bash", args },
            Progress::ToolFinished {
                key: "k/1/0",
                name: "bash",
                is_error: true,
                cause: Some(protocol::Cause::Exit),
                text: "one\ntwo\n[exit code 3]",
                duration_ms: 12,
            },
            Progress::Removing,
            Progress::Ended {
                session: "0190",
                cause: "done",
                exit_code: 0,
                message: "the agent is done",
                text: "bye",
                sandbox_removed: true,
            },
        ])
    }

    #[test]
    fn a_session_in_plain_lines() {
        insta::assert_snapshot!(session(&json!({"command": "exit 3"})), @r#"
hello session 0190, image runner/minimal
sandbox ready in 180 ms (container 0123456789ab)
copied a to /tmp/a: 2 files, 30 bytes
  left out: b: a FIFO
│ First
│ this.
the model failed: too many requests; again in 500 ms
the model failed again (2 times); again in 900 ms
✗ bash {"command":"exit 3"} 12 ms exit
  one (+1 line) [exit code 3]
done: the agent is done
1 turn, 1 tool call (1 failed), 1.2 s; container 0123456789ab is gone; exit code 0
"#);
    }

    /// The name of a call is what a provider makes it.
    #[test]
    fn a_long_name_is_clipped() {
        let (name, key, args) = ("n".repeat(1_000_000), "k", json!({}));
        let started = Progress::ToolStarted { key, name: &name, args: &args };
        let result = Progress::ToolFinished { key, name: &name, is_error: true, cause: None, text: "", duration_ms: 1 };
        assert!(shown(&[started.clone(), result]).len() < 300);
        assert!(matches!(activity(&started, &Seen::default()), Activity::Now(text) if text.len() < 200));
    }

    #[test]
    fn a_sandbox_that_stays_says_how_to_remove_it() {
        let ended = Progress::Ended {
            session: "0190",
            cause: "stopped",
            exit_code: 125,
            message: "stopped by me",
            text: "",
            sandbox_removed: false,
        };
        let shown = shown(&[Progress::SandboxReady { container: CONTAINER, duration_ms: 1 }, ended]);
        assert!(
            shown.ends_with("container 0123456789ab is still there: `runner stop 0190` removes it; exit code 125"),
            "{shown}"
        );
    }

    /// bug 18: nothing that a model or a sandbox says reaches the terminal raw.
    #[test]
    fn nothing_untrusted_reaches_the_terminal() {
        let nasty = "\u{1b}]52;c;QQ==\u{7}\u{9b}2J\u{202e}\n{\"level\":\"error\"}\r";
        let args = json!({ nasty: nasty });
        let events = [
            Progress::Started { session: nasty, agent: nasty, image: nasty },
            Progress::SandboxReady { container: nasty, duration_ms: 1 },
            Progress::Copied { from: nasty, to: nasty, files: 1, bytes: 1, skipped: &[nasty.to_owned()] },
            Progress::Text { text: nasty },
            Progress::Writing { text: nasty },
            Progress::Retry { error: nasty, wait_ms: 1 },
            Progress::Fallback { from: nasty, to: nasty, error: nasty },
            Progress::ToolStarted { key: "k", name: nasty, args: &args },
            Progress::ToolFinished { key: "k", name: nasty, is_error: false, cause: None, text: nasty, duration_ms: 1 },
            Progress::Note { message: nasty },
            Progress::Queued { session: nasty, agent: nasty, why: nasty },
            Progress::Waiting { session: nasty, on: nasty, deadline: 0 },
            Progress::Resumed { session: nasty, by: nasty },
        ];
        let shown = shown(&events);
        assert!(!shown.chars().any(|c| sanitise::is_unsafe(c) && c != '\n'), "{shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with('{')), "{shown}");
        for event in &events {
            let line = serde_json::to_string(event).unwrap();
            assert!(!sanitise::json(&line).chars().any(sanitise::is_unsafe), "{line:?}");
        }
    }
}
