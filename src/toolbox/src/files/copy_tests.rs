use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;
use protocol::{Cause, Request, ToSandbox};
use tempfile::TempDir;

use super::*;
use crate::files::host::{Host, Reply};

fn place() -> (TempDir, Host) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let host = Host::start(folder.path(), false);
    (folder, host)
}

fn file(path: &str, bytes: &[u8], executable: bool) -> (Entry, Vec<u8>) {
    let kind = EntryKind::File { size: bytes.len() as u64, executable };
    (Entry { path: path.to_owned(), kind }, bytes.to_vec())
}

fn folder(path: &str) -> (Entry, Vec<u8>) {
    (Entry { path: path.to_owned(), kind: EntryKind::Folder }, Vec::new())
}

fn link(path: &str, target: &str) -> (Entry, Vec<u8>) {
    (Entry { path: path.to_owned(), kind: EntryKind::Link { target: target.to_owned() } }, Vec::new())
}

fn get(host: &mut Host, path: &str) -> Reply {
    host.call(Request::Get { path: path.to_owned(), max_bytes: 1 << 30, max_entries: 10_000 })
}

fn copied(reply: &Reply) -> (u64, u64, &[String]) {
    match &reply.outcome {
        Outcome::Copied { files, bytes, skipped } => (*files, *bytes, skipped),
        other => panic!("{other:?}"),
    }
}

/// A folder with files of every kind goes in and comes out again the same; modes are made plain.
#[test]
fn in_and_out() {
    let (base, mut host) = place();
    let big: Vec<u8> = (0..3_000_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let tree = [
        folder(""),
        link(".hidden", "sub/run.sh"),
        file("big", &big, false),
        file("empty", b"", false),
        folder("sub"),
        folder("sub/inner"),
        file("sub/run.sh", b"#!/bin/sh\n", true),
        link("sub/up", "../big"),
        file("sub/inner/日本 語", b"x", false),
    ];
    let reply = host.put("in/there", &tree);
    assert_eq!(copied(&reply), (4, 3_000_011, [].as_slice()));
    let root = base.path().join("in/there");
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("sub/run.sh"), mode("big")), (0o755, 0o644));
    assert_eq!(fs::read_link(root.join("sub/up")).unwrap(), Path::new("../big"));
    let reply = get(&mut host, "in/there");
    assert_eq!(copied(&reply), (4, 3_000_011, [].as_slice()));
    let as_map = |entries: &[(Entry, Vec<u8>)]| -> BTreeMap<String, String> {
        entries.iter().map(|(entry, bytes)| (entry.path.clone(), format!("{:?} {bytes:?}", entry.kind))).collect()
    };
    assert!(as_map(&reply.entries) == as_map(&tree));
    let at = |path: &str| reply.entries.iter().position(|(entry, _)| entry.path == path).unwrap();
    assert!(at("") < at("sub") && at("sub") < at("sub/inner") && at("sub/inner") < at("sub/inner/日本 語"));
}

/// One file alone, and over another.
#[test]
fn a_single_file() {
    let (base, mut host) = place();
    for text in ["one", "another"] {
        assert_eq!(copied(&host.put("new/f.txt", &[file("", text.as_bytes(), false)])).0, 1);
        assert_eq!(fs::read_to_string(base.path().join("new/f.txt")).unwrap(), text);
        let reply = get(&mut host, "new/f.txt");
        assert_eq!(reply.entries, [file("", text.as_bytes(), false)]);
    }
}

/// A folder that is there is merged into; files and links are replaced, folders are not.
#[test]
fn merging() {
    let (base, mut host) = place();
    let outside = base.path().join("outside");
    fs::write(&outside, "untouched").unwrap();
    let root = base.path().join("root");
    fs::create_dir_all(root.join("kept/inner")).unwrap();
    fs::write(root.join("old"), "old").unwrap();
    symlink(&outside, root.join("link")).unwrap();
    let entries = [
        folder(""),
        folder("kept"),
        file("old", b"new", false),
        file("link", b"a file now", false),
        link("kept/l", "x"),
    ];
    assert_eq!(copied(&host.put("root", &entries)).0, 2);
    assert_eq!(copied(&host.put("root", &entries)).0, 2);
    assert_eq!(fs::read_to_string(root.join("old")).unwrap(), "new");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    assert!(root.join("link").symlink_metadata().unwrap().is_file());
    assert!(root.join("kept/inner").is_dir());
    assert_eq!(host.put("root", &[file("", b"", false)]).failure().0, Cause::Invalid);
    assert_eq!(host.put("root", &[folder(""), file("kept", b"", false)]).failure().0, Cause::Invalid);
    assert_eq!(host.put("root", &[folder(""), folder("old")]).failure().0, Cause::Invalid);
}

