//! User and group ids of sessions: a block of 64 each, never shared with another session on this host.
//!
//! The kernel counts processes per uid over the whole host and lets equal uids signal each other wherever they share a
//! namespace, so every session has ids of its own. A block is free when no container on the engine has it as its label;
//! who looks and then creates its container does so under one lock for the whole host.

mod host;
mod lock;

use std::{collections::BTreeSet, ops::Range, path::PathBuf};

use protocol::Ids;

pub(crate) use host::Accounts;
pub(crate) use lock::IdsLock;

/// Ids in a block: agent, worker and one tag for each live command.
const BLOCK: u32 = 64;

/// Ids that no distribution hands out: above the ranges of systemd and of containers, below 2³¹.
const WIDE: Range<u32> = 1_900_000_000..2_000_000_000;

/// Where a namespace has too few ids for that: the gap that Debian's policy leaves.
const NARROW: Range<u32> = 20_000..60_000;

/// Why there are no ids for a session.
#[derive(Debug, thiserror::Error)]
pub enum IdsError {
    /// The user namespace of this process has too few ids.
    #[error(
        "this user namespace has neither the ids 1900000000 to 1999999999 nor enough of 20000 to 59999 (/proc/self/uid_map, gid_map); run runner where these ids exist"
    )]
    RangeTooSmall,
    /// All blocks are taken.
    #[error("all {0} blocks of user ids are in use by containers, accounts or /etc/subuid; end some sessions")]
    NoneFree(usize),
    /// Another runner holds the lock.
    #[error("another runner has held {0} for 10 s; see what hangs there (`fuser {0}`) and try again")]
    Busy(PathBuf),
    /// The lock file is not what it should be.
    #[error("cannot lock {path}: {why}; remove it, or let root start runner once")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file with accounts or maps cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Takes the lowest block that is in the maps, in no account and in no container.
pub(crate) fn choose(accounts: &Accounts, in_use: &[u32]) -> Result<Ids, IdsError> {
    let range = [WIDE, NARROW].into_iter().find(|range| accounts.mapped(range)).ok_or(IdsError::RangeTooSmall)?;
    // Labels of other people may hold any number; one inside a block takes the block.
    let taken: BTreeSet<u32> =
        in_use.iter().filter(|id| range.contains(id)).map(|id| (id - range.start) / BLOCK).collect();
    let blocks = range.len() / BLOCK as usize;
    let base = (0..)
        .map(|index| (index, range.start + index * BLOCK))
        .take(blocks)
        .find(|(index, base)| !taken.contains(index) && !accounts.overlap(&(*base..base + BLOCK)))
        .map(|(_, base)| base)
        .ok_or(IdsError::NoneFree(blocks))?;
    Ok(block(base))
}

/// True when an account or a subordinate range of this host has some of the ids that sessions take first.
pub(crate) fn overlaps_wide(accounts: &Accounts) -> bool {
    accounts.overlap(&WIDE)
}

/// The block that starts with this id.
pub(crate) fn block(base: u32) -> Ids {
    Ids { agent: base, worker: base + 1, first_tag: base + 2, tags: BLOCK - 2 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn everything() -> Accounts {
        Accounts::from_text("0 0 4294967295", "0 0 4294967295", "root:x:0:0::/:/bin/sh\n", "root:x:0:\n", "", "")
    }

    fn small(subuid: &str, passwd: &str) -> Accounts {
        Accounts::from_text("0 100000 65536", "0 100000 65536", passwd, "", subuid, "")
    }

    #[test]
    fn the_lowest_block_and_its_parts() {
        let first = choose(&everything(), &[]).unwrap();
        assert_eq!(first, Ids { agent: 1_900_000_000, worker: 1_900_000_001, first_tag: 1_900_000_002, tags: 62 });
        assert_eq!(choose(&everything(), &[first.agent]).unwrap().agent, 1_900_000_064);
        assert_eq!(choose(&everything(), &[1_900_000_064]).unwrap().agent, 1_900_000_000);
    }

    /// security.md 1: a namespace of 65,536 ids refuses large ones, so the block comes from 20000–59999.
    #[test]
    fn a_small_namespace_has_the_narrow_range_without_accounts() {
        assert_eq!(choose(&small("", ""), &[]).unwrap().agent, 20_000);
        assert_eq!(choose(&small("me:20000:100\n", ""), &[]).unwrap().agent, 20_128);
        assert_eq!(choose(&small("", "a:x:20063:5::/:\n"), &[]).unwrap().agent, 20_064);
        assert_eq!(choose(&small("", "a:x:5:20001::/:\n"), &[]).unwrap().agent, 20_064);
        let all: Vec<u32> = (0..625).map(|n| 20_000 + n * 64).collect();
        assert!(matches!(choose(&small("", ""), &all), Err(IdsError::NoneFree(625))));
    }

    #[test]
    fn no_range_is_an_error_that_says_so() {
        let none = Accounts::from_text("0 0 1000", "0 0 4294967295", "", "", "", "");
        let message = choose(&none, &[]).unwrap_err().to_string();
        assert!(message.contains("uid_map"), "{message}");
    }

    #[test]
    fn a_map_in_pieces_counts_as_a_whole() {
        let map = "0 0 20000\n20000 700000 10000\n30000 900000 40000";
        let accounts = Accounts::from_text(map, map, "", "", "", "");
        assert_eq!(choose(&accounts, &[]).unwrap().agent, 20_000);
    }

    proptest! {
        /// Whatever is in use, the chosen block overlaps none of it, no account, and is the lowest such.
        #[test]
        fn a_chosen_block_is_free_and_lowest(
            used in proptest::collection::vec(19_900u32..60_100, 0..700),
            passwd in proptest::collection::vec(19_900u32..60_100, 0..20),
            subuid in proptest::collection::vec((19_900u32..60_100, 1u32..3000), 0..4),
        ) {
            let passwd_text: String = passwd.iter().map(|id| format!("u:x:{id}:0::/:")).collect::<Vec<_>>().join("\n");
            let subuid_text: String = subuid.iter().map(|(id, n)| format!("u:{id}:{n}")).collect::<Vec<_>>().join("\n");
            let accounts = small(&subuid_text, &passwd_text);
            let free = |base: u32| {
                let ids = base..base + 64;
                !used.iter().any(|id| ids.contains(id))
                    && !passwd.iter().any(|id| ids.contains(id))
                    && !subuid.iter().any(|(id, n)| *id < ids.end && id + n > ids.start)
            };
            match choose(&accounts, &used) {
                Ok(ids) => {
                    prop_assert!(ids.agent >= 20_000 && ids.first_tag + ids.tags <= 60_000 && ids.agent % 64 == 20_000 % 64);
                    prop_assert!(free(ids.agent));
                    prop_assert!((20_000..ids.agent).step_by(64).all(|base| !free(base)));
                }
                Err(_) => prop_assert!((20_000..59_999).step_by(64).all(|base| !free(base))),
            }
        }

        #[test]
        fn blocks_taken_one_by_one_are_disjoint(rounds in 1usize..40) {
            let (accounts, mut used) = (everything(), Vec::new());
            for _ in 0..rounds {
                let ids = choose(&accounts, &used).unwrap();
                prop_assert!(!used.contains(&ids.agent));
                used.push(ids.agent);
            }
        }
    }
}
