//! A second seccomp filter on top of the engine's profile: what no process of the sandbox needs and the profile cannot
//! say, installed once in PID 1 and inherited by all (loading one per command cost 75–96 µs).

use std::io;

use libc::{sock_filter, sock_fprog};

/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const ARCH: u32 = 0xc000_003e;
/// System calls of the x32 ABI have this bit (`__X32_SYSCALL_BIT`).
const X32: u32 = 0x4000_0000;

// Offsets in `struct seccomp_data`; arguments are 64 bits wide and little-endian, and the kernel takes each of those
// looked at here as 32 bits, so the low half is what counts.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const PR_SET_SECCOMP: u32 = 22;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// A jump; `yes` and `no` are counted from the next instruction.
const fn jump(code: u16, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code, jt: yes, jf: no, k }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
const fn number(call: libc::c_long) -> u32 {
    call as u32
}

/// The program. Refused with EPERM: another architecture or x32; `prlimit64` on any process but the caller; typing into
/// a terminal (`TIOCSTI`, `TIOCLINUX`); further seccomp filters.
const PROGRAM: [sock_filter; 19] = [
    /*  0 */ step(LOAD, ARCHITECTURE),
    /*  1 */ jump(IF_EQUAL, ARCH, 0, 16),
    /*  2 */ step(LOAD, NUMBER),
    /*  3 */ jump(IF_AT_LEAST, X32, 14, 0),
    /*  4 */ jump(IF_EQUAL, number(libc::SYS_ioctl), 5, 0),
    /*  5 */ jump(IF_EQUAL, number(libc::SYS_prlimit64), 7, 0),
    /*  6 */ jump(IF_EQUAL, number(libc::SYS_prctl), 8, 0),
    /*  7 */ jump(IF_EQUAL, number(libc::SYS_seccomp), 0, 9),
    /*  8 */ step(LOAD, argument(0)),
    /*  9 */ jump(IF_EQUAL, SECCOMP_SET_MODE_FILTER, 8, 7),
    /* 10 */ step(LOAD, argument(1)),
    /* 11 */ jump(IF_EQUAL, TIOCSTI, 6, 0),
    /* 12 */ jump(IF_EQUAL, TIOCLINUX, 5, 4),
    /* 13 */ step(LOAD, argument(0)),
    /* 14 */ jump(IF_EQUAL, 0, 2, 3),
    /* 15 */ step(LOAD, argument(0)),
    /* 16 */ jump(IF_EQUAL, PR_SET_SECCOMP, 1, 0),
    /* 17 */ step(RETURN, ALLOW),
    /* 18 */ step(RETURN, REFUSE),
];

/// Installs it for this process and everything it starts.
pub(super) fn install() -> io::Result<()> {
    let mut program = PROGRAM;
    let order = sock_fprog { len: 19, filter: program.as_mut_ptr() };
    // SAFETY: `order` and the program behind it live through the call; the kernel copies both.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            std::ptr::from_ref(&order),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn verdict(arch: u32, number: libc::c_long, arguments: [u64; 2]) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
        data.extend_from_slice(&arch.to_le_bytes());
        data.extend_from_slice(&[0; 8]);
        for argument in arguments {
            data.extend_from_slice(&argument.to_le_bytes());
        }
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let instruction = PROGRAM[at];
            at += 1;
            let taken = match instruction.code {
                LOAD => {
                    let offset = instruction.k as usize;
                    value = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
                    continue;
                }
                RETURN => return instruction.k,
                IF_EQUAL => value == instruction.k,
                IF_AT_LEAST => value >= instruction.k,
                code => panic!("unknown instruction {code:#x}"),
            };
            at += usize::from(if taken { instruction.jt } else { instruction.jf });
        }
    }

    #[test]
    fn each_rule_refuses_what_it_names_and_nothing_beside_it() {
        let of = |number, arguments| verdict(ARCH, number, arguments) == REFUSE;
        assert!(!of(libc::SYS_read, [0, 0]));
        assert!(!of(libc::SYS_prlimit64, [0, 7]));
        assert!(of(libc::SYS_prlimit64, [1, 7]));
        assert!(of(libc::SYS_prlimit64, [4000, 7]));
        assert!(!of(libc::SYS_ioctl, [0, 0x5413]));
        assert!(of(libc::SYS_ioctl, [0, 0x5412]));
        assert!(of(libc::SYS_ioctl, [0, 0xff_0000_5412]), "the kernel ignores the high half of a command");
        assert!(of(libc::SYS_ioctl, [0, 0x541c]));
        assert!(!of(libc::SYS_prctl, [15, 0]));
        assert!(of(libc::SYS_prctl, [22, 2]));
        assert!(of(libc::SYS_seccomp, [1, 0]));
        assert!(!of(libc::SYS_seccomp, [2, 0]));
        assert!(of(libc::SYS_read | 0x4000_0000, [0, 0]), "x32");
        assert_eq!(verdict(0x4000_0003, libc::SYS_read, [0, 0]), REFUSE, "i386");
    }
}
