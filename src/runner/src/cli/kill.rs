//! `runner kill`: ends sessions at once, with everything they called.

use std::io;

use super::records::{Records, RecordsError, unless_closed};
use super::stop::{self, Ask};
use crate::sandbox::engine::Engine;
use crate::session::recovery::OnEngine;
use crate::store::StopHow;

/// Arguments of `runner kill`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(after_help = "\
Examples:
  runner kill 5c1e09d7
  runner kill 5c1e09d7 80f3b2a6 --wait 5

Nothing is copied out. Every session that they called, and those these called, is killed with them.")]
pub struct KillArgs {
    /// Sessions' ids, or unique beginnings or ends of them
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Wait at most this many seconds for them to end
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub wait: u64,
}

/// Kills the sessions with their call trees, all at once, and waits until they have ended.
pub async fn run(args: KillArgs) -> Result<u8, RecordsError> {
    let records = Records::open()?;
    let engine = async || Ok(OnEngine::new(Engine::connect(None).await?, &records.state));
    let ask = Ask { sessions: args.sessions, wait: args.wait, how: StopHow::Kill };
    unless_closed(stop::stop(&records, &ask, engine, &mut io::stdout().lock()).await)
}
