use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use protocol::{Cause, Request};
use tempfile::TempDir;

use super::*;
use crate::files::host::{Host, Reply};

mod properties;
mod words;

const MOST: u64 = 64 << 20;

/// A folder below /tmp and a file server in it.
struct Desk {
    folder: TempDir,
    host: Host,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let host = Host::start(folder.path(), false);
        Self { folder, host }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `f`.
    fn file(&self, bytes: impl AsRef<[u8]>) {
        fs::write(self.path("f"), bytes).unwrap();
    }

    fn edit_as(&mut self, path: &str, edits: &[(&str, &str)], most: u64) -> Reply {
        let edits: Vec<Replacement> =
            edits.iter().map(|(old, new)| Replacement { old: (*old).to_owned(), new: (*new).to_owned() }).collect();
        let body = serde_json::to_vec(&edits).unwrap();
        self.host.call_with(Request::Edit { path: path.to_owned(), most }, &body)
    }

    /// Edits `f`.
    fn edit(&mut self, edits: &[(&str, &str)]) -> Reply {
        self.edit_as("f", edits, MOST)
    }

    /// What `f` becomes of `before` by one edit.
    fn becomes(&mut self, before: impl AsRef<[u8]>, old: &str, new: &str) -> Vec<u8> {
        self.file(before);
        let reply = self.edit(&[(old, new)]);
        assert!(matches!(reply.outcome, Outcome::Edited(_)), "{:?}", reply.outcome);
        fs::read(self.path("f")).unwrap()
    }

