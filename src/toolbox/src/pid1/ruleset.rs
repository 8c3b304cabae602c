//! The Landlock ruleset of everything that runs below PID 1: read and execute everywhere, write in a few places, no
//! signals and no abstract sockets out of one's own command. Prepared once; a child only restricts itself with it.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, Scope,
};

/// Folders that may be written to.
const WRITABLE: [&str; 3] = ["/tmp", "/dev/shm", "/dev/pts"];
/// Devices that may be written to.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
/// The newest ABI whose rights are used; the crate leaves out what an older kernel does not know.
const KNOWN: ABI = ABI::V6;
/// Since this ABI a domain's processes cannot signal anything outside it.
const SIGNAL_SCOPE: u32 = 6;

/// The Landlock ABI of the running kernel, 0 without Landlock.
pub(super) fn abi() -> u32 {
    // SAFETY: with this flag the kernel reads no memory and answers a number.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) };
    u32::try_from(answer).unwrap_or(0)
}

/// True when a command cannot stop a process that is not its own, so that the fast way to spawn is safe.
pub(super) fn scopes_signals(abi: u32) -> bool {
    abi >= SIGNAL_SCOPE
}

/// Makes the ruleset; `None` on a kernel without Landlock (the host knows from the hello frame).
pub(super) fn prepare() -> Result<Option<OwnedFd>, RulesetError> {
    let ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))?.create()?;
    let mut ruleset = allow(ruleset, "/", AccessFs::from_read(KNOWN))?;
    for path in WRITABLE {
        ruleset = allow(ruleset, path, AccessFs::from_all(KNOWN))?;
    }
    for path in DEVICES {
        ruleset = allow(ruleset, path, AccessFs::from_file(KNOWN))?;
    }
    Ok(ruleset.into())
}

/// Adds a rule, unless the image has no such path.
fn allow(ruleset: RulesetCreated, path: &str, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => ruleset.add_rule(PathBeneath::new(opened, access)),
        Err(_) => Ok(ruleset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_is_made_where_the_kernel_has_landlock() {
        assert_eq!(prepare().unwrap().is_some(), abi() > 0);
        assert!(!scopes_signals(0) && !scopes_signals(5) && scopes_signals(6));
    }
}