/// T-11, bug 23: nothing goes in outside /tmp or through a link in the tree, and nothing comes out from there.
#[test]
fn walls() {
    let (base, mut host) = place();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::create_dir(base.path().join("root")).unwrap();
    symlink(outside.path(), base.path().join("door")).unwrap();
    symlink(outside.path(), base.path().join("root/door")).unwrap();
    let direct = outside.path().to_str().unwrap().to_owned();
    for target in ["door", "door/x", "/etc/x", "/dev/shm/x", direct.as_str()] {
        for entries in [vec![folder(""), file("f", b"x", false)], vec![file("", b"x", false)]] {
            let reply = host.put(target, &entries);
            assert!(matches!(reply.failure().0, Cause::Denied | Cause::Invalid), "{target}: {:?}", reply.outcome);
        }
    }
    assert!(matches!(host.put("root", &[folder(""), file("door/f", b"x", false)]).failure().0, Cause::Denied));
    for path in ["..", "../x", "/etc/x", "a/../b", "./a", "a//b", "a\0b", ""] {
        let reply = host.put("root", &[folder(""), file(path, b"x", false)]);
        assert_eq!(reply.failure().0, Cause::Invalid, "{path}");
    }
    for target in ["/etc/passwd", "..", "a/../../x"] {
        assert_eq!(host.put("root", &[folder(""), link("l", target)]).failure().0, Cause::Invalid, "{target}");
    }
    for path in ["door", "door/secret", "/etc/hostname", "/dev/shm", "/proc/self/fd", direct.as_str()] {
        let reply = get(&mut host, path);
        assert_eq!(reply.failure().0, Cause::Denied, "{path}: {:?}", reply.outcome);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let reply = get(&mut host, "root");
    assert!(copied(&reply).2[0].contains("out of the copied folder"), "{:?}", reply.outcome);
    assert_eq!(reply.entries.len(), 1);
}

/// T-4: special files are left out and named, and the list of them is bounded.
#[test]
fn left_out() {
    let (base, mut host) = place();
    let root = base.path().join("root");
    fs::create_dir(&root).unwrap();
    for number in 0..30 {
        nix::unistd::mkfifo(&root.join(format!("p{number:02}")), Mode::from_bits_truncate(0o600)).unwrap();
    }
    fs::write(root.join("z"), "z").unwrap();
    let reply = get(&mut host, "root");
    let (files, _, skipped) = copied(&reply);
    assert_eq!((files, skipped.len()), (1, 20));
    assert_eq!((skipped[0].as_str(), skipped[19].as_str()), ("p00 is a FIFO (named pipe)", "and 11 more"));
    assert!(get(&mut host, "root/p00").failure().1.contains("FIFO"));
}

/// T-7: a copy out ends at its limits of bytes and entries.
#[test]
fn limits() {
    let (base, mut host) = place();
    let root = base.path().join("root");
    fs::create_dir(&root).unwrap();
    for number in 0..20 {
        fs::write(root.join(number.to_string()), [0; 100]).unwrap();
    }
    fs::File::create(root.join("sparse")).unwrap().set_len(3 << 30).unwrap();
    let mut limited =
        |max_bytes, max_entries| host.call(Request::Get { path: "root".to_owned(), max_bytes, max_entries });
    let reply = limited(1 << 30, 100);
    assert_eq!(reply.failure().0, Cause::Limit);
    assert!(reply.failure().1.contains("1073741824"));
    assert_eq!(limited(u64::MAX, 10).failure().0, Cause::Limit);
    fs::remove_file(root.join("sparse")).unwrap();
    assert_eq!(copied(&limited(2_000, 21)).0, 20);
    assert_eq!(limited(1_999, 21).failure().0, Cause::Limit);
    assert_eq!(limited(2_000, 20).failure().0, Cause::Limit);
}

/// T-10: a copy that is cancelled half-way leaves no half file; the server serves the next call.
#[test]
fn cancelled() {
    let (base, mut host) = place();
    let id = host.begin(Request::Put { path: "root".to_owned() }, &[], 0);
    host.send(&ToSandbox::Entry { id, entry: folder("").0 }, &[]);
    let half = Entry { path: "half".to_owned(), kind: EntryKind::File { size: 1_000, executable: false } };
    host.send(&ToSandbox::Entry { id, entry: half }, &[]);
    host.send(&ToSandbox::Chunk { id }, b"half");
    host.send(&ToSandbox::Cancel { id }, &[]);
    assert_eq!(host.end_of(id).failure().0, Cause::Cancelled);
    assert_eq!(fs::read_dir(base.path().join("root")).unwrap().count(), 0);
    assert_eq!(copied(&host.put("root", &[folder("")])).0, 0);
    let mut resident = Host::start(base.path(), true);
    assert_eq!(resident.put("root", &[folder("")]).outcome, Outcome::NeedsChild);
    assert_eq!(get(&mut resident, "root").outcome, Outcome::NeedsChild);
}

/// Bug 23: while the agent swaps a folder for a link out of /tmp, nothing from there ever comes out or is written there.
#[test]
fn races() {
    let (base, mut host) = place();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(outside.path().join("f"), "secret").unwrap();
    let root = base.path().join("root");
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "public").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (d, aside) = (root.join("d"), root.join("aside"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::rename(&d, &aside);
                let _ = symlink(outside.path(), &d);
                let _ = fs::remove_file(&d);
                let _ = fs::rename(&aside, &d);
            }
        });
        for _ in 0..300 {
            for (_, bytes) in get(&mut host, "root").entries {
                assert!(bytes.is_empty() || bytes == b"public");
            }
            host.call_with(Request::Write { path: "root/d/w".to_owned() }, b"public");
            host.put("root", &[folder(""), file("d/p", b"public", false)]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// What may not be read is left out and named.
#[test]
fn unreadable() {
    let base = tempfile::tempdir_in("/tmp").unwrap();
    let root = base.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("mine"), "x").unwrap();
    fs::write(root.join("secret"), "x").unwrap();
    fs::create_dir(root.join("shut")).unwrap();
    for (path, mode) in [(base.path().to_path_buf(), 0o755), (root.join("secret"), 0), (root.join("shut"), 0)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut host = Host::start_as(base.path(), false, || {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
    });
    let reply = get(&mut host, "root");
    let (files, _, skipped) = copied(&reply);
    assert_eq!((files, skipped.len()), (1, 2), "{skipped:?}");
    assert!(skipped[0].starts_with("secret cannot be read") && skipped[1].starts_with("shut cannot be listed"));
    drop(host);
    fs::set_permissions(root.join("shut"), Permissions::from_mode(0o700)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any tree that goes in comes out again.
    #[test]
    fn any_tree(files in prop::collection::btree_map("[ab](/[ab]){0,3}", prop::collection::vec(any::<u8>(), 0..300), 0..12)) {
        let mut entries = vec![folder("")];
        let mut taken: BTreeMap<String, bool> = BTreeMap::new();
        for (path, bytes) in &files {
            let parents: Vec<_> = path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect();
            if taken.contains_key(path) || parents.iter().any(|parent| taken.get(parent) == Some(&false)) {
                continue;
            }
            for parent in parents {
                if taken.insert(parent.clone(), true).is_none() {
                    entries.push(folder(&parent));
                }
            }
            taken.insert(path.clone(), false);
            entries.push(file(path, bytes, bytes.len() % 2 == 0));
        }
        let (_base, mut host) = place();
        copied(&host.put("root", &entries));
        let mut back = get(&mut host, "root").entries;
        back.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        entries.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        prop_assert_eq!(back, entries);
    }
}
