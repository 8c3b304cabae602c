use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::Mode;
use protocol::{Cause, Entry, EntryKind, Request, ToSandbox};
use tempfile::TempDir;

use super::*;
use crate::files::draft::second_name;
use crate::files::host::{Host, Reply};

fn request(path: impl AsRef<Path>) -> Request {
    Request::Write { path: path.as_ref().to_str().unwrap().to_owned() }
}

fn write(host: &mut Host, path: impl AsRef<Path>, body: &[u8]) -> Reply {
    host.call_with(request(path), body)
}

fn place() -> (TempDir, Host) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let host = Host::start(folder.path(), false);
    (folder, host)
}

/// Every name below a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// T-WRITE-1: parents are made, bytes and path are said, nothing else is left in the folder.
#[test]
fn new_file_with_parents() {
    let (folder, mut host) = place();
    let path = folder.path().join("a/b/c.txt");
    let reply = write(&mut host, "a//b/./c.txt", b"hello");
    let path_text = path.to_str().unwrap().to_owned();
    assert_eq!(reply.outcome, Outcome::Written { path: path_text, bytes: 5, replaced: false });
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(names(&folder.path().join("a/b")), ["c.txt"]);
    assert!(matches!(write(&mut host, "empty", b"").outcome, Outcome::Written { bytes: 0, replaced: false, .. }));
    assert_eq!(fs::read(folder.path().join("empty")).unwrap(), b"");
}

/// T-WRITE-1: a replaced file keeps its mode, loses set-id bits, and is another file to whoever has it open.
#[test]
fn replacing() {
    let (folder, mut host) = place();
    let path = folder.path().join("tool.sh");
    for (mode, kept) in [(0o755, 0o755), (0o600, 0o600), (0o640, 0o640), (0o4755, 0o755)] {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let reply = write(&mut host, "tool.sh", b"new");
        assert!(matches!(reply.outcome, Outcome::Written { replaced: true, bytes: 3, .. }), "{:?}", reply.outcome);
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.permissions().mode() & 0o7777, kept);
        assert_ne!(after.ino(), before);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["tool.sh"]);
    }
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let reply = write(&mut host, "tool.sh", b"newer");
    assert_eq!(reply.failure().0, Cause::Denied);
    assert!(reply.failure().1.contains("chmod"), "{}", reply.failure().1);
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

