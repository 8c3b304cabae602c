//! Keeping the full output of a command that printed more than is shown: a server of its own, fed through a pipe,
//! writes it to a file under /tmp. Whatever goes wrong with it, the call does not fail (T-BASH-7).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::statvfs::statvfs;

/// Folders to make, the last one for the files.
const FOLDERS: [&str; 2] = ["/tmp/.runner", "/tmp/.runner/out"];
/// Longest file in bytes.
const LONGEST: u64 = 64 * 1024 * 1024;
/// Room is made for this many bytes at a time.
const STRIDE: u64 = 1024 * 1024;
/// Halves are multiples of this, so that they can be mapped.
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
    let limits = Limits { share, longest: LONGEST, stride: STRIDE };
    match keep(File::from(pipe), Path::new(FOLDERS[1]), number, limits) {
        Ok(false) => WHOLE,
        Ok(true) => CUT,
        Err(_) => {
            let _ = fs::remove_file(path(number));
            FAILED
        }
    }
}

/// How much may be kept, in bytes.
#[derive(Clone, Copy)]
struct Limits {
    /// All files together.
    share: u64,
    /// One file.
    longest: u64,
    /// Room is made for this much at a time.
    stride: u64,
}

/// Copies `source` to a file in `folder`. True when a middle part was left out because it was too long, or because
/// others take the rest of the share.
fn keep(mut source: impl Read, folder: &Path, number: u64, limits: Limits) -> io::Result<bool> {
    let Limits { share, longest, .. } = limits;
    let stride = limits.stride.min(share).min(longest) / (2 * PAGE) * 2 * PAGE;
    let name = folder.join(format!("{number}.log"));
    let _ = fs::remove_file(&name);
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).mode(0o600).open(&name)?;
    // While it is locked, other keepers leave it alone.
    file.lock()?;
    let mut piece = vec![0; 64 * 1024];
    let mut total = 0u64;
    // The file may get this long, and once it may not get longer, its second half is a ring of half that.
    let (mut room, mut may_grow) = (0u64, true);
    loop {
        let length = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            if total == room && may_grow {
                may_grow = room + stride <= longest.min(share) && grow(&file, folder, &name, share, room + stride)?;
                room += if may_grow { stride } else { 0 };
                if room == 0 {
                    return Err(io::Error::from_raw_os_error(libc::ENOSPC));
                }
            }
            let half = room / 2;
            let (at, until) = if may_grow { (total, room) } else { place(total, half) };
            let fits = rest.len().min(usize::try_from(until - at).unwrap_or(usize::MAX));
            file.write_all_at(&rest[..fits], at)?;
            rest = &rest[fits..];
            total += fits as u64;
        }
    }
    let half = room / 2;
    if may_grow || total <= 2 * half {
        file.set_len(total)?;
        return Ok(false);
    }
    turn(&file, half, (total - half) % half)?;
    // The note takes the place of the first bytes of the tail, so it counts itself.
    let note = |left_out: u64| format!("\n[{left_out:>20} bytes are left out here]\n");
    let left_out = total - 2 * half + note(0).len() as u64;
    file.write_all_at(note(left_out).as_bytes(), half)?;
    Ok(true)
}

/// Where the byte number `total` of the output goes once the second half of the file is a ring, and where the run of
/// bytes that starts there ends.
fn place(total: u64, half: u64) -> (u64, u64) {
    if total < half { (total, half) } else { (half + (total - half) % half, 2 * half) }
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

/// Makes the file `length` bytes long, which is how the others see what it takes, if there is room for that.
fn grow(file: &File, folder: &Path, own: &Path, share: u64, length: u64) -> io::Result<bool> {
    let whole = File::open(folder)?;
    // One at a time, or two would take the same room. The agent can hold this lock; then it may be a little more.
    for _ in 0..50 {
        match whole.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
    }
    let fits = make_room(folder, own, share.saturating_sub(length))?;
    if fits {
        file.set_len(length)?;
    }
    Ok(fits)
}

/// Removes kept outputs but `own`, oldest first, until they take at most `most` bytes together. False when those that
/// are still being written take more.
fn make_room(folder: &Path, own: &Path, most: u64) -> io::Result<bool> {
    let mut others: Vec<(u64, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (Some(number), Ok(found)) = (number, entry.metadata())
            && path != own
            && found.is_file()
        {
            others.push((number, found.len(), path));
        }
    }
    others.sort_unstable();
    let mut taken: u64 = others.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in others {
        if taken <= most {
            break;
        }
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
        if opened.is_ok_and(|file| file.try_lock().is_ok()) && fs::remove_file(path).is_ok() {
            taken -= bytes;
        }
    }
    Ok(taken <= most)
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
        fn whole_or_head_and_tail(
            length in 0usize..60_000,
            piece in 1usize..20_000,
            pages in 1u64..8,
            by_share in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let whole: Vec<u8> = (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect();
            let longest = 2 * pages * PAGE;
            // Either limit ends the growth: the length of one file or the share of all.
            let share = if by_share { longest } else { 2 * longest };
            let limits = Limits { share, longest: if by_share { 1 << 30 } else { longest }, stride: 2 * PAGE };
            let cut = keep(Pieces(&whole, piece), folder.path(), 7, limits).unwrap();
            let kept = fs::read(folder.path().join("7.log")).unwrap();
            if length as u64 <= longest {
                // Growth is refused only when more comes, so an output that just fits is whole.
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
        let limits = Limits { share: 200 * 1024, longest: 1 << 20, stride: 64 * 1024 };
        assert!(!keep(Pieces(&[5; 100], 100), folder.path(), 11, limits).unwrap());
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["10.log", "11.log", "9.log", "note.txt"]);
    }

    /// An output that is still being written is not taken away; the newcomer keeps head and tail in what is left.
    #[test]
    fn outputs_that_are_being_written_share_the_room() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("1.log");
        fs::write(&name, vec![1; 128 * 1024]).unwrap();
        let busy = File::open(&name).unwrap();
        busy.lock().unwrap();
        let limits = Limits { share: 200 * 1024, longest: 1 << 20, stride: 32 * 1024 };
        assert!(keep(Pieces(&vec![5; 300_000], 7000), folder.path(), 2, limits).unwrap());
        assert_eq!(fs::metadata(folder.path().join("2.log")).unwrap().len(), 64 * 1024);
        assert!(name.exists());
    }

    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("precious"), b"untouched").unwrap();
        std::os::unix::fs::symlink("precious", folder.path().join("1.log")).unwrap();
        let limits = Limits { share: 1 << 20, longest: 1 << 20, stride: 1 << 20 };
        keep(Pieces(b"x", 1), folder.path(), 1, limits).unwrap();
        assert_eq!(fs::read(folder.path().join("precious")).unwrap(), b"untouched");
        assert_eq!(fs::read(folder.path().join("1.log")).unwrap(), b"x");
    }
}
