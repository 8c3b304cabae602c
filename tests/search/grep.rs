//! `grep`.

use serde_json::json;

use super::{grep, parts};
use crate::harness::{BASE, Place};

/// T-GREP-1: paths as `path` has them, in order; lines, context, clipping; hidden files, but not `.git` and no links.
#[test]
fn lines_are_found() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash(
            "mkdir -p /tmp/p/src/.hid /tmp/p/.git; cd /tmp/p; printf 'one\\nTwo two\\nthree\\n' >src/a.txt; \
             printf 'fn two() {\\r\\n}\\r\\n' >src/b.rs; echo two >src/.hid/c; echo two >.git/config; ln -s src/a.txt link; \
             printf 'bad \\377 two\\n' >z; { head -c 3000 /dev/zero | tr '\\0' x; echo ' needle '; } >long",
        )
        .ok();
        let all = grep(&mut desk, &json!({"pattern": "two", "path": "/tmp/p"}));
        let lines = "/tmp/p/src/.hid/c:1: two\n/tmp/p/src/a.txt:2: Two two\n/tmp/p/src/b.rs:1: fn two() {\n\
                     /tmp/p/z:1: bad \u{fffd} two\n";
        assert_eq!(parts(&all), (lines, "[4 matches in 4 of 5 files; nothing was left out]"));
        let none = grep(&mut desk, &json!({"pattern": "^two$", "path": "/tmp/p/src", "glob": "*.txt"}));
        assert_eq!(none.ok(), "[no match in 1 file; nothing was left out]");
        let around = json!({"pattern": "^two", "path": "/tmp/p/src/", "ignoreCase": true, "context": "1"});
        assert_eq!(
            parts(&grep(&mut desk, &around)).0,
            "/tmp/p/src/.hid/c:1: two\n/tmp/p/src/a.txt-1- one\n/tmp/p/src/a.txt:2: Two two\n/tmp/p/src/a.txt-3- three\n"
        );
        let end = grep(&mut desk, &json!({"pattern": "\\{$", "path": "/tmp/p", "glob": "src/**"}));
        assert_eq!(parts(&end).0, "/tmp/p/src/b.rs:1: fn two() {\n");
        let literal = grep(&mut desk, &json!({"pattern": "two() {", "path": "/tmp/p/src/b.rs", "literal": true}));
        assert_eq!(parts(&literal).0, "/tmp/p/src/b.rs:1: fn two() {\n");
        let clipped = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p/long"}));
        assert_eq!(parts(&clipped).0, format!("/tmp/p/long:1: …{} needle \n", "x".repeat(492)));
        // The working directory, and a path that is relative to it.
        assert_eq!(parts(&grep(&mut desk, &json!({"pattern": "^name:"}))).0, "SKILL.md:2: name: worker\n");
        assert_eq!(
            parts(&grep(&mut desk, &json!({"pattern": "^name:", "path": "SKILL.md"}))).0,
            "SKILL.md:2: name: worker\n"
        );
        let linked = grep(&mut desk, &json!({"pattern": "three", "path": "@/tmp/p/link"}));
        assert_eq!(parts(&linked).0, "/tmp/p/link:3: three\n");
    }
}

/// T-GREP-2, bug 27: what was not searched is said, with a hint when the only hit may be in an ignored file.
#[test]
fn what_was_not_searched_is_said() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash(
            "mkdir -p /tmp/p/node_modules/x; cd /tmp/p; echo node_modules >.gitignore; echo '*.log' >.ignore; \
             echo needle >node_modules/x/a; echo needle >b.log; printf 'needle\\0' >bin; echo needle >closed; chmod 0 closed; \
             truncate -s 65M big",
        )
        .ok();
        let none = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p"}));
        assert_eq!(
            none.ok(),
            "[no match in 2 files; not searched: 2 ignored, 1 binary, 1 unreadable, 1 over the size limit; \
             includeIgnored: true searches what is ignored]"
        );
        let all = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p", "includeIgnored": true}));
        assert_eq!(
            all.ok(),
            "/tmp/p/b.log:1: needle\n/tmp/p/node_modules/x/a:1: needle\n\
             [2 matches in 2 of 4 files; not searched: 1 binary, 1 unreadable, 1 over the size limit]"
        );
        let named = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p/node_modules"}));
        assert_eq!(named.ok(), "/tmp/p/node_modules/x/a:1: needle\n[1 match in 1 of 1 file; nothing was left out]");
        let named = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p/b.log"}));
        assert_eq!(parts(&named).0, "/tmp/p/b.log:1: needle\n");
    }
}

