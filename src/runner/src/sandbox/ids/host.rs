//! Ids of this host that are mapped, and those that somebody has.

use std::{fs, ops::Range, path::Path};

use super::IdsError;

/// What this host says about its ids.
#[derive(Debug, Clone)]
pub(crate) struct Accounts {
    uid_map: Vec<Range<u64>>,
    gid_map: Vec<Range<u64>>,
    taken: Vec<Range<u64>>,
}

impl Accounts {
    /// Reads the maps of this process and the account files.
    pub(crate) fn of_this_host() -> Result<Accounts, IdsError> {
        let read = |path: &str| {
            fs::read(path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|source| IdsError::Read { path: path.into(), source })
        };
        let read_if_there = |path: &str| if Path::new(path).exists() { read(path) } else { Ok(String::new()) };
        Ok(Accounts::from_text(
            &read("/proc/self/uid_map")?,
            &read("/proc/self/gid_map")?,
            &read_if_there("/etc/passwd")?,
            &read_if_there("/etc/group")?,
            &read_if_there("/etc/subuid")?,
            &read_if_there("/etc/subgid")?,
        ))
    }

    /// The same from the files' contents. Lines that do not parse belong to nobody and are skipped.
    pub(super) fn from_text(
        uid_map: &str,
        gid_map: &str,
        passwd: &str,
        group: &str,
        sub_users: &str,
        sub_groups: &str,
    ) -> Accounts {
        let mut taken = Vec::new();
        for (text, fields) in [(passwd, &[2, 3][..]), (group, &[2])] {
            for line in text.lines() {
                let parts: Vec<&str> = line.split(':').collect();
                taken.extend(fields.iter().filter_map(|at| parts.get(*at)?.parse::<u64>().ok()).map(|id| id..id + 1));
            }
        }
        for line in sub_users.lines().chain(sub_groups.lines()) {
            let mut numbers = line.split(':').skip(1).map(|part| part.trim().parse::<u64>());
            if let (Some(Ok(start)), Some(Ok(count))) = (numbers.next(), numbers.next()) {
                taken.push(start..start.saturating_add(count));
            }
        }
        Accounts { uid_map: map(uid_map), gid_map: map(gid_map), taken }
    }

    /// Every id of the range exists in this user namespace.
    pub(super) fn mapped(&self, range: &Range<u32>) -> bool {
        covers(&self.uid_map, range) && covers(&self.gid_map, range)
    }

    /// An account or a subordinate range has one of these ids.
    pub(super) fn overlap(&self, ids: &Range<u32>) -> bool {
        self.taken.iter().any(|taken| taken.start < u64::from(ids.end) && u64::from(ids.start) < taken.end)
    }
}

/// Reads lines of `inside outside count` (`user_namespaces(7)`) into sorted ranges of inside ids.
fn map(text: &str) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = text
        .lines()
        .filter_map(|line| {
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|part| part.parse().ok()).collect();
            let [inside, _, count] = numbers[..] else { return None };
            Some(inside..inside.saturating_add(count))
        })
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

fn covers(map: &[Range<u64>], wanted: &Range<u32>) -> bool {
    let mut next = u64::from(wanted.start);
    for range in map {
        if range.contains(&next) {
            next = range.end;
        }
    }
    next >= u64::from(wanted.end)
}
