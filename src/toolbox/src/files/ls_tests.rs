use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use proptest::prelude::*;
use protocol::{Cause, Request};
use tempfile::TempDir;

use super::*;
use crate::files::host::{Host, Reply};

fn place() -> (TempDir, Host) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let host = Host::start(folder.path(), false);
    (folder, host)
}

fn ls(host: &mut Host, path: Option<&str>, limit: u64) -> Reply {
    host.call(Request::Ls { path: path.map(str::to_owned), limit })
}

fn listing(reply: &Reply) -> (Vec<ListEntry>, u64, u64) {
    let Outcome::Listing { shown, total, .. } = reply.outcome else { panic!("{:?}", reply.outcome) };
    (serde_json::from_slice(&reply.payload).unwrap(), shown, total)
}

fn entry(name: &str, kind: ListKind) -> ListEntry {
    ListEntry { name: name.to_owned(), kind }
}

/// T-LS-1: dotfiles included, case-insensitive order, folders and links marked, special files plain.
#[test]
fn every_kind_in_order() {
    let (folder, mut host) = place();
    let base = folder.path();
    for name in ["b.txt", "A.txt", ".dot", "Ä.txt"] {
        fs::write(base.join(name), "").unwrap();
    }
    fs::create_dir(base.join("Folder")).unwrap();
    symlink("b.txt", base.join("c")).unwrap();
    symlink("/nowhere at all", base.join("a-link")).unwrap();
    nix::unistd::mkfifo(&base.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let reply = ls(&mut host, None, 500);
    let expected = vec![
        entry(".dot", ListKind::File),
        entry("a-link", ListKind::Link("/nowhere at all".to_owned())),
        entry("A.txt", ListKind::File),
        entry("b.txt", ListKind::File),
        entry("c", ListKind::Link("b.txt".to_owned())),
        entry("fifo", ListKind::File),
        entry("Folder", ListKind::Folder),
        entry("Ä.txt", ListKind::File),
    ];
    assert_eq!(listing(&reply), (expected, 8, 8));
    assert_eq!(reply.outcome, Outcome::Listing { path: base.to_str().unwrap().to_owned(), shown: 8, total: 8 });
    let (three, shown, total) = listing(&ls(&mut host, Some("."), 3));
    assert_eq!((three.len(), shown, total), (3, 3, 8));
    assert_eq!(three[2].name, "A.txt");
}

/// T-LS-1: an empty folder, a file, nothing, and a limit of none.
#[test]
fn edges() {
    let (folder, mut host) = place();
    assert_eq!(listing(&ls(&mut host, None, 1)), (vec![], 0, 0));
    fs::write(folder.path().join("f"), "").unwrap();
    let reply = ls(&mut host, Some("f"), 1);
    assert_eq!(reply.failure().0, Cause::Invalid);
    assert!(reply.failure().1.contains("use read"));
    assert_eq!(ls(&mut host, Some("no"), 1).failure().0, Cause::NotFound);
    assert_eq!(ls(&mut host, None, 0).failure().0, Cause::Invalid);
    assert_eq!(ls(&mut host, Some("/proc/self"), 9).failure().0, Cause::Denied);
}

/// T-6: names that are not UTF-8 are shown with U+FFFD.
#[test]
fn odd_names() {
    let (folder, mut host) = place();
    fs::write(folder.path().join(std::ffi::OsString::from_vec(b"x\xff\n".to_vec())), "").unwrap();
    assert_eq!(listing(&ls(&mut host, None, 9)).0, [entry("x\u{fffd}\n", ListKind::File)]);
}

/// T-5, T-7: 2,000 names and 50 KiB of them at most, however many there are and whatever they are made of.
#[test]
fn limits() {
    let (folder, mut host) = place();
    for number in 0..3_000 {
        fs::write(folder.path().join(format!("{number:04}")), "").unwrap();
    }
    let (entries, shown, total) = listing(&ls(&mut host, None, 1_000_000));
    assert_eq!((entries.len(), shown, total), (2_000, 2_000, 3_000));
    assert_eq!((entries[0].name.as_str(), entries[1_999].name.as_str()), ("0000", "1999"));
    for filler in ["n", "\u{1}"] {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        for number in 0..400 {
            fs::write(folder.path().join(format!("{number:03}{}", filler.repeat(200))), "").unwrap();
        }
        let (entries, shown, total) = listing(&ls(&mut host, folder.path().to_str(), 400));
        assert_eq!((entries.len() as u64, total), (shown, 400));
        assert!((150..=251).contains(&shown), "{shown}");
    }
}

/// Bug 28, T-7: the resident worker leaves a huge folder to another server, which lists it in bounded memory.
#[test]
fn a_huge_folder() {
    let (folder, mut host) = place();
    let names = RESIDENT_NAMES + 1;
    let first = folder.path().join("0000000");
    fs::write(&first, "").unwrap();
    // Links to one file are much faster to make than files; a name stands for at most 65,000 of them on some systems.
    for number in 1..names {
        let path = folder.path().join(format!("{number:07}"));
        if number % 30_000 == 0 {
            fs::write(&path, "").unwrap();
        } else {
            fs::hard_link(folder.path().join(format!("{:07}", number / 30_000 * 30_000)), &path).unwrap();
        }
    }
    let (entries, shown, total) = listing(&ls(&mut host, None, 5));
    assert_eq!((shown, total, entries[4].name.as_str()), (5, names, "0000004"));
    let mut resident = Host::start(folder.path(), true);
    assert_eq!(ls(&mut resident, None, 5).outcome, Outcome::NeedsChild);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// T-LS-1: the first names are those that sorting all of them gives.
    #[test]
    fn the_first_of_all(names in prop::collection::btree_set("[a-cA-C]{1,6}|[é-ñÉ-Ñ]{1,4}", 0..60), most in 1u64..70) {
        let (folder, mut host) = place();
        for name in &names {
            fs::write(Path::new(folder.path()).join(name), "").unwrap();
        }
        let mut sorted: Vec<_> = names.iter().cloned().collect();
        sorted.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
        let (entries, shown, total) = listing(&ls(&mut host, None, most));
        let seen: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        sorted.truncate(usize::try_from(most).unwrap());
        prop_assert_eq!(shown, seen.len() as u64);
        prop_assert_eq!(seen, sorted);
        prop_assert_eq!(total, names.len() as u64);
    }
}
