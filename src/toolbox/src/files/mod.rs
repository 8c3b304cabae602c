//! File servers: dropped children that serve file calls on a connection of their own.
//!
//! One call at a time, with plain blocking calls. Whoever needs one to end early kills the server: nothing it does leaves
//! a half-written file behind ([`draft`]).

mod chars;
mod connection;
mod draft;
mod edit;
mod fault;
mod find;
mod get;
mod grep;
#[cfg(test)]
mod host;
mod image;
mod kind;
mod ls;
mod open;
mod page;
mod path;
mod put;
mod read;
mod search;
mod write;

use std::os::unix::net::UnixStream;

use protocol::frame::MAX_PAYLOAD;
use protocol::{Call, Outcome, Request};

use self::connection::{Connection, Exchange, KEEP};
use self::fault::{Fault, LinkError};
use self::path::resolve;
use crate::session::Session;

/// Bytes of a file read at once.
const BLOCK: usize = 64 * 1024;

/// Serves file calls on `link` until the host closes it: reads the welcome, says ready, answers calls in order.
/// `resident` is true for the worker that lives as long as the session; it answers only what is quick and small.
///
/// Runs after lock-down in a process of its own, so it blocks freely and returns when there is nothing left to do.
pub(crate) fn serve(link: UnixStream, session: &Session, resident: bool) {
    let mut connection = Connection::new(link);
    let mut scratch = Scratch {
        payload: Vec::new(),
        block: vec![0; BLOCK].into(),
        whole: Vec::new(),
        proc_device: open::proc_device(),
    };
    // However the connection ended, there is nobody left to tell.
    let _: Result<(), LinkError> = (|| {
        connection.greet()?;
        loop {
            let (call, body) = connection.next_call()?;
            let outcome = match answer(&mut connection, &mut scratch, session, resident, &call, &body) {
                Ok(outcome) => outcome,
                Err(Fault::Link(error)) => return Err(error),
                Err(fault) => {
                    scratch.payload.clear();
                    fault.outcome()
                }
            };
            connection.done(call.id, outcome, &scratch.payload)?;
            scratch.payload.clear();
            scratch.payload.shrink_to(KEEP);
        }
    })();
}

/// Memory that every call uses again.
#[derive(Debug)]
struct Scratch {
    /// Payload of the call's end.
    payload: Vec<u8>,
    /// Bytes of a file on their way.
    block: Box<[u8]>,
    /// A whole file, while it is not too long to be kept room for.
    whole: Vec<u8>,
    /// Device number of /proc.
    proc_device: u64,
}

fn answer(
    connection: &mut Connection,
    scratch: &mut Scratch,
    session: &Session,
    resident: bool,
    call: &Call,
    body: &[u8],
) -> Result<Outcome, Fault> {
    let exchange = &mut Exchange::new(connection, call);
    let heavy = !resident;
    match &call.request {
        Request::Read { path, offset, limit, images } => {
            let window = read::Window { offset: *offset, limit: *limit, heavy, images: heavy && *images };
            read::read(scratch, exchange, &resolve(session, path)?, window)
        }
        Request::Write { .. } | Request::Edit { .. } if resident && call.body > MAX_PAYLOAD as u64 => {
            Ok(Outcome::NeedsChild)
        }
        Request::Write { path } => write::write(exchange, &resolve(session, path)?, body, call.body),
        Request::Edit { path, most } => {
            let order = edit::Order { body: call.body, most: *most, heavy };
            edit::edit(scratch, exchange, &resolve(session, path)?, body, order)
        }
        Request::Ls { path, limit } => {
            let target = resolve(session, path.as_deref().unwrap_or("."))?;
            ls::ls(exchange, scratch.proc_device, &mut scratch.payload, &target, *limit, heavy)
        }
        Request::Grep { pattern, path, glob, ignore_case, literal, context, limit, include_ignored } => {
            let order = grep::Order {
                wanted: search::Wanted { pattern, literal: *literal, ignore_case: *ignore_case },
                path: path.as_deref(),
                glob: glob.as_deref(),
                context: *context,
                limit: *limit,
                include_ignored: *include_ignored,
                resident,
            };
            let target = resolve(session, path.as_deref().unwrap_or("."))?;
            grep::grep(exchange, scratch, &target, order)
        }
        Request::Find { pattern, path, limit, include_ignored } => {
            let order = find::Order {
                pattern,
                path: path.as_deref(),
                limit: *limit,
                include_ignored: *include_ignored,
                resident,
            };
            let target = resolve(session, path.as_deref().unwrap_or("."))?;
            find::find(exchange, scratch, &target, order)
        }
        Request::Put { .. } | Request::Get { .. } if resident => Ok(Outcome::NeedsChild),
        Request::Put { path } => put::put(exchange, &resolve(session, path)?),
        Request::Get { path, max_bytes, max_entries } => {
            get::get(exchange, &mut scratch.block, &resolve(session, path)?, *max_bytes, *max_entries)
        }
        Request::Bash { .. } | Request::StopJob { .. } | Request::OpenFiles { .. } | Request::CloseFiles { .. } => {
            Err(Fault::Argument("commands and the life of file servers belong to the control connection".to_owned()))
        }
    }
}
