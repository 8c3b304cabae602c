use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use proptest::prelude::*;
use protocol::{Cause, Partial, Request};
use tempfile::TempDir;

use super::*;
use crate::files::host::{Host, Reply};

fn place() -> (TempDir, Host) {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let host = Host::start(folder.path(), false);
    (folder, host)
}

/// A request with a pattern and the defaults; `change` makes it another.
fn grep<'a>(host: &mut Host, pattern: &str, change: impl FnOnce(&mut Changes<'a>)) -> Reply {
    let mut changes = Changes { limit: 100, ..Changes::default() };
    change(&mut changes);
    let Changes { path, glob, ignore_case, literal, context, limit, include_ignored } = changes;
    let path = path.map(str::to_owned);
    let glob = glob.map(str::to_owned);
    let pattern = pattern.to_owned();
    host.call(Request::Grep { pattern, path, glob, ignore_case, literal, context, limit, include_ignored })
}

#[derive(Default)]
struct Changes<'a> {
    path: Option<&'a str>,
    glob: Option<&'a str>,
    ignore_case: bool,
    literal: bool,
    context: u64,
    limit: u64,
    include_ignored: bool,
}

fn plain(_: &mut Changes) {}

fn matches(reply: &Reply) -> &Matches {
    let Outcome::Matches(matches) = &reply.outcome else { panic!("{:?}", reply.outcome) };
    matches
}

