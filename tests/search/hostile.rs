//! Trees that were made to stop, fill or mislead a search.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{find, grep, parts};
use crate::attack::program;
use crate::harness::Place;

/// T-4, bug 25: pipes, sockets and devices are named at once, and passed over in a tree.
#[test]
fn special_files_are_passed_over() {
    let socket = program::build("socket", &["../files/socket.c"]);
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--in", &format!("{}:/tmp/make", socket.display())]);
        desk.bash(
            "mkdir /tmp/p; cd /tmp/p; mkfifo pipe .gitignore; /tmp/make /tmp/p/socket; ln -s /dev/zero zero; echo x >f",
        )
        .ok();
        let begun = Instant::now();
        let tree = grep(&mut desk, &json!({"pattern": "x", "path": "/tmp/p"}));
        assert_eq!(tree.ok(), "/tmp/p/f:1: x\n[1 match in 1 of 1 file; not searched: 3 special]");
        let only = "not a regular file: only regular files can be read, written or copied";
        for (path, what) in [
            ("/tmp/p/pipe", "a FIFO (named pipe)"),
            ("/tmp/p/socket", "a Unix socket"),
            ("/tmp/p/zero", "a character device"),
            ("/dev/zero", "a character device"),
        ] {
            let named = grep(&mut desk, &json!({"pattern": "x", "path": path}));
            assert_eq!(named.fails("invalid"), format!("{path} is {what}, {only}"));
            assert!(
                find(&mut desk, "*", path).fails("invalid").starts_with(&format!("{path} is {what}, not a folder"))
            );
        }
        let paths = "/tmp/p/.gitignore\n/tmp/p/f\n/tmp/p/pipe\n/tmp/p/socket\n/tmp/p/zero\n";
        assert_eq!(parts(&find(&mut desk, "*", "/tmp/p")).0, paths);
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}

/// Bug 23: nothing of PID 1, of the file server or of root is found, by name, by link or on the way.
#[test]
fn nothing_of_others_is_searched() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash(
            "mkdir /tmp/p; cd /tmp/p; ln -s /proc/self proc; ln -s /proc/1/root root; ln -s /proc/self/environ env",
        )
        .ok();
        for path in [
            "/proc",
            "/proc/self",
            "/proc/1",
            "/proc/1/fd",
            "/proc/1/root",
            "/sys",
            "/root",
            "/tmp/p/proc",
            "/tmp/p/root",
        ] {
            let named = grep(&mut desk, &json!({"pattern": ".", "path": path}));
            assert!(named.is_error() && named.cause() == "denied", "{path}: {named:?}");
            let named = find(&mut desk, "*", path);
            assert!(named.is_error() && named.cause() == "denied", "{path}: {named:?}");
        }
        for path in ["/tmp/p/env", "/proc/self/status", "/proc/1/environ", "/proc/1/maps", "/app/link/sock"] {
            assert!(grep(&mut desk, &json!({"pattern": ".", "path": path})).is_error(), "{path}");
        }
        assert_eq!(
            grep(&mut desk, &json!({"pattern": ".", "path": "/tmp/p", "includeIgnored": true})).ok(),
            "[no match in 0 files; nothing was left out]"
        );
        // The whole of the container, from its root.
        let all = grep(
            &mut desk,
            &json!({"pattern": "^root:", "path": "/", "includeIgnored": true, "glob": "{etc,proc,sys,dev}/**"}),
        );
        assert!(parts(&all).0.contains("/etc/passwd:1: root:") && parts(&all).1.contains(" special"), "{all:?}");
        assert!(!all.text().contains("/proc/") && !all.text().contains("/sys/"), "{all:?}");
        let names = find(&mut desk, "environ", "/");
        assert!(names.ok().starts_with("[no path fits"), "{names:?}");
    }
}

