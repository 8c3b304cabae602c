//! `ls`.

use serde_json::json;

use super::ls;
use crate::harness::{Place, seq};

/// T-LS-1: every entry on a line of its own, in an order without regard to case, with its kind.
#[test]
fn folders_are_listed() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let make = "mkdir -p /tmp/f/Dir /tmp/f/.git /tmp/empty; cd /tmp/f; touch b A .hidden Zoo 'a b' ü $'new\\nline' $'bell\\a' c; \
                ln -s ../gone broken; ln -s Dir link; ln -s /etc/passwd out; mkfifo pipe";
        desk.bash(make).ok();
        assert_eq!(
            ls(&mut desk, "/tmp/f").ok(),
            ".git/\n.hidden\nA\na b\nb\nbell\\u{7}\nbroken@ -> ../gone\nc\nDir/\nlink@ -> Dir\nnew\\nline\nout@ -> /etc/passwd\npipe\nZoo\nü\n"
        );
        assert_eq!(ls(&mut desk, "/tmp/f/link").ok(), "(empty directory)");
        assert_eq!(ls(&mut desk, "/tmp/empty/").ok(), "(empty directory)");
        assert_eq!(desk.call("ls", &json!({})).ok(), "config.toml\nSKILL.md\n");
        assert_eq!(ls(&mut desk, "~").ok(), "(empty directory)");
        assert_eq!(ls(&mut desk, "/tmp/none").fails("not_found"), "/tmp/none does not exist");
        assert_eq!(
            ls(&mut desk, "/tmp/f/b").fails("invalid"),
            "/tmp/f/b is a regular file, not a folder: use read for a regular file"
        );
        desk.bash("mkdir -m 0 /tmp/closed").ok();
        assert_eq!(ls(&mut desk, "/tmp/closed").fails("denied"), "/tmp/closed: permission denied");
    }
}

/// T-LS-1, T-5: 500 names unless more are asked for, never more than 2,000.
#[test]
fn long_listings_are_cut() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("mkdir /tmp/many; cd /tmp/many; seq 1001 4000 | xargs touch").ok();
        let note = "[the first 500 of 3000 entries; ask for more with limit]";
        assert_eq!(ls(&mut desk, "/tmp/many").ok(), format!("{}{note}", seq(1001..=1500)));
        let two = desk.call("ls", &json!({"path": "/tmp/many", "limit": 2}));
        assert_eq!(two.ok(), "1001\n1002\n[the first 2 of 3000 entries; ask for more with limit]");
        let note = "[the first 2000 of 3000 entries; no more fit into a result, use bash for the rest]";
        assert_eq!(
            desk.call("ls", &json!({"path": "/tmp/many", "limit": 3000})).ok(),
            format!("{}{note}", seq(1001..=3000))
        );
    }
}