    /// What is said when these edits of `before` cannot be made; the folder's path is left out. The file is as it was.
    fn refused(&mut self, before: impl AsRef<[u8]>, edits: &[(&str, &str)]) -> String {
        self.file(&before);
        let reply = self.edit(edits);
        let (cause, message) = reply.failure();
        assert_eq!(cause, Cause::Invalid, "{message}");
        assert!(fs::read(self.path("f")).unwrap() == before.as_ref(), "the file was changed");
        assert_eq!(names(self.folder.path()), ["f"]);
        message.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn edited(reply: &Reply) -> &Edited {
    match &reply.outcome {
        Outcome::Edited(edited) => edited,
        other => panic!("{other:?}"),
    }
}

/// T-EDIT-1: edits in any order match the file as it was; the mode stays; nothing else is left in the folder.
#[test]
fn several_edits_at_once() {
    let mut desk = Desk::new();
    desk.file("one\ntwo\nthree\n");
    fs::set_permissions(desk.path("f"), Permissions::from_mode(0o751)).unwrap();
    let before = fs::metadata(desk.path("f")).unwrap().ino();
    // What the first edit writes is not seen by the second.
    let reply = desk.edit(&[("three", "one"), ("one", "two two"), ("two\n", "")]);
    assert_eq!(fs::read_to_string(desk.path("f")).unwrap(), "two two\none\n");
    let facts = fs::metadata(desk.path("f")).unwrap();
    assert_eq!((facts.permissions().mode() & 0o7777, facts.ino() != before), (0o751, true));
    assert_eq!(names(desk.folder.path()), ["f"]);
    let edited = edited(&reply);
    assert_eq!((edited.bytes, edited.edits, edited.tolerant.len(), edited.diff_lines), (12, 3, 0, 8));
    // Edits that touch each other do not overlap.
    assert!(matches!(desk.edit(&[("two two", "a"), ("\none", "b")]).outcome, Outcome::Edited(_)));
    assert_eq!(fs::read(desk.path("f")).unwrap(), b"ab\n");
}

/// T-EDIT-2, bug 20: endings, BOM, trailing blanks, a missing final newline and invalid bytes stay.
#[test]
fn bytes_that_stay() {
    let mut desk = Desk::new();
    assert_eq!(desk.becomes("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n"), b"x\r\ny\r\nz\r\nc\r\n");
    assert_eq!(desk.becomes("a\r\nb\r\nc", "b", "x\ny"), b"a\r\nx\r\ny\r\nc");
    assert_eq!(desk.becomes("a\nb\r\nc\nd\r\n", "b\nc\nd", "x\ny\nz"), b"a\nx\r\ny\nz\r\n");
    assert_eq!(desk.becomes("a\nb\r\nc\nd\r\n", "a", "x\ny"), b"x\ny\nb\r\nc\nd\r\n");
    assert_eq!(desk.becomes("a\r\nb", "\nb", "\nx\ny"), b"a\r\nx\r\ny");
    assert_eq!(desk.becomes("a\r\nb", "\nb", ""), b"a");
    assert_eq!(desk.becomes("a\r\nb\r\n", "a\r\nb", "x\ny"), b"x\r\ny\r\n");
    assert_eq!(desk.becomes("a\r\nb\r\n", "a", "x\r\ny"), b"x\r\ny\r\nb\r\n");
    assert_eq!(desk.becomes("\u{feff}a  \nb\t\nc", "b", "x"), "\u{feff}a  \nx\t\nc".as_bytes());
    assert_eq!(desk.becomes(b"\xff\xfe\0a\r\r\nb\xe2\x80", "a", "x"), b"\xff\xfe\0x\r\r\nb\xe2\x80");
    assert_eq!(desk.becomes("a\rb\rc", "b", "x"), b"a\rx\rc");
    assert_eq!(desk.becomes("a\nb", "b", ""), b"a\n");
    assert_eq!(desk.becomes("a", "a", ""), b"");
    assert_eq!(desk.becomes("a\0b", "\0", "\0\0"), b"a\0\0b");
}

/// T-EDIT-3, bug 21: blanks at line ends and the forms of quotes, dashes and blanks may differ; only what matched changes.
#[test]
fn tolerant_matches() {
    let mut desk = Desk::new();
    let text = "“keep”\u{a0}—  \nsay “hi” – it’s\u{a0}me  \t\r\nnext\u{3000}\n“keep”\n";
    let result = desk.becomes(text, "say \"hi\" - it's me\nnext\n", "new\nlines\n");
    assert_eq!(String::from_utf8(result).unwrap(), "“keep”\u{a0}—  \nnew\r\nlines\n“keep”\n");
    assert_eq!(desk.becomes("a “b” c   \n", "\"b\" c", "x"), b"a x   \n");
    // Blanks at its end mean those at the line's end, however many.
    assert_eq!(desk.becomes("a “b” c   \nd", "\"b\" c \n", "x\n"), b"a x\nd");
    assert_eq!(desk.becomes("a “b” c\t\nd", "\"b\" c  ", "x"), b"a x\nd");
    assert_eq!(desk.becomes("a “b” c", "\"b\" c  ", "x"), b"a x");
    // Or they stand inside of a line.
    assert_eq!(desk.becomes("a “b” c", "\"b\" ", "x"), b"a xc");
    assert_eq!(desk.becomes("{  \n    a\n", "{\n    ", "{ "), b"{ a\n");
    // The exact text goes first.
    desk.file("“a”\n\"a\"\n");
    let reply = desk.edit(&[("\"a\"", "b")]);
    assert_eq!(edited(&reply).tolerant, [0; 0]);
    assert_eq!(fs::read_to_string(desk.path("f")).unwrap(), "“a”\nb\n");
    desk.file("“a”\n“b”\n'c'\n");
    let reply = desk.edit(&[("'c'", "x"), ("\"b\"", "y")]);
    assert_eq!(edited(&reply).tolerant, [1]);
    assert_eq!(fs::read_to_string(desk.path("f")).unwrap(), "“a”\ny\nx\n");
}

/// T-EDIT-2: the letter of a CR in oldText counts; with it a text is found that would be there twice.
#[test]
fn a_written_cr_is_meant() {
    let mut desk = Desk::new();
    assert_eq!(desk.becomes("a\nb\r\na\r\nb\r\n", "a\r\nb", "x\ny"), b"a\nb\r\nx\r\ny\r\n");
    let twice = desk.refused("a\nb\r\na\r\nb\r\n", &[("a\nb", "x")]);
    assert_eq!(twice, "oldText is in f 2 times, in lines 1, 3: add lines around it until it is there once");
    // A file without CRLF has it when the blanks at line ends may differ.
    assert_eq!(desk.becomes("a\nb\n", "a\r\nb", "x\ny"), b"x\ny\n");
}

/// T-4, T-11, T-3: only regular files below /tmp, links followed, loops and /proc's links not.
#[test]
fn other_places() {
    let mut desk = Desk::new();
    desk.file("a\n");
    symlink("f", desk.path("link")).unwrap();
    symlink("/etc/hostname", desk.path("out")).unwrap();
    symlink("/proc/self/environ", desk.path("env")).unwrap();
    symlink("loop", desk.path("loop")).unwrap();
    fs::create_dir(desk.path("d")).unwrap();
    nix::unistd::mkfifo(&desk.path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(desk.path("socket")).unwrap();
    let edit = &[("a", "b")];
    assert!(matches!(desk.edit_as("link", edit, MOST).outcome, Outcome::Edited(_)));
    assert_eq!(fs::read(desk.path("f")).unwrap(), b"b\n");
    assert!(desk.path("link").is_symlink());
    for (path, cause, word) in [
        ("fifo", Cause::Invalid, "FIFO"),
        ("socket", Cause::Invalid, "Unix socket"),
        ("/dev/zero", Cause::Invalid, "character device"),
        ("d", Cause::Invalid, "use ls"),
        ("f/", Cause::Invalid, "folder"),
        ("f/x", Cause::Invalid, "a part of this path is a file"),
        ("gone", Cause::NotFound, "does not exist"),
        ("gone/f", Cause::NotFound, "does not exist"),
        ("out", Cause::Denied, "read-only"),
        ("/etc/hostname", Cause::Denied, "read-only"),
        ("env", Cause::Denied, ""),
        ("loop", Cause::Denied, "loop"),
    ] {
        let reply = desk.edit_as(path, edit, MOST);
        let (found, message) = reply.failure();
        assert!(found == cause && message.contains(word), "{path}: {found:?} {message}");
    }
    assert!(!desk.path("gone").exists(), "no folder is made");
    fs::set_permissions(desk.path("f"), Permissions::from_mode(0o444)).unwrap();
    assert_eq!(desk.edit(&[("b", "a")]).failure().0, Cause::Denied);
    assert_eq!(fs::read(desk.path("f")).unwrap(), b"b\n");
}

/// T-7, bug 26: a file over the limit is refused unread, with size and limit; the resident worker passes on what takes long.
#[test]
fn long_files() {
    let mut desk = Desk::new();
    fs::File::create(desk.path("f")).unwrap().set_len(3 << 30).unwrap();
    let reply = desk.edit(&[("a", "b")]);
    let (cause, message) = reply.failure();
    assert_eq!(cause, Cause::Limit);
    assert!(message.contains(" has 3221225472 bytes; ") && message.contains(" 67108864 bytes "), "{message}");
    assert_eq!(desk.edit_as("f", &[("a", "b")], 5).failure().0, Cause::Limit);

    let mut resident = Desk { host: Host::start(desk.folder.path(), true), folder: tempfile::tempdir().unwrap() };
    assert_eq!(resident.edit(&[("a", "b")]).failure().0, Cause::Limit);
    desk.file(vec![b'x'; 5 << 20]);
    assert_eq!(resident.edit(&[("a", "b")]).outcome, Outcome::NeedsChild);
    desk.file(vec![b'x'; 1 << 20]);
    assert_eq!(resident.edit(&[("a", "b"); 100]).outcome, Outcome::NeedsChild);
    let long = "y".repeat(300_000);
    assert_eq!(resident.edit(&[(&long, "b")]).outcome, Outcome::NeedsChild);
    assert_eq!(resident.edit(&[("a", "b")]).failure().0, Cause::Invalid);
    desk.file("a");
    assert!(matches!(resident.edit(&[("a", "b")]).outcome, Outcome::Edited(_)));
}

/// T-7: many edits, a text as long as the file, one that is there a million times, and near misses of both.
#[test]
fn a_lot_at_once() {
    let mut desk = Desk::new();
    let lines: Vec<String> = (0..2_000).map(|number| format!("line number {number};\n")).collect();
    let pairs: Vec<(String, String)> =
        (0..2_000).map(|number| (format!("number {number};"), format!("NUMBER {number};"))).collect();
    let edits: Vec<(&str, &str)> = pairs.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
    desk.file(lines.concat());
    let reply = desk.edit(&edits);
    assert_eq!(fs::read_to_string(desk.path("f")).unwrap(), lines.concat().replace("number", "NUMBER"));
    let edited = edited(&reply);
    assert_eq!((edited.diff_lines, edited.edits), (4_003, 2_000));
    assert!(edited.shown_lines <= 2_000 && reply.payload.len() <= 50 * 1024);
    assert_eq!(reply.text().lines().count() as u64, edited.shown_lines);
    let refused = desk.refused(lines.concat(), &[edits.as_slice(), &[("nowhere", ""); 40]].concat());
    assert!(refused.ends_with("edits[2022], …\nnone of the edits was made"), "{refused}");

    let million = "x\r\n".repeat(1_000_000);
    let refused = desk.refused(&million, &[("x", "y")]);
    assert!(refused.starts_with("oldText is in f 1000000 times, in lines 1, 2, 3,"), "{refused}");
    assert!(refused.contains(" 20, …: "), "{refused}");
    let shorter = "x\n".repeat(50_000);
    assert!(desk.refused(&million, &[(&shorter, "y")]).starts_with("oldText is in f 20 times, in lines 1, 50001,"));
    let longer = "x\n".repeat(1_000_001);
    desk.refused(&million, &[(&longer, "y")]);
    let missed = format!("{shorter}y");
    assert_eq!(desk.refused(&million, &[(&missed, "y")]), "oldText is not in f; it is nearest at line 1");
    assert_eq!(desk.becomes(&million, &million, "y\n"), b"y\r\n");
}

/// T-10: a file that another changed meanwhile is not replaced.
#[test]
fn changes_meanwhile() {
    let mut desk = Desk::new();
    desk.file("a\n");
    let request = Request::Edit { path: "f".to_owned(), most: MOST };
    let body = serde_json::to_vec(&[Replacement { old: "a".to_owned(), new: "b".to_owned() }]).unwrap();
    for replaced in [true, false] {
        // So long that the server grants credit for the first chunk: it has looked at the file by then.
        let body = [body.as_slice(), &b" ".repeat(200_000)].concat();
        let id = desk.host.begin(request.clone(), &body[..10], body.len() as u64);
        desk.host.send(&protocol::ToSandbox::Chunk { id }, &body[10..150_010]);
        assert!(matches!(desk.host.receive().unwrap().header, protocol::FromSandbox::Credit { .. }));
        if replaced {
            fs::write(desk.path("g"), "x\n").unwrap();
            fs::rename(desk.path("g"), desk.path("f")).unwrap();
        } else {
            fs::write(desk.path("f"), "other a\n").unwrap();
        }
        desk.host.send(&protocol::ToSandbox::Chunk { id }, &body[150_010..]);
        let reply = desk.host.end_of(id);
        let (cause, message) = reply.failure();
        assert!(cause == Cause::Invalid && message.contains("changed while it was being edited"), "{message}");
        assert_eq!(names(desk.folder.path()), ["f"]);
        desk.file("a\n");
    }
}
