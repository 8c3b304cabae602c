//! `--in` and `--out`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;

use crate::harness::{Place, Ran};

/// Paths below `root`, with what is there: text, `/` or a link's target.
fn tree(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("a readable folder").path();
            let facts = fs::symlink_metadata(&path).expect("it is there");
            let content = if facts.is_dir() {
                folders.push(path.clone());
                "/".to_owned()
            } else if facts.is_symlink() {
                format!("-> {}", fs::read_link(&path).expect("a link").display())
            } else {
                fs::read_to_string(&path).expect("text")
            };
            found.push((path.strip_prefix(root).expect("below").display().to_string(), content));
        }
    }
    found.sort();
    found
}

/// One command in a sandbox with these copies.
fn run(place: &Place, copies: &[&str], command: &str) -> Ran {
    let call = serde_json::json!({"command": command}).to_string();
    let mut args = vec!["tool", "--agent", "worker"];
    args.extend_from_slice(copies);
    args.extend(["bash", &call]);
    place.run(args)
}

/// Files, folders, links and modes go in and come out as they are.
#[test]
fn trees_go_in_and_out() {
    let place = Place::new();
    place.write("data/a.txt", "a\n");
    place.write("data/deep/er/b.txt", "b\n");
    let script = place.write("data/run.sh", "#!/bin/sh\necho ran\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    fs::create_dir(place.project().join("data/empty")).expect("ours");
    symlink("deep/er/b.txt", place.project().join("data/link")).expect("ours");
    symlink("../a.txt", place.project().join("data/deep/up")).expect("ours");
    place.write("日本語 file", "single\n");
    let copies = [
        "--in",
        "data",
        "--in",
        "data/a.txt:/tmp/x/y/z",
        "--in",
        "日本語 file",
        "--out",
        "/tmp/data:out",
        "--out",
        "/tmp/x/y/z:out/z",
    ];
    let ran = run(
        &place,
        &copies,
        "cd /tmp; cat data/link data/deep/up x/y/z 日*; data/run.sh; stat -c %a,%U data data/a.txt data/run.sh; echo more >> data/a.txt",
    );
    ran.exits(0);
    assert_eq!(ran.stdout, "b\na\na\nsingle\nran\n755,agent\n644,agent\n755,agent\n");
    let out = place.project().join("out");
    let expected = [
        ("data", "/"),
        ("data/a.txt", "a\nmore\n"),
        ("data/deep", "/"),
        ("data/deep/er", "/"),
        ("data/deep/er/b.txt", "b\n"),
        ("data/deep/up", "-> ../a.txt"),
        ("data/empty", "/"),
        ("data/link", "-> deep/er/b.txt"),
        ("data/run.sh", "#!/bin/sh\necho ran\n"),
        ("z", "/"),
        ("z/z", "a\n"),
    ];
    assert_eq!(tree(&out), expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
    let mode = |path: &str| fs::metadata(out.join(path)).expect("it came out").permissions().mode() & 0o111;
    assert_eq!((mode("data/run.sh") != 0, mode("data/a.txt")), (true, 0));
}

/// Large files go through unchanged, in bounded pieces.
#[test]
fn large_files_go_in_and_out() {
    let place = Place::new();
    let content: Vec<u8> = (0..30_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    place.write("big", &content);
    let ran = run(&place, &["--in", "big", "--out", "/tmp/again:out"], "cp /tmp/big /tmp/again; wc -c < /tmp/big");
    assert_eq!(ran.exits(0).stdout, "30000000\n");
    assert!(fs::read(place.project().join("out/again")).expect("it came out") == content, "it changed on the way");
}

/// T-4, bug 25: links that leave, special files and what is too large are refused by name before anything runs.
#[test]
fn what_may_not_go_in_is_refused() {
    let place = Place::new();
    let project = place.project();
    for name in ["absolute", "leaving", "pipe", "socket", "huge"] {
        fs::create_dir(project.join(name)).expect("ours");
    }
    symlink("/etc/passwd", project.join("absolute/l")).expect("ours");
    symlink("../../x", project.join("leaving/l")).expect("ours");
    nix::unistd::mkfifo(&project.join("pipe/p"), Mode::S_IRWXU).expect("ours");
    drop(std::os::unix::net::UnixListener::bind(project.join("socket/s")).expect("ours"));
    fs::File::create(project.join("huge/h")).and_then(|file| file.set_len(5 << 30)).expect("a sparse file");
    for (name, complaint) in [
        ("absolute", "l: a link that leaves what is copied (to /etc/passwd)"),
        ("leaving", "l: a link that leaves what is copied (to ../../x)"),
        ("pipe", "p: a named pipe; only files, folders and links are copied"),
        ("socket", "s: a socket; only files, folders and links are copied"),
        ("huge", "h: more than 4 GiB in all"),
        ("/dev/zero", "/dev/zero: a device; only files, folders and links are copied"),
    ] {
        let ran = run(&place, &["--in", &format!("{name}:/tmp/in")], "echo ran");
        ran.exits(1).complains(&format!("cannot copy {name} into the sandbox: {complaint}"));
        assert_eq!(ran.stdout, "");
    }
    run(&place, &["--in", "missing"], "true").exits(2).complains("--in missing: No such file or directory");
    run(&place, &["--in", "absolute:/etc/x"], "true").exits(2).complains("/etc/x is not below /tmp");
    run(&place, &["--in", "huge/../pipe/p:/tmp/../etc/x"], "true").exits(2).complains("is not below /tmp");
}

/// A copy that does not fit says so, with the size of /tmp.
#[test]
fn what_does_not_fit_is_told() {
    let place = Place::new();
    place.agent("worker", "[local]\nmemory = \"128m\"\ntmpSize = \"4m\"\n");
    place.write("big", vec![b'x'; 9_000_000]);
    run(&place, &["--in", "big"], "true").exits(1).complains("no space: /tmp uses ");
}

/// Links that leave and special files stay behind and are named; what is there on the host is not followed or lost.
#[test]
fn what_may_not_come_out_stays() {
    let place = Place::new();
    let out = place.project().join("out");
    fs::create_dir_all(out.join("d")).expect("ours");
    let precious = place.write("precious", "untouched\n");
    symlink(&precious, out.join("d/file")).expect("ours");
    let make = "mkdir -p /tmp/d/sub; cd /tmp/d; echo new > file; echo set > setuid; chmod 6755 setuid; mkfifo pipe; ln -s /etc/passwd absolute; \
                ln -s ../../../x leaving; ln -s file fine; echo deep > sub/f; printf x > $'bell\\a'; echo z > $'bad\\377'; mkdir -m 0 closed; echo s > secret; chmod 0 secret";
    let ran = run(&place, &["--out", "/tmp/d:out"], make);
    ran.exits(1);
    assert_eq!(fs::read_to_string(&precious).expect("ours"), "untouched\n", "{ran}");
    fs::remove_file(out.join("d/file")).expect("ours");

    let ran = run(&place, &["--out", "/tmp/d:out"], make);
    ran.exits(0);
    for complaint in [
        "pipe is a FIFO (named pipe)",
        "absolute is a link to /etc/passwd, out of the copied folder",
        "leaving is a link to ../../../x, out of the copied folder",
        "bad\u{fffd} its name is not UTF-8",
        "closed cannot be listed: permission denied",
        "secret cannot be read: permission denied",
        "control characters",
    ] {
        ran.complains(complaint);
    }
    let expected = [
        ("d", "/"),
        ("d/closed", "/"),
        ("d/file", "new\n"),
        ("d/fine", "-> file"),
        ("d/setuid", "set\n"),
        ("d/sub", "/"),
        ("d/sub/f", "deep\n"),
    ];
    assert_eq!(tree(&out), expected.map(|(path, content)| (path.to_owned(), content.to_owned())));
    let mode = fs::metadata(out.join("d/setuid")).expect("it came out").permissions().mode();
    assert_eq!(mode & 0o6000, 0, "{mode:o}");
}

/// Copies out that cannot be made are told, and happen after a failure too.
#[test]
fn copies_out_are_made_after_a_failure() {
    let place = Place::new();
    let ran = run(&place, &["--out", "/tmp/log:out"], "echo log > /tmp/log; exit 3");
    ran.exits(1);
    assert_eq!(fs::read_to_string(place.project().join("out/log")).expect("it came out"), "log\n");
    run(&place, &["--out", "/tmp/none:out"], "true")
        .exits(1)
        .complains("cannot copy /tmp/none to out: /tmp/none does not exist");
    run(&place, &["--out", "/tmp/l:out"], "ln -s /etc/hosts /tmp/l").exits(1).complains("/tmp/l is outside /tmp");
    let sparse = run(&place, &["--out", "/tmp/sparse:out"], "truncate -s 5G /tmp/sparse");
    sparse.exits(1).complains("more than 4294967296 bytes in all, the limit of this copy");
    run(&place, &["--out", "/etc/hosts:out"], "true").exits(2).complains("/etc/hosts is not below /tmp");
    assert_eq!(tree(&place.project().join("out")), [("log".to_owned(), "log\n".to_owned())]);
}
