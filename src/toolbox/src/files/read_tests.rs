use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::Mode;
use protocol::{Cause, Request, TextWindow};
use tempfile::TempDir;

use super::*;
use crate::files::host::{Host, Reply};

fn request(path: impl AsRef<Path>, offset: Option<u64>, limit: Option<u64>, images: bool) -> Request {
    Request::Read { path: path.as_ref().to_str().unwrap().to_owned(), offset, limit, images }
}

fn read(host: &mut Host, path: impl AsRef<Path>) -> Reply {
    host.call(request(path, None, None, true))
}

fn window(reply: &Reply) -> &TextWindow {
    match &reply.outcome {
        Outcome::Text(window) => window,
        other => panic!("expected text, got {other:?}"),
    }
}

fn place() -> (TempDir, Host) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let host = Host::start(folder.path(), false);
    (folder, host)
}

/// T-READ-1, T-3: text comes as it is; relative paths start at the working directory; the answer names the real path.
#[test]
fn text_as_it_is() {
    let (folder, mut host) = place();
    let text = "first\r\n\tsecond\n\nwithout end";
    std::fs::write(folder.path().join("a b.txt"), text).unwrap();
    for given in ["a b.txt", "@a b.txt", "./a b.txt"] {
        let reply = read(&mut host, given);
        assert_eq!(reply.text(), text);
        assert_eq!(
            *window(&reply),
            TextWindow {
                path: folder.path().join("a b.txt").to_str().unwrap().to_owned(),
                first: 1,
                last: 4,
                total_lines: 4,
                total_bytes: text.len() as u64,
                clipped: vec![],
                cut: false,
            }
        );
    }
}

/// T-READ-1: an empty file, an offset past the end, and arguments that cannot be.
#[test]
fn edges_of_the_window() {
    let (folder, mut host) = place();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    std::fs::write(folder.path().join("three"), "1\n2\n3\n").unwrap();
    assert_eq!(window(&read(&mut host, "empty")).total_lines, 0);
    let reply = host.call(request("three", Some(4), None, true));
    let path = folder.path().join("three");
    assert_eq!(
        reply.failure(),
        (Cause::Invalid, format!("offset 4 is past the end: {} has 3 lines", path.display()).as_str())
    );
    let reply = host.call(request("three", Some(2), Some(1), true));
    assert_eq!((reply.text(), window(&reply).first, window(&reply).last, window(&reply).cut), ("2\n", 2, 2, false));
    for (offset, limit) in [(Some(0), None), (None, Some(0))] {
        assert_eq!(host.call(request("three", offset, limit, true)).failure().0, Cause::Invalid);
    }
    let (cause, message) = (Cause::NotFound, format!("{} does not exist", folder.path().join("no").display()));
    assert_eq!(read(&mut host, "no").failure(), (cause, message.as_str()));
    assert_eq!(read(&mut host, "three/x").failure().0, Cause::Invalid);
}

/// T-6: invalid UTF-8, NUL and control bytes come through as they are.
#[test]
fn strange_bytes_come_through() {
    let (folder, mut host) = place();
    let bytes = b"a\xffb\0c\x1b]52;c;x\x07\n\xed\xa0\x80\n";
    std::fs::write(folder.path().join("odd"), bytes).unwrap();
    let reply = read(&mut host, "odd");
    assert_eq!(reply.payload, bytes);
    assert_eq!(window(&reply).total_lines, 2);
}

/// T-4, bug 25: whatever is no regular file answers at once and is named; nobody waiting at a FIFO is woken.
#[test]
fn special_files() {
    let (folder, mut host) = place();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    symlink("fifo", folder.path().join("link")).unwrap();
    for (path, word) in [
        ("fifo", "is a FIFO"),
        ("link", "is a FIFO"),
        ("socket", "is a Unix socket"),
        ("/dev/zero", "is a character device"),
        (".", "is a folder: use ls"),
        ("/", "is a folder: use ls"),
    ] {
        let reply = read(&mut host, path);
        let (cause, message) = reply.failure();
        assert_eq!(cause, Cause::Invalid);
        assert!(message.contains(word), "{message}");
    }
}

/// Bug 23: nothing of the server's own entry in /proc, by whatever name, nor anything behind a magic link.
#[test]
fn own_entry_in_proc() {
    let (folder, mut host) = place();
    symlink("/proc/self/environ", folder.path().join("x")).unwrap();
    symlink("/proc/self/fd/0", folder.path().join("zero")).unwrap();
    let id = std::process::id();
    let mut paths =
        vec!["x".to_owned(), "zero".to_owned(), format!("/proc/{id}/environ"), format!("/proc/{id}/root/etc/hosts")];
    for name in ["environ", "maps", "mem", "auxv", "status", "cmdline", "task/../stat"] {
        paths.push(format!("/proc/self/{name}"));
        paths.push(format!("/proc/thread-self/{name}").replace("task/../", ""));
    }
    for path in paths {
        let reply = read(&mut host, &path);
        assert!(matches!(reply.failure().0, Cause::Denied | Cause::Invalid), "{path}: {:?}", reply.outcome);
        assert!(reply.payload.is_empty());
    }
    // What belongs to nobody in particular can be read, although it says that it has no bytes.
    let reply = read(&mut host, "/proc/version");
    assert!(reply.text().starts_with("Linux version"));
}