fn write(folder: &TempDir, path: &str, content: impl AsRef<[u8]>) {
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// T-GREP-1: paths in order with line numbers, hidden files too, `.git` not, each argument as it is described.
#[test]
fn lines_of_a_tree() {
    let (folder, mut host) = place();
    write(&folder, "b.txt", "one\nTwo\nthree two\n");
    write(&folder, "a/deep/x.rs", "fn two() {}\r\nlast two");
    write(&folder, "a.txt", "two.\n");
    write(&folder, ".hidden", "two\n");
    write(&folder, ".git/config", "two\n");
    write(&folder, "two", "nothing\n");
    symlink("b.txt", folder.path().join("link")).unwrap();
    let reply = grep(&mut host, "two", plain);
    let all =
        ".hidden:1: two\na.txt:1: two.\na/deep/x.rs:1: fn two() {}\na/deep/x.rs:2: last two\nb.txt:3: three two\n";
    assert_eq!(reply.text(), all);
    let expected = Matches {
        shown: 5,
        cut: false,
        matches: 5,
        matched_files: 4,
        files: 5,
        skipped: Skipped::default(),
        partial: None,
    };
    assert_eq!(matches(&reply), &expected);
    assert_eq!(grep(&mut host, "^TWO$", |c| c.ignore_case = true).text(), ".hidden:1: two\nb.txt:2: Two\n");
    assert_eq!(grep(&mut host, "two.", |c| c.literal = true).text(), "a.txt:1: two.\n");
    assert_eq!(grep(&mut host, "\\}$", plain).text(), "a/deep/x.rs:1: fn two() {}\n");
    assert_eq!(grep(&mut host, "^last", |c| c.glob = Some("*.rs")).text(), "a/deep/x.rs:2: last two\n");
    assert_eq!(grep(&mut host, "two", |c| c.glob = Some("!*.{rs,txt}")).text(), ".hidden:1: two\n");
    let absolute = folder.path().join("a").to_str().unwrap().to_owned();
    assert_eq!(
        grep(&mut host, "last", |c| c.path = Some(&absolute)).text(),
        format!("{absolute}/deep/x.rs:2: last two\n")
    );
    assert_eq!(grep(&mut host, "last", |c| c.path = Some("./a//")).text(), "a/deep/x.rs:2: last two\n");
    assert_eq!(grep(&mut host, "two", |c| c.path = Some("@link")).text(), "link:3: three two\n");
    assert_eq!(grep(&mut host, "two", |c| c.path = Some(".git/config")).text(), ".git/config:1: two\n");
    assert_eq!(matches(&grep(&mut host, "", plain)).matches, 8);
}

/// T-GREP-1: lines around matches are marked by `-`, and `--` stands between groups.
#[test]
fn context() {
    let (folder, mut host) = place();
    let text = (1..=12).fold(String::new(), |text, number| text + &format!("line {number}\n"));
    write(&folder, "f", text);
    let reply = grep(&mut host, "line (2|9|10)$", |c| c.context = 1);
    assert_eq!(
        reply.text(),
        "f-1- line 1\nf:2: line 2\nf-3- line 3\n--\nf-8- line 8\nf:9: line 9\nf:10: line 10\nf-11- line 11\n"
    );
    // What stands after the last match that is shown is shown, too, and nothing of the next.
    let reply = grep(&mut host, "line (2|9|10)$", |c| (c.context, c.limit) = (2, 1));
    assert_eq!(reply.text(), "f-1- line 1\nf:2: line 2\nf-3- line 3\nf-4- line 4\n");
    assert_eq!((matches(&reply).shown, matches(&reply).matches), (1, 3));
    let reply = grep(&mut host, "line [23]$", |c| (c.context, c.limit) = (2, 1));
    assert_eq!(reply.text(), "f-1- line 1\nf:2: line 2\n");
}

/// T-GREP-1, T-GREP-2, bug 27: ignore files are honoured, nested and negated, unless that was asked for or the path itself
/// was named, and what they exclude is counted.
#[test]
fn ignored_files() {
    let (folder, mut host) = place();
    write(&folder, ".gitignore", "*.log\n/build/\n!keep.log\nsecret\n");
    write(&folder, "sub/.gitignore", "!x.log\n/y\n");
    write(&folder, "sub/.ignore", "z\n");
    for path in ["a.log", "keep.log", "build/out", "build/deep/out", "sub/x.log", "sub/y", "sub/z", "sub/build/ok"] {
        write(&folder, path, "needle\n");
    }
    write(&folder, "secret", "only here\n");
    let reply = grep(&mut host, "needle", plain);
    assert_eq!(reply.text(), "keep.log:1: needle\nsub/build/ok:1: needle\nsub/x.log:1: needle\n");
    assert_eq!(matches(&reply).skipped, Skipped { ignored: 5, ..Skipped::default() });
    let reply = grep(&mut host, "only here", plain);
    assert_eq!((reply.text(), matches(&reply).skipped.ignored), ("", 5));
    assert_eq!(grep(&mut host, "only here", |c| c.path = Some("secret")).text(), "secret:1: only here\n");
    assert_eq!(grep(&mut host, "needle", |c| c.path = Some("build")).text().lines().count(), 2);
    // The rules of the folders above hold for a folder that they do not exclude.
    let reply = grep(&mut host, "needle", |c| c.path = Some("sub"));
    assert_eq!(reply.text(), "sub/build/ok:1: needle\nsub/x.log:1: needle\n");
    let reply = grep(&mut host, "needle", |c| c.include_ignored = true);
    assert_eq!((reply.text().lines().count(), matches(&reply).skipped.ignored), (8, 0));
    // A repository ends the search for rules above.
    fs::create_dir(folder.path().join("sub/.git")).unwrap();
    write(&folder, "sub/a.log", "needle\n");
    assert_eq!(matches(&grep(&mut host, "needle", |c| c.path = Some("sub"))).matches, 3);
}

/// T-GREP-2: what could not be searched is counted, and matches before the binary part do not count.
#[test]
fn left_out() {
    let (folder, mut host) = place();
    write(&folder, "good", "needle\n");
    write(&folder, "binary", "needle\n\0");
    let late = "needle\n".repeat(300_000) + "\0";
    write(&folder, "late-binary", late);
    let mut middle = b"needle\n".repeat(10_000);
    middle.push(0);
    write(&folder, "middle-binary", &middle);
    write(&folder, "utf16", b"\xff\xfen\xe5");
    let long = "x".repeat(5 << 20) + "needle";
    write(&folder, "long-line", long);
    let sparse = fs::File::create(folder.path().join("sparse")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::from_bits_truncate(0o644)).unwrap();
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let reply = grep(&mut host, "needle", plain);
    assert_eq!(reply.text(), "good:1: needle\n");
    let skipped = Skipped { binary: 4, too_large: 2, special: 2, ..Skipped::default() };
    assert_eq!((matches(&reply).skipped, matches(&reply).files), (skipped, 1));
    assert_eq!(matches(&grep(&mut host, "needle", |c| c.path = Some("sparse"))).skipped.binary, 1);
    assert_eq!(grep(&mut host, "x", |c| c.path = Some("fifo")).failure().0, Cause::Invalid);
    assert_eq!(grep(&mut host, "x", |c| c.path = Some("socket")).failure().0, Cause::Invalid);
    assert_eq!(grep(&mut host, "x", |c| c.path = Some("none")).failure().0, Cause::NotFound);
    // Rules that are too long to be read are said to be unreadable; a pipe or a link is no ignore file.
    write(&folder, ".gitignore", vec![b'a'; 300_000]);
    nix::unistd::mkfifo(&folder.path().join(".ignore"), Mode::from_bits_truncate(0o644)).unwrap();
    assert_eq!(matches(&grep(&mut host, "needle", plain)).skipped.unreadable, 1);
    fs::remove_file(folder.path().join(".gitignore")).unwrap();
    fs::write(folder.path().join("rules"), "good\n").unwrap();
    symlink("rules", folder.path().join(".gitignore")).unwrap();
    assert_eq!(matches(&grep(&mut host, "needle", plain)).skipped.unreadable, 0);
}

/// T-4, T-9: nothing of a process or of the kernel's own file systems is searched, named or on the way.
#[test]
fn made_up_files() {
    let (folder, mut host) = place();
    symlink("/proc/self", folder.path().join("self")).unwrap();
    for path in ["/proc", "/sys", "/proc/self", "self", "self/fd", "/proc/self/environ", "self/environ", "/proc/1/fd"] {
        let reply = grep(&mut host, "a", |c| c.path = Some(path));
        assert_eq!(reply.failure().0, Cause::Denied, "{path}");
    }
    assert_eq!(grep(&mut host, "a", |c| c.path = Some("/dev/zero")).failure().0, Cause::Invalid);
    let reply = grep(&mut host, "^root:", |c| (c.path, c.glob) = (Some("/"), Some("etc/passwd")));
    assert!(reply.text().starts_with("/etc/passwd:1: root:"), "{:?}", reply.outcome);
    assert!(matches(&reply).skipped.special >= 2);
    assert!(
        grep(&mut host, "^Name:", |c| c.path = Some("/proc/1/status")).text().starts_with("/proc/1/status:1: Name:")
    );
}

/// T-5, T-7: the limits of results, counts beyond them, and long files in bounded memory.
#[test]
fn limits() {
    let (folder, mut host) = place();
    let mut text = String::new();
    for number in 0..400_000 {
        let _ = writeln!(text, "number {number}");
    }
    write(&folder, "f", text);
    let reply = grep(&mut host, "9", |c| c.limit = 3);
    assert_eq!(reply.text(), "f:10: number 9\nf:20: number 19\nf:30: number 29\n");
    assert_eq!((matches(&reply).shown, matches(&reply).cut), (3, false));
    assert_eq!(matches(&reply).matches, (0..400_000).filter(|n: &u32| n.to_string().contains('9')).count() as u64);
    let reply = grep(&mut host, "number", |c| c.limit = 100_000);
    let found = matches(&reply);
    assert!(found.cut && found.shown == 2000 && found.matches == 400_000 && found.partial.is_none(), "{found:?}");
    let wide = format!("needle{}\n", "é".repeat(300)).repeat(500);
    write(&folder, "wide", wide);
    let reply = grep(&mut host, "needle", |c| c.limit = 100_000);
    assert!(reply.payload.len() <= 50 * 1024 && reply.payload.len() > 49 * 1024);
    assert_eq!(matches(&reply).matches, 500);
    assert_eq!(grep(&mut host, "x", |c| c.limit = 0).failure().0, Cause::Invalid);
}

/// T-6: invalid UTF-8 is shown with U+FFFD, the mark of UTF-8 and CR are not shown.
#[test]
fn odd_text() {
    let (folder, mut host) = place();
    write(&folder, "a", b"\xef\xbb\xbfneedle \xff\r\nb needle\x1b[2J\r\n");
    assert_eq!(grep(&mut host, "^needle", plain).text(), "a:1: needle \u{fffd}\n");
    assert_eq!(grep(&mut host, "b needle", plain).text(), "a:2: b needle\u{1b}[2J\n");
    write(&folder, "two\nlines", "needle");
    assert_eq!(grep(&mut host, "needle$", plain).text(), "two\\nlines:1: needle\n");
}

/// T-GREP-2: when time is over the result so far is given and marked; the resident worker leaves it to another server.
#[test]
fn time_is_limited() {
    let (folder, mut host) = place();
    write(&folder, "a", "needle\n");
    let line = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
    for number in 0..200 {
        write(&folder, &format!("f{number}"), line.repeat(18_000));
    }
    // Matching this takes many steps for each byte.
    let slow = "needle|(?:x{2,30}){2,9}(?:.{1,50}y){3}";
    let call = Request::Grep {
        pattern: slow.to_owned(),
        path: None,
        glob: None,
        ignore_case: true,
        literal: false,
        context: 0,
        limit: 100,
        include_ignored: false,
    };
    let begun = Instant::now();
    let reply = host.call_for(call.clone(), Duration::from_millis(300));
    assert_eq!(matches(&reply).partial, Some(Partial::Time), "{:?}", reply.outcome);
    assert_eq!(reply.text(), "a:1: needle\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let mut resident = Host::start(folder.path(), true);
    assert_eq!(resident.call(call).outcome, Outcome::NeedsChild);
    assert_eq!(grep(&mut resident, "needle", |c| c.path = Some("a")).text(), "a:1: needle\n");
}

/// Bug 28, T-7: deep trees and large folders are walked in bounded memory.
#[test]
fn deep_and_wide() {
    let (folder, mut host) = place();
    let mut deep = folder.path().to_owned();
    for _ in 0..260 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("f"), "needle").unwrap();
    fs::write(folder.path().join("d/d/f"), "needle").unwrap();
    let reply = grep(&mut host, "needle", plain);
    assert_eq!((reply.text(), matches(&reply).skipped.unreadable), ("d/d/f:1: needle\n", 1));
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let _ = reply;
}

/// What a line-by-line search without any cleverness finds.
fn naive(folder: &Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(naive(&path, needle).into_iter().map(|line| format!("{name}/{line}")));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        if bytes.contains(&0) {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for (number, line) in text.split('\n').enumerate() {
            if line.contains(needle) {
                found.push(format!("{name}:{}: {}", number + 1, line.strip_suffix('\r').unwrap_or(line)));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// T-GREP-1: wherever in a long file a line stands, across the pieces in which it is read, it is found.
    #[test]
    fn lines_anywhere_in_long_files(
        lengths in prop::collection::vec(prop_oneof![9 => 0usize..200, 1 => 20_000usize..70_000], 1..400),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ended in any::<bool>(),
    ) {
        let (folder, mut host) = place();
        let chosen: std::collections::BTreeSet<usize> = chosen.iter().map(|index| index.index(lengths.len())).collect();
        let line = |(number, length): (usize, &usize)| {
            "x".repeat(*length) + if chosen.contains(&number) { "needle" } else { "" }
        };
        let text = lengths.iter().enumerate().map(line).collect::<Vec<_>>().join("\n");
        write(&folder, "f", text + if ended { "\n" } else { "" });
        let reply = grep(&mut host, "needle$", plain);
        let seen: Vec<usize> = reply
            .text()
            .lines()
            .map(|line| line.split(':').nth(1).unwrap().parse::<usize>().unwrap() - 1)
            .collect();
        prop_assert_eq!(seen, chosen.into_iter().collect::<Vec<_>>());
    }

    /// T-GREP-1: a search finds what a naive one finds, whatever is in the files.
    #[test]
    fn like_a_naive_search(
        files in prop::collection::btree_map("[ab]{1,2}(/[ab.]c{1,2}){0,2}", prop::collection::vec(prop_oneof![
            6 => "[ab \n]{0,20}".prop_map(String::into_bytes),
            2 => "\r\n|é|日本".prop_map(String::into_bytes),
            1 => prop::collection::vec(1u8..=255, 0..4),
            1 => Just(vec![0]),
        ], 0..12).prop_map(|parts| parts.concat()), 0..12),
        needle in "[ab ]{1,3}|é|本",
    ) {
        let (folder, mut host) = place();
        for (path, content) in &files {
            let path = folder.path().join(path);
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
                fs::write(path, content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content)).unwrap();
            }
        }
        let reply = grep(&mut host, &needle, |c| (c.literal, c.limit) = (true, 100_000));
        let mut seen: Vec<&str> = reply.text().lines().collect();
        let mut expected = naive(folder.path(), &needle);
        seen.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }
}
