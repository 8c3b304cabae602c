//! `write`.

use serde_json::json;

use super::{ls, read, write, writing};
use crate::harness::Place;

/// T-WRITE-1, bug 24: folders are made, files are replaced with their mode kept, and commands find them.
#[test]
fn files_are_written() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(write(&mut desk, "/tmp/a/b/c.txt", "hällo\n").ok(), "wrote /tmp/a/b/c.txt: 7 bytes");
        assert_eq!(
            desk.bash("cat /tmp/a/b/c.txt; stat -c %a,%U /tmp/a /tmp/a/b/c.txt").ok(),
            "hällo\n755,agent\n644,agent\n"
        );
        desk.bash("chmod 751 /tmp/a/b/c.txt").ok();
        assert_eq!(write(&mut desk, "/tmp/a/b/c.txt", "").ok(), "replaced /tmp/a/b/c.txt: 0 bytes");
        assert_eq!(desk.bash("stat -c %a,%s /tmp/a/b/c.txt").ok(), "751,0\n");
        desk.bash("ln -s a/b/c.txt /tmp/link; ln /tmp/a/b/c.txt /tmp/hard").ok();
        assert_eq!(write(&mut desk, "/tmp/link", "by link").ok(), "replaced /tmp/link: 7 bytes");
        assert_eq!(
            desk.bash("cat /tmp/a/b/c.txt; readlink /tmp/link; wc -c < /tmp/hard").ok(),
            "by linka/b/c.txt\n0\n"
        );
        desk.bash("chmod 444 /tmp/a/b/c.txt").ok();
        assert_eq!(
            write(&mut desk, "/tmp/a/b/c.txt", "x").fails("denied"),
            "/tmp/a/b/c.txt is read-only (mode 0444): chmod it first"
        );
        assert_eq!(
            write(&mut desk, "/tmp/a", "x").fails("invalid"),
            "/tmp/a is a folder, so no file can be written there: name a file"
        );
        assert_eq!(
            write(&mut desk, "/tmp/a/b/c.txt/d", "x").fails("invalid"),
            "/tmp/a/b/c.txt/d: a part of this path is a file, not a folder"
        );
        assert_eq!(ls(&mut desk, "/tmp/a/b").ok(), "c.txt\n");
    }
}

/// T-WRITE-1, bug 24: long contents come whole.
#[test]
fn megabytes_are_written() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let content = "0123456789abcde\n".repeat(20 << 16);
        assert_eq!(write(&mut desk, "/tmp/big", &content).ok(), "wrote /tmp/big: 20971520 bytes");
        assert_eq!(
            desk.bash("wc -c < /tmp/big; sort -u /tmp/big; ls -A /tmp").ok(),
            "20971520\n0123456789abcde\n.runner\nbig\nhome\n"
        );
    }
}

/// T-WRITE-1, T-10: whoever reads meanwhile sees the old or the new file, never a part.
#[test]
fn nobody_sees_half_a_file() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let content = |letter: &str| letter.repeat(2_000_000);
        write(&mut desk, "/tmp/f", &content("a")).ok();
        let watch =
            "while [ ! -e /tmp/stop ]; do echo $(wc -c < /tmp/f) $(tr -d '\\n' < /tmp/f | tr -s a-z); done; echo end";
        let (_, log) = desk.job(watch);
        for letter in ["b", "c", "d", "e", "f"] {
            write(&mut desk, "/tmp/f", &content(letter)).ok();
        }
        desk.bash(&format!("touch /tmp/stop; until grep -q end {log}; do sleep .05; done")).ok();
        let seen = desk.bash(&format!("sort -u {log}; ls -A /tmp"));
        for line in seen.ok().lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
            let letters = line.strip_prefix("2000000 ").unwrap_or_else(|| panic!("half a file: {line}"));
            assert_eq!(letters.len(), 1, "{line}");
        }
        assert!(seen.ok().ends_with("end\n.runner\nf\nhome\nstop\n"), "{seen:?}");
    }
}

/// T-8: writes to one real file wait for each other; the file is one of them, whole.
#[test]
fn writes_to_one_file_do_not_mix() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "8"]);
        desk.bash("mkdir /tmp/d; ln -s d /tmp/other; echo old > /tmp/d/f").ok();
        for _ in 0..5 {
            let contents: Vec<String> = ["a", "b", "c", "d"].map(|letter| letter.repeat(12_000)).to_vec();
            let paths = ["/tmp/d/f", "/tmp/other/f"];
            let calls = contents.iter().zip(paths.iter().cycle()).map(|(content, path)| writing(path, content));
            for answer in desk.together(calls) {
                assert!(answer.ok().starts_with("replaced /tmp/"), "{answer:?}");
            }
            let whole = desk.bash("cat /tmp/d/f").ok().to_owned();
            assert!(contents.contains(&whole), "{} bytes that nobody wrote", whole.len());
        }
        assert_eq!(ls(&mut desk, "/tmp/d").ok(), "f\n");
    }
}

/// T-11, T-WRITE-1, bug 23: nothing is written outside /tmp, whatever leads there.
#[test]
fn nothing_is_written_outside_tmp() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let lead = "cd /tmp; ln -s /etc etc; ln -s /dev/shm shm; ln -s /dev/shm/x file; ln -s /app/static/SKILL.md skill; \
                ln -s /proc/self/cwd cwd; mkdir d; ln -s ../.. d/up";
        desk.bash(lead).ok();
        for path in [
            "/etc/x",
            "/x",
            "x",
            "SKILL.md",
            "/dev/shm/x",
            "/app/static/x",
            "/root/x",
            "/proc/self/x",
            "/tmp/etc/x",
            "/tmp/shm/x",
            "/tmp/shm/y/z",
            "/tmp/file",
            "/tmp/skill",
            "/tmp/d/up/x",
            "/tmp/../x",
            "/proc/self/root/tmp/x",
        ] {
            let refused = write(&mut desk, path, "x");
            assert!(refused.is_error() && refused.cause() == "denied", "{path}: {refused:?}");
        }
        assert_eq!(
            write(&mut desk, "notes.md", "x").fails("denied"),
            "/app/static/notes.md is outside /tmp: the root file system is read-only; write below /tmp, the only place for files"
        );
        assert_eq!(desk.bash("ls -A /dev/shm; echo shm > /dev/shm/x && cat /dev/shm/x").ok(), "shm\n");
        assert_eq!(read(&mut desk, "/dev/shm/x").ok(), "shm\n");
        assert_eq!(desk.call("read", &json!({"path": "/tmp/file"})).ok(), "shm\n");
    }
}