/// Bug 26, T-7: a sparse file of 3 GB and a line of many megabytes cost neither memory nor time, in a small container.
#[test]
fn huge_files() {
    for place in Place::on_each_image() {
        place.agent("small", "[local]\nmemory = \"96m\"\ntmpSize = \"24m\"\n");
        let mut desk = place.desk_with("small", &[]);
        desk.bash(
            "mkdir /tmp/p; cd /tmp/p; truncate -s 3G sparse; { yes 'a line of text' | head -c 1000000; } >text; cp text text-sparse; \
             truncate -s 3G text-sparse; { head -c 12000000 /dev/zero | tr '\\0' x; echo; } >long",
        )
        .ok();
        let begun = Instant::now();
        let last = "[no match in 1 file; not searched: 3 over the size limit]";
        assert_eq!(grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p"})).ok(), last);
        for (file, why) in [("sparse", "1 binary"), ("text-sparse", "1 binary"), ("long", "1 over the size limit")] {
            let named = grep(&mut desk, &json!({"pattern": "text", "path": format!("/tmp/p/{file}")}));
            assert_eq!(named.ok(), format!("[no match in 0 files; not searched: {why}]"));
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

/// T-7, T-10: patterns and ignore files that were made to eat memory and time end within bounds, and other calls go on.
#[test]
fn hostile_patterns_and_rules() {
    for place in Place::on_each_image() {
        place.agent("small", "[local]\nmemory = \"96m\"\ntmpSize = \"24m\"\n");
        let mut desk = place.desk_with("small", &["--parallel", "8"]);
        desk.bash(
            "mkdir -p /tmp/p/d; cd /tmp/p; yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | head -c 4000000 >f; \
             yes '**/*a*/**/[!b]*/**/x*' | head -c 200000 >.gitignore; cp .gitignore d/.gitignore; cp .gitignore d/.ignore; touch d/f; \
             echo hello >/tmp/hello",
        )
        .ok();
        let slow = json!({"pattern": "(?i)(?:x{2,30}){2,9}(?:.{1,40}y){3}", "path": "/tmp/p", "includeIgnored": true});
        let begun = Instant::now();
        let answers = desk.together([
            ("grep", slow),
            ("read", json!({"path": "/tmp/hello"})),
            ("grep", json!({"pattern": "hello", "path": "/tmp/p"})),
            ("find", json!({"pattern": "*", "path": "/tmp/p"})),
            ("grep", json!({"pattern": "(?:[\\w&&[^a]]{99}|\\pL{50}){20}", "path": "/tmp/p"})),
        ]);
        assert_eq!(answers[1].ok(), "hello\n");
        answers[2].ok();
        answers[3].ok();
        assert!(answers[4].is_error(), "{:?}", answers[4]);
        assert!(begun.elapsed() < Duration::from_secs(90));
    }
}

/// Bug 28: a tree of very many files is searched and listed within the limits, and the first names come first.
#[test]
fn very_many_files() {
    for place in Place::on_each_image() {
        place.agent("big", "[local]\nmemory = \"4g\"\ntmpInodes = 250000\n");
        let mut desk = place.desk_with("big", &[]);
        desk.bash(
            "mkdir /tmp/p; cd /tmp/p; echo needle >0000; for d in $(seq 100 299); do mkdir $d; (cd $d; seq 1000 1999 | xargs touch); done; \
             mkdir /tmp/flat; cd /tmp/flat; seq 10000 39999 | xargs touch",
        )
        .ok();
        let begun = Instant::now();
        let names = desk.call("find", &json!({"pattern": "*5", "path": "/tmp/p", "limit": 2}));
        assert!(names.ok().starts_with("/tmp/p/100/1005\n/tmp/p/100/1015\n[the first 2 of 200"), "{names:?}");
        let lines = grep(&mut desk, &json!({"pattern": "needle", "path": "/tmp/p"}));
        assert_eq!(lines.ok(), "/tmp/p/0000:1: needle\n[1 match in 1 of 200001 files; nothing was left out]");
        let names = desk.call("ls", &json!({"path": "/tmp/flat", "limit": 2}));
        assert_eq!(names.ok(), "10000\n10001\n[the first 2 of 30000 entries; ask for more with limit]");
        assert!(begun.elapsed() < Duration::from_secs(90));
    }
}