/// T-GREP-2: a bad pattern gets the parser's message with the position; T-1: so do bad arguments.
#[test]
fn bad_patterns_are_explained() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let bad = grep(&mut desk, &json!({"pattern": "a(b", "path": "/tmp"}));
        assert_eq!(
            bad.fails("invalid"),
            "the pattern is no regular expression in Rust's syntax (character 2); with literal: true it would mean itself\n\
             regex parse error:\n    a(b\n     ^\nerror: unclosed group"
        );
        let two = grep(&mut desk, &json!({"pattern": "a\\nb", "path": "/tmp"}));
        assert!(two.fails("invalid").starts_with("the pattern holds a line break (character 2)"), "{two:?}");
        let huge = grep(&mut desk, &json!({"pattern": "(\\w{99}){99}", "path": "/tmp"}));
        assert!(huge.fails("invalid").starts_with("the pattern needs more than 4 MiB"), "{huge:?}");
        let glob = grep(&mut desk, &json!({"pattern": "a", "glob": "{a", "path": "/tmp"}));
        assert!(glob.fails("invalid").starts_with("glob \"{a\" is no glob"), "{glob:?}");
        let none = grep(&mut desk, &json!({"pattern": "a", "path": "/tmp/none"}));
        assert_eq!(none.fails("not_found"), "/tmp/none does not exist");
        assert!(grep(&mut desk, &json!({"pattern": "a", "context": -1})).fails("invalid").contains("/context"));
    }
}

/// T-5: 100 matches unless more are asked for, never more than fit, with the number there are.
#[test]
fn long_results_are_cut() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("mkdir /tmp/p; seq 30000 >/tmp/p/f").ok();
        let cut = grep(&mut desk, &json!({"pattern": "7", "path": "/tmp/p"}));
        let (lines, last) = parts(&cut);
        assert_eq!(lines.lines().count(), 100);
        assert!(
            last.starts_with("[the first 100 of 10317 matches, which are in 1 of 1 file; ask for more with limit"),
            "{last}"
        );
        let full = grep(&mut desk, &json!({"pattern": "1", "path": "/tmp/p", "limit": 100_000}));
        let (lines, last) = parts(&full);
        assert_eq!(lines.lines().count(), 2000);
        assert!(
            last.contains("the first 2000 of 16878 matches") && last.contains("no more fit into a result"),
            "{last}"
        );
    }
}

/// T-GREP-1: on a real tree, the result is that of ripgrep.
#[test]
fn like_ripgrep() {
    let place = Place::on(BASE);
    let mut desk = place.desk();
    let tree = desk.bash("ls -d /usr/lib/python3.*/ | tail -n 1").ok().trim_end().trim_end_matches('/').to_owned();
    for pattern in ["^class \\w+Error\\(", "(?i)\\bfixme\\b", "\\bdef __\\w+_subclass__", "[à-ý]", "x{3}$"] {
        let ours = grep(&mut desk, &json!({"pattern": pattern, "path": tree, "limit": 2000}));
        let (ours, last) = parts(&ours);
        assert!(!last.starts_with("[the first") && !ours.is_empty(), "{pattern}: {last}");
        let search = "rg --no-config -j1 -n --no-heading --hidden -g '!.git' --no-require-git --max-filesize 64M";
        let theirs = desk.bash(&format!("{search} -e '{pattern}' {tree}"));
        let sorted = |text: &str| {
            // Ours has a blank before the text, and clips long lines.
            let line = |line: &str| line.chars().filter(|c| *c != ' ').take(400).collect::<String>();
            let mut lines: Vec<String> = text.lines().map(line).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(ours), sorted(theirs.ok()), "{pattern}");
    }
}
