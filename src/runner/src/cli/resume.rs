//! `runner resume`: goes on with a session that nobody drives, and follows it.

use std::path::Path;

use super::driving::{self, Screen};
use super::follow::{follow, newest_line};
use super::records::{Records, RecordsError};
use super::{means, progress, signals};
use crate::dispatch::seat;
use crate::exit::Failure;
use crate::project::Project;
use crate::session::owner;
use crate::session::progress::Progress;
use crate::store::{Session, SessionState};

/// Arguments of `runner resume`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner resume last
  runner resume 5c1e09d7 --json

A session that waits for a trigger goes on waiting; one that has ended stays so. With `runner serve` at work for its
project, or while another runner drives it, it is only followed.")]
pub struct ResumeArgs {
    /// The session's id, a unique beginning or end of it, or `last`
    pub session: String,
    /// Print what happens as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Goes on with the session; the exit code says how it ended.
///
/// # Errors
/// There is no such session, it is none that can go on, or what it needs on this host cannot be used.
pub async fn run(args: ResumeArgs) -> Result<u8, Failure> {
    let records = Records::open()?;
    let session = records.meant(&args.session).await?;
    if let Some((end, _)) = &session.end {
        let hint = format!("`runner show {}` tells more", session.id);
        let message = format!("session {} has ended already ({})", session.id, end.cause);
        return Err(Failure::usage(message, hint));
    }
    let watcher = progress::watcher(args.json);
    if is_driven(&records, &session)? {
        watcher
            .see(&Progress::Note { message: &format!("another runner drives session {}; it is followed", session.id) });
        let after = newest_line(&*records.store, session.key).await?;
        let interrupt = signals::interrupt();
        let ended = follow(&*records.store, &records.state, &session.id, after, &*watcher, &interrupt).await?;
        return Ok(super::start::code(&ended, &interrupt));
    }
    if !session.slotted {
        let hint = format!("`runner stop {}` removes what is left of it", session.id);
        let message = format!("session {} has no mind of its own that could go on", session.id);
        return Err(Failure::usage(message, hint));
    }
    let project = Project::open(Path::new(&session.project))?;
    let means = means::open(&*watcher).await?;
    driving::drive_here(means, project, &session, Screen::new(watcher), &signals::interrupt()).await
}

/// True when somebody is at the session, or will be.
fn is_driven(records: &Records, session: &Session) -> Result<bool, RecordsError> {
    let active = session.state == SessionState::Active && owner::is_alive(&records.state, &session.owner)?;
    Ok(active || seat::is_served(&records.state, &session.project)?)
}