/// Bug 23: a link to a file that the agent may not read does not make it readable.
#[test]
fn links_to_secrets() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    symlink("/etc/shadow", folder.path().join("x")).unwrap();
    // Like a real file server: the ids of the file system alone are somebody else's. They belong to the thread.
    let mut host = Host::start_as(folder.path(), false, || {
        nix::unistd::setfsgid(nix::unistd::Gid::from_raw(65_534));
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
    });
    let reply = read(&mut host, "x");
    assert_eq!(
        reply.failure(),
        (Cause::Denied, format!("{}: permission denied", folder.path().join("x").display()).as_str())
    );
}

/// T-READ-3, bug 26: a window of a 3 GB file, and its lines counted, without holding it.
#[test]
fn three_gigabytes() {
    let (folder, mut host) = place();
    let path = folder.path().join("big");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"begin\nhole:").unwrap();
    file.seek(SeekFrom::Start(3_000_000_000)).unwrap();
    file.write_all(b"\nend\n").unwrap();
    drop(file);
    let before = peak_memory();
    let reply = host.call(request("big", Some(3), None, true));
    assert_eq!((reply.text(), window(&reply).total_lines, window(&reply).total_bytes), ("end\n", 3, 3_000_000_005));
    let reply = host.call(request("big", Some(1), Some(1), true));
    assert_eq!((reply.text(), window(&reply).total_lines), ("begin\n", 3));
    // A line of 3 GB is clipped like any other.
    let reply = host.call(request("big", Some(2), Some(1), true));
    assert_eq!(window(&reply).clipped, [(2, 3_000_000_000 - 6)]);
    assert!(peak_memory() - before < 64 << 20);
    // The resident worker leaves it to another.
    let mut resident = Host::start(folder.path(), true);
    assert_eq!(read(&mut resident, "big").outcome, Outcome::NeedsChild);
}

/// Highest resident memory of this process in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn png(side: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    ::image::DynamicImage::new_rgb8(side, side).write_to(&mut bytes, ::image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// T-READ-3, T-9: images go by content, in chunks, and never through the resident worker.
#[test]
fn images() {
    let (folder, mut host) = place();
    let bytes = png(300);
    std::fs::write(folder.path().join("picture.txt"), &bytes).unwrap();
    let reply = read(&mut host, "picture.txt");
    let expected = Outcome::Image {
        media_type: "image/png".to_owned(),
        size: (300, 300),
        scaled_from: None,
        bytes: bytes.len() as u64,
    };
    assert_eq!(reply.outcome, expected);
    assert_eq!(reply.streamed, bytes);
    assert_eq!(host.call(request("picture.txt", None, None, false)).outcome, Outcome::NeedsChild);
    let mut resident = Host::start(folder.path(), true);
    assert_eq!(read(&mut resident, "picture.txt").outcome, Outcome::NeedsChild);
}

/// T-7: an image larger than the credit waits for more of it.
#[test]
fn images_under_credit() {
    let (folder, mut host) = place();
    let mut state = 1u32;
    let noise = ::image::RgbImage::from_fn(700, 700, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ::image::Rgb([state.to_be_bytes()[0], state.to_be_bytes()[1], 0])
    });
    noise.save_with_format(folder.path().join("noise"), ::image::ImageFormat::Png).unwrap();
    let bytes = std::fs::read(folder.path().join("noise")).unwrap();
    assert!(bytes.len() > 3 * 256 * 1024);
    assert!(read(&mut host, "noise").streamed == bytes);
}

/// T-READ-3: other binary files answer with type and size; a broken image says so, text that begins like one is text.
#[test]
fn other_files() {
    let (folder, mut host) = place();
    std::fs::write(folder.path().join("zip"), [b"PK\x03\x04".as_slice(), &[0; 96]].concat()).unwrap();
    assert_eq!(read(&mut host, "zip").outcome, Outcome::Binary { kind: "ZIP archive".to_owned(), bytes: 100 });
    std::fs::write(folder.path().join("broken"), &png(300)[..100]).unwrap();
    let Outcome::Binary { kind, bytes: 100 } = read(&mut host, "broken").outcome else { panic!("not text") };
    assert!(kind.starts_with("PNG image (broken: "), "{kind}");
    std::fs::write(folder.path().join("words"), "GIF89a is a format\n".repeat(10_000)).unwrap();
    let reply = read(&mut host, "words");
    assert_eq!((window(&reply).total_lines, window(&reply).last), (10_000, 2_000));
    assert!(reply.text().starts_with("GIF89a is a format\nGIF89a"));
}

/// Bug 25, T-4: a FIFO that a file is swapped for at any moment does not hang the server.
#[test]
fn swapped_for_a_fifo() {
    let (folder, mut host) = place();
    let path = folder.path().join("x");
    let (file, fifo) = (folder.path().join("file"), folder.path().join("fifo"));
    std::fs::write(&file, "text").unwrap();
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
    symlink(&file, &path).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let temporary = folder.path().join("y");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for target in [&fifo, &file] {
                    symlink(target, &temporary).unwrap();
                    std::fs::rename(&temporary, &path).unwrap();
                }
            }
        });
        for _ in 0..2_000 {
            match read(&mut host, "x").outcome {
                Outcome::Text(window) => assert_eq!(window.total_bytes, 4),
                Outcome::Failed { cause: Cause::Invalid, message } => assert!(message.contains("FIFO"), "{message}"),
                other => panic!("{other:?}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
