//! PID 1 of the container: one thread, one loop. It starts commands in dropped children, carries their results to the
//! host, and sees to it that nothing of a finished command is left.
//!
//! | file | what |
//! |---|---|
//! | `start`, `facts`, `filter`, `ruleset` | the start: what it checks, what it gives up, what children inherit |
//! | `state` | the state and the loop |
//! | `link`, `calls`, `kept` | the connection to the host, what it asks, results it has not seen |
//! | `command`, `body`, `begin`, `life`, `end` | a command from its text to its answer |
//! | `spawn`, `output`, `sweep`, `reap` | its shell, what is shown of its output, its death |
//! | `feed`, `keeper` | its full output in a file |
//! | `lockdown`, `servers`, `prepare` | forks that handle files with the agent's rights |
//!
//! Invariants: it opens no path that the agent can choose; it never blocks on the host or on a command; it allocates in
//! proportion to nothing that either of them sends.

/// Says something on standard error. Unlike `eprintln!` it does not end PID 1 when nobody reads that.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = std::io::stderr().write_all(format!("toolbox: {}\n", format_args!($($text)*)).as_bytes());
    }};
}

mod begin;
mod body;
mod calls;
mod command;
mod end;
mod facts;
mod feed;
mod filter;
mod keeper;
mod kept;
mod life;
mod link;
mod lockdown;
mod output;
mod prepare;
mod reap;
mod ruleset;
mod servers;
mod spawn;
mod start;
mod state;
mod sweep;

/// Exit code when PID 1 cannot start.
const CANNOT_START: i32 = 70;

/// Runs until the container ends.
pub(crate) fn main() {
    let code = match start::start() {
        Ok(pid1) => pid1.run(),
        Err(error) => {
            say!("{error}");
            CANNOT_START
        }
    };
    std::process::exit(code);
}
