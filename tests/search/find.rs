//! `find`.

use serde_json::json;

use super::{find, parts};
use crate::harness::{Place, seq};

/// T-FIND-1: globs match paths below the folder, a bare one matches at any depth; sorted, `/` after folders.
#[test]
fn names_are_found() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash(
            "mkdir -p /tmp/p/src/deep /tmp/p/.git /tmp/p/dir.rs; cd /tmp/p; \
             touch main.rs src/lib.rs src/a.ts src/deep/b.ts .hid.rs .git/x.rs $'new\\nline.c'; ln -s src link; mkfifo pipe",
        )
        .ok();
        let all = find(&mut desk, "*.rs", "/tmp/p");
        let paths = "/tmp/p/.hid.rs\n/tmp/p/dir.rs/\n/tmp/p/main.rs\n/tmp/p/src/lib.rs\n";
        assert_eq!(parts(&all), (paths, "[4 paths; nothing was left out]"));
        assert_eq!(parts(&find(&mut desk, "**/*.rs", "/tmp/p/")).0, paths);
        assert_eq!(parts(&find(&mut desk, "src/*.ts", "/tmp/p")).0, "/tmp/p/src/a.ts\n");
        assert_eq!(parts(&find(&mut desk, "**/deep/*.{ts,js}", "/tmp/p")).0, "/tmp/p/src/deep/b.ts\n");
        assert_eq!(parts(&find(&mut desk, "*/", "/tmp/p")).0, "/tmp/p/dir.rs/\n/tmp/p/src/\n/tmp/p/src/deep/\n");
        assert_eq!(
            parts(&find(&mut desk, "{link,pipe,*.c}", "/tmp/p")).0,
            "/tmp/p/link\n/tmp/p/new\\nline.c\n/tmp/p/pipe\n"
        );
        assert_eq!(find(&mut desk, "*.none", "/tmp/p").ok(), "[no path fits; nothing was left out]");
        assert_eq!(parts(&desk.call("find", &json!({"pattern": "*.md"}))).0, "SKILL.md\n");
        let part = find(&mut desk, "/tmp/p/*.rs", "/tmp");
        assert!(part.fails("invalid").ends_with("is absolute, but a glob counts from path: give the folder as path"));
    }
}

/// T-FIND-1, bug 27: ignored names are counted and not found, unless they are asked for or the pattern names one.
#[test]
fn ignored_names_are_found_by_name() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("mkdir -p /tmp/p/node_modules/x; cd /tmp/p; echo node_modules >.gitignore; touch node_modules/x/package.json").ok();
        assert_eq!(
            find(&mut desk, "package.json", "/tmp/p").ok(),
            "[no path fits; not searched: 1 ignored; includeIgnored: true finds what is ignored]"
        );
        let named = find(&mut desk, "node_modules/x/package.json", "/tmp/p");
        assert_eq!(named.ok(), "/tmp/p/node_modules/x/package.json\n[1 path; nothing was left out]");
        let asked = json!({"pattern": "package.json", "path": "/tmp/p", "includeIgnored": true});
        assert_eq!(parts(&desk.call("find", &asked)).0, "/tmp/p/node_modules/x/package.json\n");
        assert_eq!(parts(&find(&mut desk, "*.json", "/tmp/p/node_modules")).0, "/tmp/p/node_modules/x/package.json\n");
    }
}

/// T-FIND-1, T-5: 1,000 paths unless more are asked for, never more than 2,000.
#[test]
fn long_lists_are_cut() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("mkdir /tmp/p; cd /tmp/p; seq 1001 4000 | xargs touch").ok();
        let paths =
            |last| seq(1001..=last).trim_end().replace('\n', "\n/tmp/p/").replacen("1001", "/tmp/p/1001", 1) + "\n";
        let cut = find(&mut desk, "[0-9]*", "/tmp/p");
        let note = "[the first 1000 of 3000 paths; ask for more with limit, or narrow the pattern or path; nothing was left out]";
        assert_eq!(parts(&cut), (paths(2000).as_str(), note));
        let full = desk.call("find", &json!({"pattern": "*", "path": "/tmp/p", "limit": 100_000}));
        let note = "[the first 2000 of 3000 paths; no more fit into a result, so narrow the pattern or path; nothing was left out]";
        assert_eq!(parts(&full), (paths(3000).as_str(), note));
    }
}
