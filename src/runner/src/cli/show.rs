//! `runner show`: what one session is and how it went.

mod kin;

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use self::kin::Kin;
use super::ps::object;
use super::records::{Condition, Records, RecordsError, unless_closed};
use super::surroundings::Surroundings;
use super::table::{self, Style};
use super::{locks, recording, waits};
use crate::observe::sanitise;
use crate::session::journal::{self, Event, Usage};
use crate::store::Session;

/// Arguments of `runner show`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner show last
  runner show 5c1e09d7 --json | jq .tokens
  runner show last --script >replay.json    a file for the script model")]
pub struct ShowArgs {
    /// The session's id, a unique beginning or end of it, or `last`
    pub session: String,
    /// Print JSON
    #[arg(long, conflicts_with = "script")]
    pub json: bool,
    /// Print the session as a file for the script model, which replays it
    #[arg(long)]
    pub script: bool,
}

/// Shows a session.
pub async fn run(args: ShowArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    unless_closed(print(&records, &args, Style::of_stdout(), &mut io::stdout().lock()).await)
}

async fn print(records: &Records, args: &ShowArgs, style: Style, out: &mut dyn Write) -> Result<u8, RecordsError> {
    let session = records.meant(&args.session).await?;
    let events = journal::load(&*records.store, session.key).await?;
    if args.script {
        let text = serde_json::to_string_pretty(&recording::script(&events)).unwrap_or_default();
        writeln!(out, "{}", sanitise::json(&text))?;
        return Ok(0);
    }
    let around = Surroundings::of(&*records.store, BTreeSet::from([session.project.clone()])).await?;
    let condition = records.condition(&session, around.wait(&session))?;
    let mut summary = Summary::of(&events);
    summary.status = session.status.as_deref().or(summary.status);
    let kin = Kin::of(records, &session).await?;
    if args.json {
        let mut value = summary.object(object(&session, &condition, &around));
        kin.add_to(&mut value);
        value["wait"] = around.wait(&session).map(waits::object).into();
        value["lock"] = around.lock(&session).map(locks::object).into();
        writeln!(out, "{}", sanitise::json(&value.to_string()))?;
    } else {
        let mut fields = Fields { style, out };
        summary.write(&session, &condition, &mut fields)?;
        kin.write(&mut fields)?;
        if let Some(wait) = around.wait(&session) {
            let deadline = table::date_time(wait.deadline);
            fields.write("waits for", &format!("{}, until {deadline} ({})", wait.words, waits::stands(wait)))?;
        }
        if let Some(lock) = around.lock(&session) {
            let until = table::date_time(lock.expires_at);
            fields.write("lock", &format!("{}, until {until}, fence {}", lock.resource, lock.fence))?;
        }
        summary.write_texts(&mut fields)?;
    }
    Ok(0)
}

/// Writes fields, each with its name.
struct Fields<'a> {
    style: Style,
    out: &'a mut dyn Write,
}

impl Fields<'_> {
    fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
        // Further lines are indented: text cannot pass for a field.
        let value = sanitise::block(value.trim_end()).replace('\n', "\n            ");
        writeln!(self.out, "{}{}{value}", self.style.bold(name), " ".repeat(12 - name.len()))
    }
}

/// What a journal adds up to.
#[derive(Default)]
struct Summary<'a> {
    task: Option<&'a str>,
    model: Option<&'a str>,
    image: Option<&'a str>,
    turns: u32,
    calls: u32,
    failed: u32,
    usage: Usage,
    status: Option<&'a str>,
    answer: Option<&'a str>,
    returned: Option<&'a Value>,
}

impl<'a> Summary<'a> {
    fn of(events: &'a [Event]) -> Summary<'a> {
        let mut sum = Summary::default();
        for event in events {
            match event {
                Event::Started(e) => {
                    (sum.task, sum.model, sum.image) = (
                        e.task.as_deref(),
                        e.model.as_deref(),
                        Some(e.image.as_str()).filter(|image| !image.is_empty()),
                    );
                }
                Event::Assistant(e) => {
                    sum.turns = sum.turns.max(e.turn);
                    sum.usage.input += e.usage.input;
                    sum.usage.cached += e.usage.cached;
                    sum.usage.output += e.usage.output;
                    sum.answer = Some(&e.text).filter(|text| !text.is_empty()).map(String::as_str).or(sum.answer);
                }
                Event::ToolFinished(e) => {
                    sum.calls += 1;
                    sum.failed += u32::from(e.is_error);
                }
                Event::Status(e) => sum.status = Some(&e.text),
                Event::Returned(e) => sum.returned = Some(&e.value),
                _ => {}
            }
        }
        sum
    }

    fn object(&self, mut session: Value) -> Value {
        let more = json!({
            "task": self.task,
            "model": self.model,
            "image": self.image,
            "turns": self.turns,
            "calls": self.calls,
            "failed_calls": self.failed,
            "tokens": self.usage,
            "status": self.status,
            "answer": self.answer,
            "returned": self.returned,
        });
        if let (Value::Object(session), Value::Object(more)) = (&mut session, more) {
            session.extend(more);
        }
        session
    }

    fn write(&self, session: &Session, condition: &Condition, fields: &mut Fields<'_>) -> io::Result<()> {
        let mut field = |name: &str, value: &str| fields.write(name, value);
        field("session", &session.id)?;
        field("agent", &session.agent)?;
        field("project", &session.project)?;
        let started = table::date_time(session.created_at);
        if let Some((end, at)) = &session.end {
            let took = table::duration(at - session.created_at);
            field("state", &format!("{} (exit code {}): {}", end.cause, end.exit_code, end.message))?;
            field("started", &started)?;
            field("ended", &format!("{}, after {took}", table::date_time(*at)))?;
        } else {
            field("state", &condition.words())?;
            field("started", &started)?;
        }
        if let Some(by) = &session.stop_requested_by {
            field("stopped by", by)?;
        }
        if let Some(container) = session.container.as_ref().filter(|_| !crate::session::recovery::is_finished(session))
        {
            field("container", container.id.as_ref().unwrap_or(&container.name))?;
        }
        if let Condition::Ended { remains, .. } = condition
            && let Some(words) = remains.words()
        {
            field("sandbox", &format!("{words}; `runner stop {}` removes it", session.id))?;
        }
        for (name, value) in [("image", self.image), ("model", self.model), ("status", self.status)] {
            if let Some(value) = value {
                field(name, value)?;
            }
        }
        field("turns", &format!("{}, {} ({} failed)", self.turns, table::count(self.calls, "call"), self.failed))?;
        let Usage { input, cached, output } = self.usage;
        field("tokens", &format!("{input} in ({cached} cached), {output} out"))?;
        Ok(())
    }

    /// What can be long stands last.
    fn write_texts(&self, fields: &mut Fields<'_>) -> io::Result<()> {
        let mut field = |name: &str, value: &str| fields.write(name, value);
        if let Some(task) = self.task {
            field("task", task)?;
        }
        if let Some(answer) = self.answer {
            field("answer", answer)?;
        }
        if let Some(returned) = self.returned {
            field("returned", &returned.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
