//! `write`: replaces a file by the call's body (T-WRITE-1).

use std::os::fd::AsFd as _;

use nix::sys::stat::SFlag;
use protocol::Outcome;

use super::connection::{Exchange, Inbound};
use super::draft::Draft;
use super::fault::{Fault, LinkError};
use super::open::{Place, is, what};
use super::path::Resolved;

/// Permissions of a new file.
const NEW: u32 = 0o644;

/// Writes a body of `length` bytes, of which `begun` came with the call, to `target`.
///
/// The file keeps the permissions of the one it replaces. A file that nobody may write to is not replaced, although the
/// folder would allow it: whoever took the permission away meant something by it.
pub(super) fn write(exchange: &mut Exchange, target: &Resolved, begun: &[u8], length: u64) -> Result<Outcome, Fault> {
    let shown = target.path.as_str();
    let place = Place::find(target)?;
    let mode = match &place.existing {
        None => NEW,
        Some(found) if is(found, SFlag::S_IFREG) => found.st_mode & 0o777,
        Some(found) if is(found, SFlag::S_IFDIR) => return Err(Fault::FolderInTheWay(shown.to_owned())),
        Some(found) => return Err(Fault::Special { path: shown.to_owned(), what: what(found.st_mode) }),
    };
    if mode & 0o222 == 0 {
        return Err(Fault::ReadOnly { path: shown.to_owned(), mode });
    }
    let mut draft = Draft::begin(place.folder.as_fd(), mode, shown)?;
    draft.write(begun)?;
    let mut left = length - begun.len() as u64;
    while left > 0 {
        let Inbound::Chunk(bytes) = exchange.receive(true)? else {
            return Err(LinkError::Rule("an entry in the body of a write").into());
        };
        left = left.checked_sub(bytes.len() as u64).ok_or(LinkError::Rule("a body longer than announced"))?;
        draft.write(&bytes)?;
    }
    draft.publish(&place.name)?;
    let replaced = place.existing.is_some();
    place.made.keep();
    Ok(Outcome::Written { path: target.path.clone(), bytes: length, replaced })
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