/// T-WRITE-1: no reader ever sees half a file, or none.
#[test]
fn readers_see_all_or_nothing() {
    let (folder, mut host) = place();
    let path = folder.path().join("f");
    fs::write(&path, vec![0; 100_000]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let seen = fs::read(&path).unwrap();
                assert_eq!(seen.len(), 100_000);
                assert!(seen.iter().all(|byte| *byte == seen[0]));
            }
        });
        for round in 1..200u8 {
            assert!(matches!(write(&mut host, "f", &vec![round; 100_000]).outcome, Outcome::Written { .. }));
            if reader.is_finished() {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Bug 24: 20 MB arrive under credit, byte for byte.
#[test]
fn twenty_megabytes() {
    let (folder, mut host) = place();
    let body: Vec<u8> = (0..20_000_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    assert!(matches!(write(&mut host, "big", &body).outcome, Outcome::Written { bytes: 20_000_000, .. }));
    assert!(fs::read(folder.path().join("big")).unwrap() == body);
    let mut resident = Host::start(folder.path(), true);
    let id = resident.begin(request("other"), &body[..200_000], 300_000);
    resident.send(&ToSandbox::Chunk { id }, &body[..100_000]);
    // A second call right behind it: the chunk that came too late is passed over.
    assert_eq!(resident.end_of(id).outcome, Outcome::NeedsChild);
    assert!(matches!(write(&mut resident, "small", b"x").outcome, Outcome::Written { .. }));
    assert_eq!(names(folder.path()), ["big", "small"]);
}

/// T-11, T-WRITE-1, bug 23: outside /tmp is refused, by whatever way, and the error says where to go.
#[test]
fn outside_tmp() {
    let (folder, mut host) = place();
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let target = outside.path().join("secret");
    fs::write(&target, "untouched").unwrap();
    symlink(outside.path(), folder.path().join("door")).unwrap();
    symlink(&target, folder.path().join("window")).unwrap();
    symlink("../../../../var/tmp", folder.path().join("relative")).unwrap();
    symlink("/dev/shm", folder.path().join("shm")).unwrap();
    symlink("/proc/self/cwd", folder.path().join("magic")).unwrap();
    let direct = target.to_str().unwrap().to_owned();
    let dots = format!("{}/../..{direct}", folder.path().display());
    for path in [
        "door/secret",
        "door/new",
        "door/a/b",
        "window",
        "relative/x",
        "shm/x",
        "/dev/shm/x",
        "/dev/null",
        "/etc/passwd",
        "/etc/passwd/x",
        "/no/such/folder/x",
        "/x",
        "/root/x",
        "/tmp",
        "/proc/self/environ",
        "/app/static/SKILL.md",
        &direct,
        &dots,
    ] {
        let reply = write(&mut host, path, b"overwritten");
        let (cause, message) = reply.failure();
        assert_eq!(cause, Cause::Denied, "{path}: {message}");
        assert!(message.contains("read-only") && message.contains("/tmp"), "{path}: {message}");
    }
    assert_eq!(write(&mut host, "magic/x", b"").failure().0, Cause::Denied);
    assert_eq!(fs::read(&target).unwrap(), b"untouched");
    assert_eq!(names(outside.path()), ["secret"]);
}

/// T-3: links inside /tmp are followed to the file they mean, also when it does not exist yet; loops are refused.
#[test]
fn links_inside() {
    let (folder, mut host) = place();
    let base = folder.path();
    fs::create_dir(base.join("real")).unwrap();
    fs::write(base.join("real/file"), "old").unwrap();
    symlink(base.join("real"), base.join("folder")).unwrap();
    symlink("folder/file", base.join("one")).unwrap();
    symlink(base.join("one"), base.join("two")).unwrap();
    symlink("real/later", base.join("dangling")).unwrap();
    symlink("a", base.join("b")).unwrap();
    symlink("b", base.join("a")).unwrap();
    assert!(matches!(write(&mut host, "two", b"new").outcome, Outcome::Written { replaced: true, .. }));
    assert_eq!(fs::read(base.join("real/file")).unwrap(), b"new");
    assert!(matches!(write(&mut host, "dangling", b"x").outcome, Outcome::Written { replaced: false, .. }));
    assert_eq!(fs::read(base.join("real/later")).unwrap(), b"x");
    assert!(matches!(write(&mut host, "folder/../real/third", b"y").outcome, Outcome::Written { .. }));
    for link in ["one", "two", "dangling", "folder", "a", "b"] {
        assert!(base.join(link).is_symlink(), "{link} is still a link");
    }
    assert_eq!(write(&mut host, "a", b"").failure().0, Cause::Denied);
    assert_eq!(names(&base.join("real")), ["file", "later", "third"]);
}

/// T-4: only regular files are replaced.
#[test]
fn not_over_anything_else() {
    let (folder, mut host) = place();
    nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    for (path, word) in
        [("fifo", "FIFO"), ("socket", "Unix socket"), ("folder", "a folder"), ("new/", "a folder"), ("~", "a folder")]
    {
        let reply = write(&mut host, path, b"x");
        assert_eq!(reply.failure().0, Cause::Invalid, "{path}");
        assert!(reply.failure().1.contains(word), "{}", reply.failure().1);
    }
    assert_eq!(names(folder.path()), ["fifo", "folder", "socket"]);
}

/// T-10: a write that is cancelled or cut off leaves neither a file nor the folders made for it.
#[test]
fn cancelled_half_way() {
    let (folder, mut host) = place();
    fs::write(folder.path().join("old"), "old").unwrap();
    for path in ["old", "a/b/new"] {
        let id = host.begin(request(path), b"half", 1_000_000);
        host.send(&ToSandbox::Chunk { id }, b"more");
        host.send(&ToSandbox::Cancel { id }, &[]);
        assert_eq!(host.end_of(id).failure().0, Cause::Cancelled);
    }
    host.begin(request("a/b/new"), b"half", 1_000_000);
    drop(host);
    assert_eq!(names(folder.path()), ["old"]);
    assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"old");
}

/// T-10: a second name left by a server that was killed between two steps goes with the next write there.
#[test]
fn leftovers_go() {
    let (folder, mut host) = place();
    fs::write(folder.path().join("f"), "old").unwrap();
    let left = second_name(c"f").into_string().unwrap();
    fs::write(folder.path().join(&left), "left over").unwrap();
    assert!(matches!(write(&mut host, "f", b"new").outcome, Outcome::Written { .. }));
    assert_eq!(names(folder.path()), ["f"]);
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"new");
}

/// T-8: servers that write the same file at once all succeed, and one of the texts stays, whole.
#[test]
fn two_servers_one_file() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::thread::scope(|scope| {
        for letter in [b'a', b'b', b'c'] {
            let folder = folder.path();
            scope.spawn(move || {
                let mut host = Host::start(folder, false);
                for _ in 0..100 {
                    let reply = write(&mut host, "f", &[letter; 1_000]);
                    assert!(matches!(reply.outcome, Outcome::Written { .. }), "{:?}", reply.outcome);
                }
            });
        }
    });
    assert_eq!(names(folder.path()), ["f"]);
    let text = fs::read(folder.path().join("f")).unwrap();
    assert!(text.len() == 1_000 && text.iter().all(|byte| *byte == text[0]));
}

