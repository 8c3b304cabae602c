//! Copies in and out: what is sent, what is refused, and what a hostile sandbox can do to the host's files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use protocol::{Entry, EntryKind, FromSandbox, INITIAL_CREDIT, Outcome, Request, ToSandbox};
use tempfile::TempDir;

use super::scripted::Peer;
use super::{Place, timing};
use crate::sandbox::call::{CallError, Gone, GoneKind};
use crate::sandbox::copy::{Copied, CopyError};
use crate::sandbox::link::Link;

async fn up(place: &Place) -> (Link, Peer) {
    let link = place.link(timing());
    let control = Peer::control(&place.socket()).await;
    (link, control)
}

/// Answers for one file server: gives it to `serve`, then answers its end.
async fn with_server<T>(control: &mut Peer, place: &Place, serve: impl AsyncFnOnce(Peer) -> T) -> T {
    let (open, _) = control.next_call().await;
    let Request::OpenFiles { label } = open.request else { panic!("{open:?}") };
    control.done(open.id, Outcome::Nothing, b"").await;
    serve(Peer::files(&place.socket(), label).await).await
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: path.to_owned(), kind }
}

fn file(path: &str, size: u64) -> Entry {
    entry(path, EntryKind::File { size, executable: false })
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Link { target: target.to_owned() })
}

fn copied(files: u64, bytes: u64) -> Outcome {
    Outcome::Copied { files, bytes, skipped: Vec::new() }
}

