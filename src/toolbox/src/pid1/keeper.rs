//! Keeping the full output of a command that printed more than is shown: a server of its own, fed through a pipe,
//! writes it to a file under /tmp. Whatever goes wrong with it, the call does not fail (T-BASH-7).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::statvfs::statvfs;

/// Folders to make, the last one for the files.
const FOLDERS: [&str; 2] = ["/tmp/.runner", "/tmp/.runner/out"];
/// Longest file in bytes.
const LONGEST: u64 = 64 * 1024 * 1024;
/// Room is made for this many bytes at a time.
const STRIDE: u64 = 4 * 1024 * 1024;
/// The kept output starts again at multiples of this, so that it can be mapped.
const PAGE: u64 = 4096;

/// Exit codes of the server.
pub(super) const WHOLE: i32 = 0;
/// The file lacks a middle part.
pub(super) const CUT: i32 = 2;
const FAILED: i32 = 1;

/// Path of the file with this number.
pub(super) fn path(number: u64) -> String {
    format!("{}/{number}.log", FOLDERS[1])
}

/// Writes all that comes through `pipe` to the file with this number; runs in the server.
pub(super) fn serve(pipe: OwnedFd, number: u64) -> i32 {
    for folder in FOLDERS {
        // It may exist; if it cannot be made, opening the file says so.
        let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    }
    let Ok(folder) = statvfs(FOLDERS[1]) else { return FAILED };
    let share = folder.blocks() * folder.fragment_size() / 4;
    match keep(File::from(pipe), Path::new(FOLDERS[1]), number, share, LONGEST) {
        Ok(false) => WHOLE,
        Ok(true) => CUT,
        Err(_) => {
            let _ = fs::remove_file(path(number));
            FAILED
        }
    }
}

/// Copies `source` to a file in `folder`, whose files may take `share` bytes together. True when a middle part was left
/// out because it was longer than `longest`, or than its share.
fn keep(mut source: impl Read, folder: &Path, number: u64, share: u64, longest: u64) -> io::Result<bool> {
    let half = longest.min(share) / 2 / PAGE * PAGE;
    if half == 0 {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    let name = folder.join(format!("{number}.log"));
    let _ = fs::remove_file(&name);
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).mode(0o600).open(&name)?;
    let mut piece = vec![0; 64 * 1024];
    let (mut total, mut room) = (0u64, 0u64);
    loop {
        let length = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = (total + length as u64).min(2 * half);
        if end > room {
            room = (room + STRIDE).min(2 * half);
            make_room(folder, &name, share.saturating_sub(room))?;
            if file.metadata()?.nlink() == 0 {
                return Err(io::Error::other("another output took the room"));
            }
        }
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            let at = place(total, half);
            let until = if at < half { half } else { 2 * half };
            let fits = rest.len().min(usize::try_from(until - at).unwrap_or(usize::MAX));
            file.write_all_at(&rest[..fits], at)?;
            rest = &rest[fits..];
            total += fits as u64;
        }
    }
    if total <= 2 * half {
        return Ok(false);
    }
    turn(&file, half, (total - half) % half)?;
    // The note takes the place of the first bytes of the tail, so it counts itself.
    let note = |left_out: u64| format!("\n[{left_out:>20} bytes are left out here]\n");
    let left_out = total - 2 * half + note(0).len() as u64;
    file.write_all_at(note(left_out).as_bytes(), half)?;
    Ok(true)
}

/// Where the byte number `total` of the output goes: the second half of the file is a ring.
fn place(total: u64, half: u64) -> u64 {
    if total < half { total } else { half + (total - half) % half }
}

/// Turns the ring in the second half of the file so that it begins with its oldest byte, at `oldest`.
fn turn(file: &File, half: u64, oldest: u64) -> io::Result<()> {
    let too_long = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let length = usize::try_from(half).ok().and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
    let offset = libc::off_t::try_from(half).map_err(too_long)?;
    let oldest = usize::try_from(oldest).map_err(too_long)?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping of whole pages that the file has; if the agent shortens the file in the meantime, touching
    // them kills this server, and the output counts as not kept.
    let mapped = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file, offset)? };
    // SAFETY: the mapping above, which nothing else in this process knows. The agent may write to the file as well: the
    // bytes are then nonsense, as they would be afterwards; no decision hangs on them.
    unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>().as_ptr(), length.get()) }.rotate_left(oldest);
    // SAFETY: the slice is gone.
    unsafe { munmap(mapped, length.get()) }?;
    Ok(())
}

/// Removes kept outputs but `own`, oldest first, until they take at most `most` bytes together.
fn make_room(folder: &Path, own: &Path, most: u64) -> io::Result<()> {
    let mut others: Vec<(u64, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (Some(number), Ok(found)) = (number, entry.metadata())
            && path != own
            && found.is_file()
        {
            others.push((number, found.blocks() * 512, path));
        }
    }
    others.sort_unstable();
    let mut taken: u64 = others.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in others {
        if taken <= most {
            break;
        }
        let _ = fs::remove_file(path);
        taken -= bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A source that gives its bytes in pieces of a given size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(into.len());
            into[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// T-BASH-7: the file is the whole output, or its beginning and its end around a note with the exact count.
        #[test]
        fn whole_or_head_and_tail(length in 0usize..60_000, piece in 1usize..20_000, pages in 1u64..4) {
            let folder = tempfile::tempdir().unwrap();
            let whole: Vec<u8> = (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect();
            let longest = 2 * pages * PAGE;
            let cut = keep(Pieces(&whole, piece), folder.path(), 7, 1 << 30, longest).unwrap();
            let kept = fs::read(folder.path().join("7.log")).unwrap();
            if length as u64 <= longest {
                prop_assert!(!cut);
                prop_assert_eq!(kept, whole);
                return Ok(());
            }
            prop_assert!(cut);
            prop_assert_eq!(kept.len() as u64, longest);
            let half = kept.len() / 2;
            prop_assert_eq!(&kept[..half], &whole[..half]);
            let note = 1 + kept[half + 1..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let text = std::str::from_utf8(&kept[half..half + note]).unwrap();
            let left_out: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
            let tail = &kept[half + note..];
            prop_assert_eq!(left_out, length - half - tail.len());
            prop_assert_eq!(tail, &whole[length - tail.len()..]);
        }
    }

    #[test]
    fn the_oldest_outputs_make_room() {
        let folder = tempfile::tempdir().unwrap();
        for number in [9, 10, 2] {
            fs::write(folder.path().join(format!("{number}.log")), vec![1; 64 * 1024]).unwrap();
        }
        fs::write(folder.path().join("note.txt"), b"not ours").unwrap();
        keep(Pieces(&[5; 100], 100), folder.path(), 11, 200 * 1024, 64 * 1024).unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["10.log", "11.log", "9.log", "note.txt"]);
    }

    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("precious"), b"untouched").unwrap();
        std::os::unix::fs::symlink("precious", folder.path().join("1.log")).unwrap();
        keep(Pieces(b"x", 1), folder.path(), 1, 1 << 20, 1 << 20).unwrap();
        assert_eq!(fs::read(folder.path().join("precious")).unwrap(), b"untouched");
        assert_eq!(fs::read(folder.path().join("1.log")).unwrap(), b"x");
    }
}