/// T-7: a host that breaks the rules of a body is not listened to any more, and nothing of it stays.
#[test]
fn bodies_that_break_the_rules() {
    let too_long = |host: &mut Host, id| host.send(&ToSandbox::Chunk { id }, &[0; 2_000]);
    let entry = |host: &mut Host, id| host.send(&ToSandbox::EndOfEntries { id }, &[]);
    let again = |host: &mut Host, id| {
        let key = "again".to_owned();
        let call = protocol::Call { id, key, timeout_ms: 1, body: 0, request: request("g") };
        host.send(&ToSandbox::Call(call), &[]);
    };
    for wrong in [&too_long as &dyn Fn(&mut Host, u64), &entry, &again] {
        let (folder, mut host) = place();
        let id = host.begin(request("a/f"), b"begun", 1_000);
        wrong(&mut host, id);
        assert_eq!(host.receive(), None);
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

/// Gives this thread a /tmp of its own: a tmpfs of 1 MiB and a few inodes. False without the right to mount.
fn small_tmp(inodes: u32) -> bool {
    let options = std::ffi::CString::new(format!("size=1m,nr_inodes={inodes},mode=1777")).unwrap();
    // SAFETY: these calls take only constant C strings and change the mounts of this thread alone.
    unsafe {
        let nothing = std::ptr::null();
        libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, libc::MS_REC | libc::MS_PRIVATE, nothing.cast()) == 0
            && libc::mount(c"tmpfs".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()) == 0
    }
}

/// T-WRITE-1, bug 36: on a full /tmp the old file stays, size and use are said, nothing is left, and after a delete all
/// works again. (Mounting takes root; without it there is nothing to fill.)
#[test]
fn full_tmp() {
    for (inodes, fill_bytes, fill_files) in [(100, 1_000_000, 0), (16, 0, 20)] {
        let (tell, mounted) = std::sync::mpsc::channel();
        let (delete, may_delete) = std::sync::mpsc::channel::<()>();
        let (deleted, is_deleted) = std::sync::mpsc::channel();
        let mut host = Host::start_as("/tmp", false, move || {
            tell.send(small_tmp(inodes)).unwrap();
            // Another thread, because this one is going to serve; it inherits the mounts.
            std::thread::spawn(move || {
                if may_delete.recv().is_ok() {
                    let _ = fs::remove_dir_all("/tmp/fill");
                    let left = names(Path::new("/tmp"));
                    deleted.send(left).unwrap();
                }
            });
        });
        if !mounted.recv().unwrap() {
            return;
        }
        assert!(matches!(write(&mut host, "old", b"old").outcome, Outcome::Written { .. }));
        assert!(matches!(write(&mut host, "fill/bytes", &vec![1; fill_bytes]).outcome, Outcome::Written { .. }));
        for number in 0..fill_files {
            write(&mut host, format!("fill/{number}"), b"");
        }
        for path in ["old", "new/folder/file", "fill/bytes"] {
            let reply = write(&mut host, path, &vec![2; 600_000]);
            let (cause, message) = reply.failure();
            assert_eq!(cause, Cause::NoSpace, "{path}: {message}");
            let size = if fill_files > 0 { format!("16 of {inodes} files") } else { "1.0 MiB".to_owned() };
            assert!(message.contains(&size) && message.contains("/tmp"), "{message}");
        }
        let put = Entry { path: String::new(), kind: EntryKind::File { size: 600_000, executable: false } };
        assert_eq!(host.put("copied", &[(put, vec![3; 600_000])]).failure().0, Cause::NoSpace);
        let read = Request::Read { path: "old".to_owned(), offset: None, limit: None, images: false };
        assert_eq!(host.call(read).payload, b"old");
        delete.send(()).unwrap();
        assert_eq!(is_deleted.recv().unwrap(), ["old"]);
        let reply = write(&mut host, "old", &vec![4; 600_000]);
        assert!(matches!(reply.outcome, Outcome::Written { replaced: true, .. }), "{:?}", reply.outcome);
    }
}