/// Takes a copy into the sandbox apart.
async fn take(mut server: Peer) -> Vec<(Entry, usize)> {
    let (call, _) = server.next_call().await;
    assert!(matches!(call.request, Request::Put { .. }));
    let mut seen: Vec<(Entry, usize)> = Vec::new();
    loop {
        let frame = server.receive().await.expect("more of the copy");
        match frame.header {
            ToSandbox::Entry { entry, .. } => seen.push((entry, 0)),
            ToSandbox::Chunk { id } => {
                assert!(frame.payload.len() <= INITIAL_CREDIT as usize);
                seen.last_mut().unwrap().1 += frame.payload.len();
                let bytes = u32::try_from(frame.payload.len()).unwrap();
                server.send(&FromSandbox::Credit { id, bytes }, b"").await;
            }
            ToSandbox::EndOfEntries { id } => {
                let files = seen.iter().filter(|(entry, _)| matches!(entry.kind, EntryKind::File { .. })).count();
                let bytes = seen.iter().map(|(_, bytes)| *bytes as u64).sum();
                server.done(id, copied(files as u64, bytes), b"").await;
                return seen;
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn put(from: &Path) -> (Copied, Vec<(Entry, usize)>) {
    let place = Place::new();
    let (link, mut control) = up(&place).await;
    let (result, seen) =
        tokio::join!(link.shared.put("s/in/0", from, "/tmp/in"), with_server(&mut control, &place, take));
    (result.unwrap(), seen)
}

/// What is refused is refused before anything is asked of the sandbox.
async fn put_is_refused(from: &Path) -> String {
    let place = Place::new();
    let (link, _control) = up(&place).await;
    link.shared.put("s/in/0", from, "/tmp/in").await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_tree_goes_in_whole() {
    let root = TempDir::new().unwrap();
    let tree = root.path().join("tree");
    std::fs::create_dir_all(tree.join("sub/empty")).unwrap();
    std::fs::write(tree.join("big"), vec![7; 3_000_000]).unwrap();
    std::fs::write(tree.join("sub/run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(tree.join("sub/run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
    symlink("../big", tree.join("sub/link")).unwrap();
    symlink(&tree, root.path().join("named")).unwrap();
    let (result, seen) = put(&root.path().join("named")).await;
    assert_eq!(result, Copied { files: 2, bytes: 3_000_010, skipped: Vec::new() });
    let expected = [
        (entry("", EntryKind::Folder), 0),
        (file("big", 3_000_000), 3_000_000),
        (entry("sub", EntryKind::Folder), 0),
        (entry("sub/empty", EntryKind::Folder), 0),
        (link("sub/link", "../big"), 0),
        (entry("sub/run.sh", EntryKind::File { size: 10, executable: true }), 10),
    ];
    assert_eq!(seen, expected);
    let (result, seen) = put(&tree.join("big")).await;
    assert_eq!(result.bytes, 3_000_000);
    assert_eq!(seen, [(file("", 3_000_000), 3_000_000)]);
}

/// bug 25 and security 6: special files and links that leave are refused by name, and nothing hangs on them.
#[tokio::test]
async fn what_may_not_go_in_is_named() {
    type Make = fn(&Path);
    let cases: [(&str, &str, Make); 4] = [
        ("a named pipe", "deep/bad", |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("a socket", "deep/bad", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("leaves what is copied", "deep/bad", |path| symlink("/etc/passwd", path).unwrap()),
        ("leaves what is copied", "deep/bad", |path| symlink("../../x", path).unwrap()),
    ];
    for (reason, name, make) in cases {
        let root = TempDir::new().unwrap();
        std::fs::create_dir(root.path().join("deep")).unwrap();
        make(&root.path().join("deep/bad"));
        let error = put_is_refused(root.path()).await;
        assert!(error.contains(reason) && error.contains(name), "{error}");
    }
    let missing = put_is_refused(Path::new("/nowhere/at/all")).await;
    assert!(missing.contains("/nowhere/at/all"), "{missing}");
}

enum Say {
    Entry(Entry),
    Bytes(Vec<u8>),
}

use Say::{Bytes, Entry as Is};

/// A copy out of `/tmp/out` of a sandbox that says `script` and then ends the call.
async fn get(script: Vec<Say>, to: &Path) -> Result<Copied, CopyError> {
    let place = Place::new();
    let (link, mut control) = up(&place).await;
    let serve = with_server(&mut control, &place, async |mut server: Peer| {
        let (call, _) = server.next_call().await;
        for say in script {
            match say {
                Is(entry) => server.send(&FromSandbox::Entry { id: call.id, entry }, b"").await,
                Bytes(bytes) => server.send(&FromSandbox::Chunk { id: call.id }, &bytes).await,
            }
        }
        server.done(call.id, copied(0, 0), b"").await;
        std::future::pending::<()>().await;
    });
    tokio::select! {
        biased;
        result = link.shared.get("s/out/0", "/tmp/out/", to) => result,
        () = serve => unreachable!(),
    }
}

fn folder() -> Say {
    Is(entry("", EntryKind::Folder))
}

#[tokio::test]
async fn a_tree_comes_out_whole() {
    let root = TempDir::new().unwrap();
    let to = root.path().join("new/target");
    std::fs::create_dir_all(to.join("out")).unwrap();
    std::fs::write(to.join("out/old"), "old").unwrap();
    let script = || {
        vec![
            folder(),
            Is(file("old", 5)),
            Bytes(b"ne".to_vec()),
            Bytes(b"w..".to_vec()),
            Is(entry("sub", EntryKind::Folder)),
            Is(entry("sub/run", EntryKind::File { size: 2, executable: true })),
            Bytes(b"ok".to_vec()),
            Is(file("sub/empty", 0)),
            Is(link("sub/link", "../old")),
            Is(link("sub/away", "../../old")),
            Is(file("bad\u{1b}[2J", 3)),
            Bytes(b"xyz".to_vec()),
            Is(file("last", 1)),
            Bytes(b"!".to_vec()),
        ]
    };
    for _ in 0..2 {
        let copied = get(script(), &to).await.unwrap();
        assert_eq!(copied.files, 4);
        assert_eq!(copied.skipped.len(), 2, "{:?}", copied.skipped);
        assert!(copied.skipped.iter().all(|line| !line.contains('\u{1b}')));
    }
    let out = to.join("out");
    assert_eq!(std::fs::read(out.join("old")).unwrap(), b"new..");
    assert_eq!(std::fs::read(out.join("last")).unwrap(), b"!");
    assert_eq!(std::fs::read_link(out.join("sub/link")).unwrap(), Path::new("../old"));
    assert_eq!(std::fs::metadata(out.join("sub/run")).unwrap().permissions().mode() & 0o100, 0o100);
    let mut names: Vec<_> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["last", "old", "sub"], "no drafts are left");
}

/// A sandbox that sends what no file server of ours would send is ended, and nothing is written outside.
#[tokio::test]
async fn a_hostile_copy_ends_the_sandbox() {
    let cases = [
        ("up", vec![folder(), Is(file("../evil", 1)), Bytes(b"x".to_vec())]),
        ("absolute", vec![folder(), Is(file("/tmp/evil", 1))]),
        ("dot", vec![folder(), Is(file("./evil", 1))]),
        ("root twice", vec![folder(), folder()]),
        ("no root", vec![Is(file("evil", 1))]),
        ("too many bytes", vec![folder(), Is(file("a", 1)), Bytes(b"xy".to_vec())]),
        ("bytes of no file", vec![folder(), Bytes(b"x".to_vec())]),
        ("entry inside a file", vec![folder(), Is(file("a", 2)), Bytes(b"x".to_vec()), Is(file("b", 0))]),
        ("end inside a file", vec![folder(), Is(file("a", 2)), Bytes(b"x".to_vec())]),
        ("huge", vec![folder(), Is(file("a", u64::MAX))]),
    ];
    for (name, script) in cases {
        let root = TempDir::new().unwrap();
        let to = root.path().join("target");
        let error = get(script, &to).await.unwrap_err();
        assert!(
            matches!(&error, CopyError::Call(CallError::Gone(Gone { kind: GoneKind::Protocol, .. }))),
            "{name}: {error}"
        );
        let left: Vec<_> = std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["target"], "{name}");
        assert!(std::fs::read_dir(to.join("out")).map_or(0, Iterator::count) == 0, "{name}: drafts are left");
    }
}

/// bug 23: links never lead a copy out of its folder, whoever made them; only regular files are replaced.
#[tokio::test]
async fn links_and_folders_in_the_way_are_not_followed() {
    type Make = fn(&Path);
    let through = || vec![folder(), Is(entry("d", EntryKind::Folder)), Is(file("d/f", 1)), Bytes(b"x".to_vec())];
    let plain = || vec![folder(), Is(file("f", 1)), Bytes(b"x".to_vec())];
    let own_link = || vec![folder(), Is(link("d", "e")), Is(file("d/f", 1)), Bytes(b"x".to_vec())];
    let cases: [(&str, Make, Vec<Say>); 5] = [
        ("a link in place of the root", |out| symlink("../outside", out).unwrap(), plain()),
        (
            "a link in place of a folder",
            |out| {
                std::fs::create_dir(out).unwrap();
                symlink("../../outside", out.join("d")).unwrap();
            },
            through(),
        ),
        (
            "a link in place of a file",
            |out| {
                std::fs::create_dir(out).unwrap();
                symlink("../../outside/f", out.join("f")).unwrap();
            },
            plain(),
        ),
        ("a folder in place of a file", |out| std::fs::create_dir_all(out.join("f")).unwrap(), plain()),
        ("a link of the copy itself", |_| {}, own_link()),
    ];
    for (name, make, script) in cases {
        let root = TempDir::new().unwrap();
        std::fs::create_dir_all(root.path().join("target")).unwrap();
        std::fs::create_dir_all(root.path().join("outside")).unwrap();
        make(&root.path().join("target/out"));
        let error = get(script, &root.path().join("target")).await.unwrap_err();
        assert!(matches!(error, CopyError::Refused { .. }), "{name}: {error}");
        assert_eq!(std::fs::read_dir(root.path().join("outside")).unwrap().count(), 0, "{name}");
    }
}
