//! The text of a command while it arrives: a short one in memory, a long one in an anonymous file, so that PID 1 stays
//! small (T-BASH-2).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The longest text that goes to the shell as an argument; the kernel's own limit is twice that.
const ARGUMENT: u64 = 64 * 1024;
/// What the shell runs when the text is in the file that it gets as descriptor 3.
const SOURCE: &CStr = c". /proc/self/fd/3";

/// Why a text cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// A shell cannot run it.
    #[error("the command holds a NUL byte; take it out or write the command to a file with printf")]
    Nul,
    /// The anonymous file could not be made or written.
    #[error("no room for a command of this length: {0}; shorten it or free memory")]
    Room(#[from] io::Error),
}

/// A text that arrives.
#[derive(Debug)]
pub(super) struct Body {
    text: Text,
    received: u64,
    total: u64,
    /// Bytes that the host may still send in chunks.
    credit: u64,
}

#[derive(Debug)]
enum Text {
    Short(Vec<u8>),
    Long(File),
}

/// A whole text.
#[derive(Debug)]
pub(super) enum Script {
    /// For the command line.
    Argument(CString),
    /// To be read from a file.
    File(File),
}

impl Body {
    /// Prepares for `total` bytes.
    pub(super) fn new(total: u64) -> Result<Self, BodyError> {
        let text = if total <= ARGUMENT {
            Text::Short(Vec::new())
        } else {
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            Text::Long(File::from(memfd_create(c"command", flags).map_err(io::Error::from)?))
        };
        Ok(Self { text, received: 0, total, credit: u64::from(protocol::INITIAL_CREDIT) })
    }

    /// The host may send this chunk: it has the credit, and the text is that long.
    pub(super) fn may_take(&self, chunk: &[u8]) -> bool {
        let length = chunk.len() as u64;
        length > 0 && length <= self.credit && self.received + length <= self.total
    }

    /// Takes the next part; a chunk, as opposed to the first part, uses credit. Answers the credit to grant for it.
    pub(super) fn take(&mut self, part: &[u8], is_chunk: bool) -> Result<u32, BodyError> {
        if part.contains(&0) {
            return Err(BodyError::Nul);
        }
        match &mut self.text {
            Text::Short(text) => text.extend_from_slice(part),
            Text::Long(file) => file.write_all(part)?,
        }
        self.received += part.len() as u64;
        // What was used is granted anew, as it is stored already; nothing once the text is whole.
        let used = if is_chunk && !self.is_whole() { part.len() } else { 0 };
        Ok(u32::try_from(used).unwrap_or(0))
    }

    /// Nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.received == self.total
    }

    /// The text, once it is whole.
    pub(super) fn finish(self) -> Result<Script, BodyError> {
        match self.text {
            Text::Short(text) => CString::new(text).map(Script::Argument).map_err(|_| BodyError::Nul),
            Text::Long(file) => {
                // The shell reads it piece by piece: the command must not change its own text.
                let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK;
                fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(io::Error::from)?;
                Ok(Script::File(file))
            }
        }
    }
}

impl Script {
    /// What stands after `-c` on the shell's command line.
    pub(super) fn argument(&self) -> &CStr {
        match self {
            Self::Argument(text) => text,
            Self::File(_) => SOURCE,
        }
    }

    /// The file to hand over as descriptor 3.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Argument(_) => None,
            Self::File(file) => Some(file.as_fd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_short_text_is_an_argument() {
        let mut body = Body::new(8).unwrap();
        assert_eq!(body.take(b"echo", false).unwrap(), 0);
        assert!(!body.is_whole() && body.may_take(b" hi!") && !body.may_take(b" too long"));
        body.take(b" hi!", true).unwrap();
        let script = body.finish().unwrap();
        assert_eq!(script.argument(), c"echo hi!");
        assert!(script.file().is_none());
    }

    /// T-BASH-2, bug 24: a long text goes through a file that nobody can change any more.
    #[test]
    fn a_long_text_is_a_sealed_file() {
        let total = 600 * 1024;
        let mut body = Body::new(total).unwrap();
        body.take(&vec![b'x'; 200 * 1024], false).unwrap();
        assert!(!body.may_take(&vec![b'x'; 257 * 1024]), "over the credit");
        let chunk = vec![b'y'; 200 * 1024];
        assert!(body.may_take(&chunk));
        assert_eq!(body.take(&chunk, true).unwrap(), 200 * 1024);
        assert_eq!(body.take(&chunk, true).unwrap(), 0, "whole: nothing more is granted");
        assert!(body.is_whole() && !body.may_take(b"z"));
        let Script::File(file) = body.finish().unwrap() else { panic!("expected a file") };
        assert_eq!(file.metadata().unwrap().len(), total);
        assert!(file.write_at(b"!", 0).is_err());
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert!(matches!(Body::new(3).unwrap().take(b"a\0b", false), Err(BodyError::Nul)));
    }
}
