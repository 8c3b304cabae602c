use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

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

fn find_in(host: &mut Host, pattern: &str, path: Option<&str>, limit: u64, include_ignored: bool) -> Reply {
    host.call(Request::Find { pattern: pattern.to_owned(), path: path.map(str::to_owned), limit, include_ignored })
}

fn find(host: &mut Host, pattern: &str) -> Reply {
    find_in(host, pattern, None, 1000, false)
}

fn found(reply: &Reply) -> &Found {
    let Outcome::Found(found) = &reply.outcome else { panic!("{:?}", reply.outcome) };
    found
}

fn write(folder: &TempDir, path: &str) {
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

/// T-FIND-1: globs match paths below the folder, a bare one names at any depth; sorted, `/` after folders.
#[test]
fn by_glob() {
    let (folder, mut host) = place();
    for path in ["main.rs", "src/lib.rs", "src/a.ts", "src/deep/b.ts", "src.rs/x", ".hid/y.rs", ".git/z.rs", "a b"] {
        write(&folder, path);
    }
    symlink("src", folder.path().join("link.rs")).unwrap();
    assert_eq!(find(&mut host, "*.rs").text(), ".hid/y.rs\nlink.rs\nmain.rs\nsrc.rs/\nsrc/lib.rs\n");
    assert_eq!(find(&mut host, "**/*.rs").text(), find(&mut host, "*.rs").text());
    assert_eq!(find(&mut host, "src/*.ts").text(), "src/a.ts\n");
    assert_eq!(find(&mut host, "src/**/*.ts").text(), "src/a.ts\nsrc/deep/b.ts\n");
    assert_eq!(find(&mut host, "*.rs/").text(), "src.rs/\n");
    assert_eq!(find(&mut host, "{a b,main.*}").text(), "a b\nmain.rs\n");
    assert_eq!(find(&mut host, "deep").text(), "src/deep/\n");
    let reply = find(&mut host, "*");
    assert_eq!((found(&reply).total, found(&reply).names), (12, 12));
    assert_eq!(find_in(&mut host, "*.ts", Some("src"), 1000, false).text(), "src/a.ts\nsrc/deep/b.ts\n");
    let absolute = folder.path().join("src").to_str().unwrap().to_owned();
    assert_eq!(find_in(&mut host, "a.*", Some(&absolute), 9, false).text(), format!("{absolute}/a.ts\n"));
    let none = find(&mut host, "*.none");
    assert_eq!((none.text(), found(&none).total), ("", 0));
}

/// T-FIND-1, bug 27: ignore files are honoured and counted, and a pattern that names one file finds it all the same.
#[test]
fn ignored_names() {
    let (folder, mut host) = place();
    write(&folder, "node_modules/x/package.json");
    write(&folder, "package.json");
    write(&folder, "app/[id].tsx");
    write(&folder, ".git/config");
    fs::write(folder.path().join(".gitignore"), "node_modules\n").unwrap();
    let reply = find(&mut host, "package.json");
    assert_eq!((reply.text(), found(&reply).skipped.ignored), ("package.json\n", 1));
    assert_eq!(find(&mut host, "node_modules/x/package.json").text(), "node_modules/x/package.json\n");
    assert_eq!(find(&mut host, "./node_modules/x/").text(), "node_modules/x/\n");
    assert_eq!(find(&mut host, "node_modules").text(), "node_modules/\n");
    assert_eq!(find(&mut host, ".git/config").text(), ".git/config\n");
    assert_eq!(find(&mut host, "app/[id].tsx").text(), "app/[id].tsx\n");
    assert_eq!(find(&mut host, "package.json/").text(), "");
    let all = find_in(&mut host, "package.json", None, 1000, true);
    assert_eq!(all.text(), "node_modules/x/package.json\npackage.json\n");
    let inside = find_in(&mut host, "*.json", Some("node_modules"), 1000, false);
    assert_eq!(inside.text(), "node_modules/x/package.json\n");
}

/// T-4: what is no folder is named, and nothing of the kernel's own file systems is walked through.
#[test]
fn refusals() {
    let (folder, mut host) = place();
    write(&folder, "f");
    assert_eq!(find_in(&mut host, "*", Some("f"), 9, false).failure().0, Cause::Invalid);
    assert_eq!(find_in(&mut host, "*", Some("/dev/zero"), 9, false).failure().0, Cause::Invalid);
    assert_eq!(find_in(&mut host, "*", Some("none"), 9, false).failure().0, Cause::NotFound);
    for path in ["/proc", "/sys", "/proc/self/fd", "/proc/1/fd"] {
        assert_eq!(find_in(&mut host, "*", Some(path), 9, false).failure().0, Cause::Denied, "{path}");
    }
    assert_eq!(find_in(&mut host, "*", None, 0, false).failure().0, Cause::Invalid);
    assert_eq!(find(&mut host, "../*").failure().0, Cause::Invalid);
    let reply = find_in(&mut host, "passwd", Some("/"), 1000, false);
    assert!(reply.text().lines().any(|line| line == "/etc/passwd") && !reply.text().contains("/proc/"));
}

/// T-5, T-7: at most what was asked for and what fits, the first in order, and how many there are.
#[test]
fn limits() {
    let (folder, mut host) = place();
    for number in 0..3000 {
        write(&folder, &format!("{}/{number:04}{}", number % 7, "x".repeat(60)));
    }
    let reply = find_in(&mut host, "*x", None, 5, false);
    assert_eq!((found(&reply).shown, found(&reply).total, found(&reply).cut), (5, 3000, false));
    assert!(reply.text().starts_with("0/0000x") && reply.text().lines().nth(4).unwrap().starts_with("0/0028x"));
    let reply = find_in(&mut host, "*", None, 100_000, false);
    assert!(found(&reply).cut && found(&reply).total == 3007, "{:?}", reply.outcome);
    assert!(reply.payload.len() <= 50 * 1024 && reply.payload.len() > 50 * 1024 - 80);
    let reply = find_in(&mut host, "[0-6]", None, 100_000, false);
    assert_eq!((found(&reply).shown, found(&reply).cut), (7, false));
}

/// Bug 28, T-7: a huge tree is left to another server, which finds the first names in bounded memory and time.
#[test]
fn a_huge_tree() {
    let (folder, mut host) = place();
    let first = folder.path().join("0000000");
    fs::write(&first, "").unwrap();
    for number in 1..200_000 {
        let path = folder.path().join(format!("{number:07}"));
        if number % 30_000 == 0 {
            fs::write(&path, "").unwrap();
        } else {
            fs::hard_link(folder.path().join(format!("{:07}", number / 30_000 * 30_000)), &path).unwrap();
        }
    }
    let reply = find_in(&mut host, "*9", None, 2, false);
    assert_eq!((reply.text(), found(&reply).total), ("0000009\n0000019\n", 20_000));
    let mut resident = Host::start(folder.path(), true);
    for _ in 0..6 {
        fs::create_dir(folder.path().join("d")).unwrap_or(());
    }
    let outcome = find_in(&mut resident, "*{a,b,c,d}*{e,f,g}*{h,i}", None, 2, false).outcome;
    assert!(matches!(outcome, Outcome::NeedsChild | Outcome::Found(_)), "{outcome:?}");
    let call = Request::Find { pattern: "*".to_owned(), path: None, limit: 3, include_ignored: false };
    let reply = host.call_for(call, std::time::Duration::from_millis(1));
    assert_eq!(found(&reply).partial, Some(Partial::Time));
}

/// All paths below a folder, `/` after folders, `.git` left out.
/// T-FIND-1, T-GREP-2: a few names take long when the rules that they are held against do, and time is limited there, too.
#[test]
fn slow_rules() {
    let (folder, mut host) = place();
    let rule = format!("*{}b\n", "a?".repeat(60));
    fs::write(folder.path().join(".gitignore"), rule.repeat(2000)).unwrap();
    for number in 0..100 {
        write(&folder, &format!("{}{number}", "a".repeat(240)));
    }
    let call = Request::Find { pattern: "*".to_owned(), path: None, limit: 10, include_ignored: false };
    let reply = host.call_for(call, std::time::Duration::from_millis(1));
    assert_eq!(found(&reply).partial, Some(Partial::Time));
}

fn all(folder: &Path, before: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
        let path = format!("{before}{name}");
        if entry.file_type().unwrap().is_dir() {
            paths.push(format!("{path}/"));
            paths.extend(all(&entry.path(), &format!("{path}/")));
        } else {
            paths.push(path);
        }
    }
    paths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// T-FIND-1: the first paths are those that sorting all of them gives, and everything is found.
    #[test]
    fn like_a_naive_search(
        // Never `.` or `..`, which would lead out of the test's folder.
        files in prop::collection::btree_set("[ab.-]{0,2}[ab-](/[a-c0]{1,2}){0,3}", 0..40),
        most in 1u64..60,
    ) {
        let (folder, mut host) = place();
        for file in &files {
            let path = folder.path().join(file);
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
                let _ = fs::write(path, "");
            }
        }
        let mut expected = all(folder.path(), "");
        expected.sort();
        let total = expected.len() as u64;
        expected.truncate(usize::try_from(most).unwrap());
        let reply = find_in(&mut host, "**", None, most, false);
        let seen: Vec<&str> = reply.text().lines().collect();
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(found(&reply).total, total);
    }
}
