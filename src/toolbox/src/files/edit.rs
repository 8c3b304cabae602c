//! `edit`: replaces parts of a file that are named by what stands there (T-EDIT-1 to T-EDIT-4).

mod diff;
mod find;
mod fold;
mod near;
mod plan;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstat, fstatat};
use protocol::{Edited, Outcome, Replacement};

use self::find::Text;
use self::plan::{Change, plan};
use super::connection::Exchange;
use super::draft::Draft;
use super::fault::Fault;
use super::open::{self, Place};
use super::path::Resolved;
use super::write::kept_mode;
use super::{BLOCK, Scratch};

/// Largest file that the resident worker edits: it has to answer the next call soon.
pub(super) const RESIDENT_BYTES: u64 = 4 * 1024 * 1024;

/// Most bytes that it searches for all edits of a call together.
const RESIDENT_WORK: u64 = 64 * 1024 * 1024;

/// Bytes of memory that are kept for the next file: fresh memory costs as much as a third of the whole edit.
const KEPT: usize = 2 * 1024 * 1024;

/// Edits by tolerant matches that are named.
const MOST_NAMED: usize = 100;

/// What is asked for besides the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// Length of the edits as JSON, in bytes.
    pub(super) body: u64,
    /// Largest file in bytes.
    pub(super) most: u64,
    /// This server may take its time.
    pub(super) heavy: bool,
}

/// Edits `target` as the body says, of which `begun` came with the call. The diff goes to the payload.
///
/// The file is in memory as it was, at most once more as folded for comparison, and never as it becomes: that goes to the
/// new file part by part.
pub(super) fn edit(
    scratch: &mut Scratch,
    exchange: &mut Exchange,
    target: &Resolved,
    begun: &[u8],
    order: Order,
) -> Result<Outcome, Fault> {
    let path = target.path.as_str();
    let (file, before) = open::regular(path, scratch.proc_device)?;
    let place = Place::find(target)?;
    let mode = match &place.existing {
        Some(found) if is_unchanged(found, &before) => kept_mode(found, path)?,
        _ => return Err(Fault::ChangedUnderEdit(path.to_owned())),
    };
    let size = u64::try_from(before.st_size).unwrap_or(0);
    if size > order.most {
        return Err(Fault::Limit(format!(
            "{path} has {size} bytes; edit takes files of up to {} bytes here: change it with a program in bash",
            order.most
        )));
    }
    if size > RESIDENT_BYTES && !order.heavy {
        return Ok(Outcome::NeedsChild);
    }
    let edits = edits(exchange, begun, order.body)?;
    if (edits.len() as u64).saturating_mul(size) > RESIDENT_WORK && !order.heavy {
        return Ok(Outcome::NeedsChild);
    }
    let mut room = std::mem::take(&mut scratch.whole);
    let raw = whole(&file, size, path, &mut room)?;
    // What was read may be the half of what another writes; nothing is said of it then.
    if !is_unchanged(&fstat(&file).map_err(|errno| Fault::of(errno, path))?, &before) {
        return Err(Fault::ChangedUnderEdit(path.to_owned()));
    }
    let text = Text::new(raw);
    let changes = plan(&text, &edits, path, || exchange.check_time())?;

    let mut draft = Draft::begin(place.folder.as_fd(), mode, path)?;
    let bytes = write(&mut draft, raw, &changes, &mut scratch.block)?;
    let diff = diff::unified(raw, &changes, path);
    let mut tolerant: Vec<u64> =
        changes.iter().filter(|change| change.tolerant).map(|change| change.index as u64).collect();
    tolerant.sort_unstable();
    tolerant.truncate(MOST_NAMED);
    exchange.check_time()?;
    // Whoever wrote to the file meanwhile wrote something that these edits do not know.
    match fstatat(&place.folder, place.name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(now) if is_unchanged(&now, &before) => {}
        Ok(_) | Err(Errno::ENOENT) => return Err(Fault::ChangedUnderEdit(path.to_owned())),
        Err(errno) => return Err(Fault::of(errno, path)),
    }
    draft.publish(&place.name)?;
    place.made.keep();
    scratch.payload.extend_from_slice(diff.text.as_bytes());
    let edited = Edited {
        path: target.path.clone(),
        bytes,
        edits: edits.len() as u64,
        tolerant,
        diff_lines: diff.total,
        diff_bytes: diff.bytes,
        shown_lines: diff.shown,
    };
    if room.len() <= KEPT {
        scratch.whole = room;
    }
    Ok(Outcome::Edited(edited))
}

/// True when both are the same file with the same contents.
fn is_unchanged(now: &FileStat, before: &FileStat) -> bool {
    let facts = |found: &FileStat| {
        (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime, found.st_mtime_nsec)
    };
    facts(now) == facts(before)
}

fn edits(exchange: &mut Exchange, begun: &[u8], length: u64) -> Result<Vec<Replacement>, Fault> {
    let wrong = |error: serde_json::Error| Fault::Argument(format!("the edits are not what they should be: {error}"));
    if begun.len() as u64 == length {
        return serde_json::from_slice(begun).map_err(wrong);
    }
    let mut body = Vec::new();
    exchange.body(begun, length, |bytes| {
        body.extend_from_slice(bytes);
        Ok(())
    })?;
    serde_json::from_slice(&body).map_err(wrong)
}

/// Reads the whole of a file that has `size` bytes into `room`.
fn whole<'a>(mut file: &File, size: u64, path: &str, room: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if room.len() < size {
        // Fresh memory is zero already, grown memory would be filled.
        *room = vec![0; size];
    }
    match file.read_exact(&mut room[..size]) {
        Ok(()) => Ok(&room[..size]),
        // It was cut off since.
        Err(error) if error.raw_os_error().is_none() => Err(Fault::ChangedUnderEdit(path.to_owned())),
        Err(error) => Err(Fault::of_io(&error, path)),
    }
}

/// Writes the file as it becomes, and returns its length. Short parts are gathered in `block`.
fn write(draft: &mut Draft, raw: &[u8], changes: &[Change], block: &mut [u8]) -> Result<u64, Fault> {
    let (mut held, mut bytes) = (0, 0);
    let mut put = |part: &[u8]| {
        bytes += part.len() as u64;
        if held + part.len() > BLOCK {
            draft.write(&block[..held])?;
            held = 0;
        }
        if part.len() > BLOCK {
            return draft.write(part);
        }
        block[held..held + part.len()].copy_from_slice(part);
        held += part.len();
        Ok(())
    };
    let mut from = 0;
    for change in changes {
        put(&raw[from..change.range.start])?;
        put(&change.new)?;
        from = change.range.end;
    }
    put(&raw[from..])?;
    draft.write(&block[..held])?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
