//! Journal events as people and programs see them: `logs`, `show` and the progress of `start`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::table::{Style, duration};
use crate::observe::sanitise;
use crate::session::journal::{Event, ToolFinished};
use crate::store::EventRow;

/// Lines of a text that are shown unless everything is asked for.
const SHOWN: usize = 12;

/// Characters of a call's arguments that are shown on its line unless everything is asked for.
const ARGUMENTS: usize = 200;

/// An event for people: one line, and text indented below it; no final line end. Sanitised.
pub fn text(event: &Event, style: Style, everything: bool) -> String {
    let mut out = String::new();
    match event {
        Event::Started(e) => {
            heading(&mut out, style, "started", &sanitise::line(&e.agent));
            body(&mut out, style, e.task.as_deref().unwrap_or_default(), everything);
        }
        Event::Assistant(e) => {
            let tokens = format!("turn {} · {} tokens in, {} out", e.turn, e.usage.input, e.usage.output);
            heading(&mut out, style, "assistant", &style.dim(&tokens));
            body(&mut out, style, &e.text, everything);
            for call in &e.calls {
                let _ = write!(out, "\n  → {} {}", style.bold(&call.name), arguments(&call.args, everything));
            }
        }
        Event::ToolStarted(e) => {
            let args = e.args.as_ref().map_or_else(String::new, |args| arguments(args, everything));
            heading(&mut out, style, "call", &format!("{} {args}", style.bold(&e.name)));
        }
        Event::ToolFinished(e) => {
            heading(&mut out, style, "result", &format!("{} {}", style.bold(&e.name), outcome(e, style)));
            body(&mut out, style, &e.text, everything);
            if let Some(image) = &e.image {
                let _ = write!(out, "\n  ({} image)", sanitise::line(&image.media_type));
            }
        }
        Event::Status(e) => heading(&mut out, style, "status", &sanitise::line(&e.text)),
        Event::Informed(e) => {
            heading(&mut out, style, "informed", &sanitise::line(&e.source));
            body(&mut out, style, &members(&e.content), everything);
        }
        Event::Suspended(e) => heading(&mut out, style, "suspended", &sanitise::line(&e.on.to_string())),
        Event::Resumed(e) => heading(&mut out, style, "resumed", &sanitise::line(&e.by.to_string())),
        Event::Returned(e) => {
            heading(&mut out, style, "returned", "");
            body(&mut out, style, &e.value.to_string(), everything);
        }
        Event::Ended(e) => {
            let cause = e.cause.as_str();
            let cause = if e.cause.exit_code() == 0 { style.good(cause) } else { style.bad(cause) };
            heading(&mut out, style, "ended", &format!("{cause} {}", sanitise::line(&e.message)));
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// How a call went, on one line: `ok`, or why not, and how long it took. Sanitised.
pub fn outcome(e: &ToolFinished, style: Style) -> String {
    let word = match (&e.cause, e.is_error) {
        (Some(cause), _) => style.bad(cause),
        (None, true) => style.bad("error"),
        (None, false) => style.good("ok"),
    };
    let took = duration(i64::try_from(e.duration_ms).unwrap_or(i64::MAX));
    format!("{word} {}", style.dim(&took))
}

/// A call's arguments on one line. Sanitised.
pub fn arguments(args: &Value, everything: bool) -> String {
    let text = args.to_string();
    match text.char_indices().nth(ARGUMENTS) {
        Some((end, _)) if !everything => format!("{}…", sanitise::line(&text[..end])),
        _ => sanitise::line(&text).into_owned(),
    }
}

/// An event for programs: one line of JSON, without its line end, that is safe to look at too.
///
/// `body` is what the event says, payloads included.
pub fn json_line(session: &str, row: &EventRow, body: &Value) -> String {
    let line = json!({
        "session": session,
        "seq": row.seq,
        "at": super::table::rfc3339(row.at),
        "kind": row.kind,
        "body": body,
    });
    sanitise::json(&line.to_string()).into_owned()
}

fn heading(out: &mut String, style: Style, kind: &str, rest: &str) {
    out.push_str(&style.dim(kind));
    if !rest.is_empty() {
        let _ = write!(out, "{} {rest}", " ".repeat(10_usize.saturating_sub(kind.len())));
    }
}

fn body(out: &mut String, style: Style, text: &str, everything: bool) {
    let text = sanitise::block(text.trim_end_matches('\n'));
    if text.is_empty() {
        return;
    }
    let count = text.lines().count();
    let shown = if everything || count <= SHOWN + 1 { count } else { SHOWN };
    for line in text.lines().take(shown) {
        let _ = write!(out, "\n  {line}");
    }
    if shown < count {
        let _ = write!(out, "\n  {}", style.dim(&format!("… {} more lines (--full)", count - shown)));
    }
}

/// What arrived, for people: the members of an object a line each, anything else as it is.
fn members(content: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let member = |(name, value): (&String, &Value)| match value["waited_ms"].as_i64() {
        Some(waited) if name == "slot" => {
            let above = if value["overcommit"] == true { ", above `scale`" } else { "" };
            format!("slot: after {}{above}", duration(waited))
        }
        _ => format!("{name}: {}", plain(value)),
    };
    match content {
        Value::Object(members) => members.iter().map(member).collect::<Vec<_>>().join("\n"),
        other => plain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::journal::{Assistant, Call, EndCause, Ended, Started, Usage};

    /// bug 18: the same for every kind of event, whatever stands in its strings.
    #[test]
    fn nothing_in_an_event_reaches_the_terminal() {
        let nasty = "\u{1b}]52;c;QQ==\u{7}\u{9b}2J\u{202e}\u{200b}\n{\"level\":\"error\"}\r";
        let n = || nasty.to_owned();
        let call = Call { key: n(), provider_id: n(), name: n(), args: json!({ nasty: nasty }) };
        let image = crate::session::journal::Image { media_type: n(), base64: n() };
        let finished = ToolFinished {
            key: n(),
            name: n(),
            is_error: true,
            text: n(),
            image: Some(image),
            cause: Some(n()),
            details: json!(nasty),
            duration_ms: u64::MAX,
        };
        let started = Started { agent: n(), task: Some(n()), ..Started::default() };
        let tool_started =
            crate::session::journal::ToolStarted { key: n(), name: n(), args: Some(json!({ nasty: nasty })) };
        let events = [
            Event::Started(started),
            Event::Assistant(Assistant { text: n(), calls: vec![call], raw: json!(nasty), ..Assistant::default() }),
            Event::ToolStarted(tool_started),
            Event::ToolFinished(finished),
            Event::Status(crate::session::journal::Status { text: n() }),
            Event::Informed(crate::session::journal::Informed { source: n(), content: json!({ nasty: nasty }) }),
            Event::Suspended(crate::session::journal::Suspended { on: json!(nasty), ..Default::default() }),
            Event::Resumed(crate::session::journal::Resumed { by: json!(nasty) }),
            Event::Returned(crate::session::journal::Returned { value: json!(nasty) }),
            Event::Ended(Ended { cause: EndCause::Failed, message: n() }),
        ];
        for event in &events {
            for everything in [false, true] {
                let shown = text(event, Style::PLAIN, everything);
                assert!(!shown.chars().any(|c| sanitise::is_unsafe(c) && c != '\n'), "{event:?}: {shown:?}");
                // A new line is always indented, so it cannot pass for one of ours.
                assert!(shown.lines().skip(1).all(|line| line.starts_with("  ")), "{shown:?}");
            }
            let row = EventRow { seq: 1, at: 0, kind: n(), body: String::new() };
            let line = json_line(nasty, &row, &json!(nasty));
            assert!(!line.chars().any(sanitise::is_unsafe), "{line:?}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["body"], nasty);
        }
    }

    #[test]
    fn a_turn_and_its_result_read_like_a_transcript() {
        let call = |command: &str| Call {
            key: "s/1/0".into(),
            provider_id: "x".into(),
            name: "bash".into(),
            args: json!({"command": command}),
        };
        let assistant = Assistant {
            turn: 1,
            text: "I look around.".into(),
            calls: vec![call("ls"), call(&"x".repeat(300))],
            usage: Usage { input: 10, cached: 0, output: 2 },
            ..Assistant::default()
        };
        let finished = ToolFinished {
            key: "s/1/0".into(),
            name: "bash".into(),
            text: (1..=40).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n"),
            duration_ms: 1234,
            ..ToolFinished::default()
        };
        let shown = [Event::Assistant(assistant), Event::ToolFinished(finished)]
            .map(|event| text(&event, Style::PLAIN, false))
            .join("\n");
        insta::assert_snapshot!(shown.replace(&"x".repeat(188), "x…x"), @r#"
        assistant  turn 1 · 10 tokens in, 2 out
          I look around.
          → bash {"command":"ls"}
          → bash {"command":"x…x…
        result     bash ok 1.2 s
          line 1
          line 2
          line 3
          line 4
          line 5
          line 6
          line 7
          line 8
          line 9
          line 10
          line 11
          line 12
          … 28 more lines (--full)
        "#);
    }
}
