//! `write`: replaces a file by the call's body (T-WRITE-1).

use std::os::fd::AsFd as _;

use nix::sys::stat::{FileStat, SFlag};
use protocol::Outcome;

use super::connection::Exchange;
use super::draft::Draft;
use super::fault::Fault;
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
    let mode = place.existing.as_ref().map_or(Ok(NEW), |found| kept_mode(found, shown))?;
    let mut draft = Draft::begin(place.folder.as_fd(), mode, shown)?;
    exchange.body(begun, length, |bytes| draft.write(bytes))?;
    draft.publish(&place.name)?;
    let replaced = place.existing.is_some();
    place.made.keep();
    Ok(Outcome::Written { path: target.path.clone(), bytes: length, replaced })
}

/// The permissions that the file in the place of `found` gets.
pub(super) fn kept_mode(found: &FileStat, shown: &str) -> Result<u32, Fault> {
    if is(found, SFlag::S_IFDIR) {
        return Err(Fault::FolderInTheWay(shown.to_owned()));
    }
    if !is(found, SFlag::S_IFREG) {
        return Err(Fault::Special { path: shown.to_owned(), what: what(found.st_mode) });
    }
    let mode = found.st_mode & 0o777;
    if mode & 0o222 == 0 {
        return Err(Fault::ReadOnly { path: shown.to_owned(), mode });
    }
    Ok(mode)
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
