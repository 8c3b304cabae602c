//! `read`: a window of a text file, an image, or what another file is.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::{Whence, lseek};
use protocol::Outcome;

use super::connection::Exchange;
use super::fault::Fault;
use super::kind::{self, Kind};
use super::page::Page;
use super::path::Resolved;
use super::{Scratch, image, open};

/// Largest text that the resident worker scans: it has to answer the next call soon.
pub(super) const RESIDENT_BYTES: u64 = 16 * 1024 * 1024;

/// Most that is read of a file that does not say its size, as those of /proc.
const UNSIZED_BYTES: u64 = 64 * 1024 * 1024;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// First line, from 1.
    pub(super) offset: Option<u64>,
    /// Most lines.
    pub(super) limit: Option<u64>,
    /// This server may scan long files.
    pub(super) heavy: bool,
    /// It may decode images.
    pub(super) images: bool,
}

/// Reads `target`; text goes to the payload, an image to the host in chunks.
pub(super) fn read(
    scratch: &mut Scratch,
    exchange: &mut Exchange,
    target: &Resolved,
    window: Window,
) -> Result<Outcome, Fault> {
    let path = target.path.as_str();
    for (name, value) in [("offset", window.offset), ("limit", window.limit)] {
        if value == Some(0) {
            return Err(Fault::Argument(format!("{name} is 0, but must be 1 or more")));
        }
    }
    let (mut file, found) = open::regular(path, scratch.proc_device)?;
    let size = u64::try_from(found.st_size).unwrap_or(0);
    let count = fill(&mut file, &mut scratch.block, path)?;
    let sample = &scratch.block[..count.min(kind::SAMPLE)];
    match kind::of(sample) {
        Kind::Text => {}
        Kind::Binary(kind) => return Ok(Outcome::Binary { kind: kind.to_owned(), bytes: size }),
        Kind::Image(_) if !window.images => return Ok(Outcome::NeedsChild),
        Kind::Image(format) => {
            let unfit = match picture(&mut file, &found, &scratch.block[..count], format, path)? {
                Ok(picture) => return send(exchange, &picture),
                Err(unfit) => unfit,
            };
            if !kind::looks_like_text(sample) {
                return Ok(Outcome::Binary { kind: format!("{} ({unfit})", image::name(format)), bytes: size });
            }
            file.seek(SeekFrom::Start(count as u64)).map_err(|error| Fault::of_io(&error, path))?;
        }
    }
    if size > RESIDENT_BYTES && !window.heavy {
        return Ok(Outcome::NeedsChild);
    }
    scan(scratch, exchange, &mut file, count, size, window, path)
}

/// Cuts the window out of the text, of which the first `count` bytes are in the block already.
fn scan(
    scratch: &mut Scratch,
    exchange: &Exchange,
    file: &mut File,
    mut count: usize,
    size: u64,
    window: Window,
    path: &str,
) -> Result<Outcome, Fault> {
    let first = window.offset.unwrap_or(1);
    let mut holes = Holes { possible: size > RESIDENT_BYTES, data_until: 0 };
    let mut page = Page::new(&mut scratch.payload, first, window.limit);
    // A file that grows is read as far as it went when it was opened, or a writer could keep this one reading.
    let mut left = if size > 0 { size } else { UNSIZED_BYTES };
    loop {
        let part = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        page.feed(&scratch.block[..part]);
        left -= part as u64;
        if count == 0 || (left == 0 && size > 0) {
            break;
        }
        if left == 0 {
            return Err(Fault::Limit(format!(
                "{path} goes on after {UNSIZED_BYTES} bytes without saying how long it is"
            )));
        }
        exchange.check_time()?;
        let hole = holes.pass(file, size, size - left.min(size));
        page.hole(hole);
        left -= hole;
        count = fill(file, &mut scratch.block, path)?;
    }
    match page.finish(path) {
        Ok(window) => Ok(Outcome::Text(window)),
        Err(lines) => Err(Fault::PastEnd { path: path.to_owned(), offset: first, lines }),
    }
}

/// Passes over the holes of a sparse file without reading them.
struct Holes {
    /// It may have some.
    possible: bool,
    /// Where the data at hand ends.
    data_until: u64,
}

impl Holes {
    /// Length of the hole at `at` in a file of `size` bytes, which stands there; it stands behind the hole afterwards.
    fn pass(&mut self, file: &File, size: u64, at: u64) -> u64 {
        if !self.possible || at < self.data_until {
            return 0;
        }
        let seek = |to: u64, whence| {
            let to = i64::try_from(to).map_err(|_| Errno::EOVERFLOW)?;
            lseek(file, to, whence).map(|at| u64::try_from(at).unwrap_or(0))
        };
        let data = match seek(at, Whence::SeekData) {
            Err(Errno::ENXIO) => size,
            Ok(data) => data.min(size),
            Err(_) => at,
        };
        self.data_until = seek(data, Whence::SeekHole).unwrap_or(size);
        self.possible = seek(data, Whence::SeekSet).is_ok();
        data.saturating_sub(at)
    }
}

fn fill(file: &mut File, block: &mut [u8], path: &str) -> Result<usize, Fault> {
    loop {
        match file.read(block) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other.map_err(|error| Fault::of_io(&error, path)),
        }
    }
}

/// Reads the whole of an image file, which begins with `begun`, and makes a picture of it.
fn picture(
    file: &mut File,
    found: &FileStat,
    begun: &[u8],
    format: ::image::ImageFormat,
    path: &str,
) -> Result<Result<image::Picture, String>, Fault> {
    let size = u64::try_from(found.st_size).unwrap_or(0);
    let too_long = || Ok(Err(format!("more than {} MiB are too many to show", image::MAX_FILE >> 20)));
    if size > image::MAX_FILE {
        return too_long();
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).max(begun.len()));
    bytes.extend_from_slice(begun);
    let room = image::MAX_FILE + 1 - begun.len() as u64;
    file.take(room).read_to_end(&mut bytes).map_err(|error| Fault::of_io(&error, path))?;
    if bytes.len() as u64 > image::MAX_FILE {
        return too_long();
    }
    Ok(image::fit(bytes, format).map_err(|unfit| unfit.to_string()))
}

fn send(exchange: &mut Exchange, picture: &image::Picture) -> Result<Outcome, Fault> {
    exchange.send_bytes(&picture.bytes)?;
    Ok(Outcome::Image {
        media_type: picture.media_type.to_owned(),
        size: picture.size,
        scaled_from: picture.scaled_from,
        bytes: picture.bytes.len() as u64,
    })
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
