//! Ignore files mean what git says they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{find, parts};
use crate::harness::{BASE, Place};

/// A line of an ignore file, put together from what patterns are made of.
fn line() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        10 => prop::sample::select(vec!["a", "b", "ab", "/"]),
        6 => prop::sample::select(vec!["*", "**", "**/", "/**", "***", "?"]),
        6 => prop::sample::select(vec!["[ab]", "[!a]", "[^b]", "[a-", "]", "[[:alpha:]]", "[]a]", "[\\]a]", "[/]"]),
        4 => prop::sample::select(vec!["\\", "{a,b}", "#", " ", "!", "-", "\r"]),
    ];
    let start = prop::sample::select(vec!["", "", "", "!", "/", "\\!"]);
    (start, prop::collection::vec(piece, 0..6)).prop_map(|(start, pieces)| start.to_owned() + &pieces.concat())
}

/// A path of one to four names.
fn path(names: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "ab", "ba", "aab", "a b", "{a,b}", "#", "!a", "[a-", "a-", "\\"]);
    prop::collection::vec(name, names).prop_map(|names| names.join("/"))
}

/// T-GREP-1, T-FIND-1: in random trees with random ignore files, nested and with negations, `find` sees what git sees.
#[test]
fn like_git() {
    let place = Place::on(BASE);
    let mut desk = place.desk();
    let cases = (
        prop::collection::btree_set(path(1..5), 1..25),
        prop::collection::btree_map(path(0..3), prop::collection::vec(line(), 0..6), 1..4),
    );
    let desk = std::cell::RefCell::new(&mut desk);
    let check = |(files, ignores): (BTreeSet<String>, BTreeMap<String, Vec<String>>)| {
        let mut desk = desk.borrow_mut();
        let mut command = String::from("rm -rf /tmp/p; git init -q /tmp/p && cd /tmp/p || exit\n");
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        for file in &files {
            let file = quoted(&format!("./{file}"));
            let _ = writeln!(command, "mkdir -p \"$(dirname {file})\" 2>/dev/null && [ ! -d {file} ] && : >{file}");
        }
        for (folder, lines) in &ignores {
            let folder = quoted(&format!("./{folder}"));
            let lines = quoted(&lines.join("\n"));
            let _ = writeln!(command, "[ -d {folder} ] && printf %s {lines} >{folder}/.gitignore");
        }
        command += "git ls-files -coz --exclude-standard | tr '\\0' '\\n'";
        let git = desk.bash(&command);
        let mut theirs: Vec<&str> = git.ok().lines().filter(|line| *line != "(no output)").collect();
        theirs.sort_unstable();
        let answer = find(&mut desk, "*", "/tmp/p");
        let ours = parts(&answer).0.lines().filter(|path| !path.ends_with('/'));
        let ours: Vec<String> = ours.map(|path| path.replace("/tmp/p/", "").replace("\\\\", "\\")).collect();
        prop_assert_eq!(ours, theirs);
        Ok(())
    };
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    runner.run(&cases, check).unwrap_or_else(|failure| panic!("{failure}"));
}
