use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
};

use super::*;

struct Place {
    _base: tempfile::TempDir,
    from: PathBuf,
    to: PathBuf,
}

/// A folder with these files (`name` and content; executable when the name ends in `.sh`) and an empty target.
fn place(files: &[(&str, &str)]) -> Place {
    let base = tempfile::tempdir().unwrap();
    let (from, to) = (base.path().join("from"), base.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    for (name, content) in files {
        let path = from.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let executable = Path::new(name).extension().is_some_and(|extension| extension == "sh");
        fs::set_permissions(&path, fs::Permissions::from_mode(if executable { 0o750 } else { 0o640 })).unwrap();
    }
    Place { _base: base, from, to }
}

impl Place {
    fn stage(&self) -> Result<Staged, StageError> {
        stage(&self.from, &self.to)
    }

    fn problems(&self) -> Vec<String> {
        match self.stage() {
            Err(StageError::Refused { problems, .. }) => problems,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Every staged path with its mode and content.
    fn staged(&self) -> Vec<String> {
        fn walk(folder: &Path, base: &Path, into: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let found = fs::symlink_metadata(&path).unwrap();
                let name = path.strip_prefix(base).unwrap().display();
                let mode = found.mode() & 0o7777;
                if found.is_dir() {
                    into.push(format!("{name} {mode:o}"));
                    walk(&path, base, into);
                } else {
                    into.push(format!("{name} {mode:o} {}", fs::read_to_string(&path).unwrap()));
                }
            }
        }
        let mut lines = Vec::new();
        walk(&self.to, &self.to, &mut lines);
        lines.sort();
        lines
    }
}

/// security.md 3 and 6: modes, and what stays behind.
#[test]
fn files_are_copied_with_our_modes_and_secrets_stay_behind() {
    let place = place(&[
        ("SKILL.md", "s"),
        ("skills/a/run.sh", "r"),
        (".git/config", "g"),
        ("skills/.git/config", "g"),
        (".env", "e"),
        (".env.local", "e"),
        ("skills/.envrc", "e"),
        (".github/x", "x"),
    ]);
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let staged = place.stage().unwrap();
    nix::sys::stat::umask(umask);
    assert_eq!(
        place.staged(),
        [".github 755", ".github/x 444 x", "SKILL.md 444 s", "skills 755", "skills/a 755", "skills/a/run.sh 555 r"]
    );
    assert_eq!((staged.files, staged.bytes, staged.sha256.len()), (3, 3, 64));
}

#[test]
fn links_inside_are_staged_as_copies() {
    let place = place(&[("real/a.sh", "a"), ("b", "b")]);
    symlink("../b", place.from.join("real/to-b")).unwrap();
    symlink("real", place.from.join("again")).unwrap();
    place.stage().unwrap();
    assert_eq!(
        place.staged(),
        [
            "again 755",
            "again/a.sh 555 a",
            "again/to-b 444 b",
            "b 444 b",
            "real 755",
            "real/a.sh 555 a",
            "real/to-b 444 b"
        ]
    );
}

/// bug 48 and security.md 6: everything refused is refused by name, all of it at once.
#[test]
fn what_is_refused_is_named() {
    let place = place(&[("ok", "x"), (".env", "secret"), (".git/config", "g"), ("d/f", "x")]);
    let link = |target: &str, name: &str| symlink(target, place.from.join(name)).unwrap();
    link("/etc/passwd", "absolute");
    link("../to", "out");
    link("d/../../to", "dotdot");
    link("/proc/self/root", "magic");
    link("nowhere", "dangling");
    link("ok/below", "notdir");
    link("self", "self");
    link("..", "d/up");
    link(".", "d/here");
    link(".env", "to-env");
    link(".git", "to-git");
    let _socket = UnixListener::bind(place.from.join("socket")).unwrap();
    nix::unistd::mkfifo(&place.from.join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::write(place.from.join("suid"), "x").unwrap();
    fs::set_permissions(place.from.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(place.from.join("first"), "x").unwrap();
    fs::hard_link(place.from.join("first"), place.from.join("second")).unwrap();
    fs::write(place.from.join("a\x1b[2Jb"), "x").unwrap();
    fs::write(place.from.join("a\u{202e}b"), "x").unwrap();
    let problems = place.problems();
    let expected = [
        (r#""absolute""#, "out of the folder"),
        (r#""out""#, "out of the folder"),
        (r#""dotdot""#, "out of the folder"),
        (r#""magic""#, "out of the folder"),
        (r#""dangling""#, "nowhere"),
        (r#""notdir""#, "nowhere"),
        (r#""self""#, "circle"),
        (r#""d/up""#, "circle"),
        (r#""d/here""#, "circle"),
        (r#""to-env""#, "never staged"),
        (r#""to-git""#, "never staged"),
        (r#""socket""#, "not a regular file"),
        (r#""fifo""#, "not a regular file"),
        (r#""suid""#, "setuid"),
        (r#""first""#, "second hard link"),
        (r#""second""#, "second hard link"),
        (r#""a\u{1b}[2Jb""#, "control characters"),
        (r#""a\u{202e}b""#, "control characters"),
    ];
    for (name, reason) in expected {
        let found = problems.iter().any(|problem| problem.starts_with(name) && problem.contains(reason));
        assert!(found, "no {name} {reason:?} in {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    assert!(problems.iter().all(|problem| !problem.chars().any(char::is_control)));
}

#[test]
fn the_hash_tells_names_modes_and_contents_apart() {
    let hash = |files: &[(&str, &str)]| place(files).stage().unwrap().sha256;
    let one = hash(&[("a", "1"), ("b", "2")]);
    assert_eq!(one, hash(&[("b", "2"), ("a", "1")]));
    for other in [
        &[("a", "1"), ("b", "3")][..],
        &[("a", "1"), ("c", "2")],
        &[("a", "1"), ("b.sh", "2")],
        &[("a", "1b2")],
        &[("a", "1"), ("d/b", "2")],
    ] {
        assert_ne!(one, hash(other), "{other:?}");
    }
}

#[test]
fn limits_on_files_and_bytes() {
    assert_eq!((BOUNDS.entries, BOUNDS.mebibytes), (20_000, 256));
    let bounds = Bounds { entries: 50, mebibytes: 1 };
    let many = place(&[]);
    for n in 0..=bounds.entries {
        fs::write(many.from.join(n.to_string()), "").unwrap();
    }
    let message = stage_within(bounds, &many.from, &many.to).unwrap_err().to_string();
    assert!(message.contains("50 files") && message.contains("from"), "{message}");
    let large = place(&[("small", "x")]);
    let file = fs::File::create(large.from.join("sparse")).unwrap();
    file.set_len((1 << 20) + 1).unwrap();
    let message = stage_within(bounds, &large.from, &large.to).unwrap_err().to_string();
    assert!(message.contains("1 MiB"), "{message}");
    file.set_len(1000).unwrap();
    fs::remove_dir_all(&large.to).unwrap();
    fs::create_dir(&large.to).unwrap();
    assert_eq!(large.stage().unwrap().bytes, 1001);
}

/// Links make many paths out of few files; their number is what counts.
#[test]
fn a_maze_of_links_ends_at_the_limit() {
    let place = place(&[]);
    for level in 0..16 {
        fs::create_dir(place.from.join(format!("d{level}"))).unwrap();
        for link in ["a", "b"] {
            symlink(format!("../d{}", level + 1), place.from.join(format!("d{level}/{link}"))).unwrap();
        }
    }
    fs::create_dir(place.from.join("d16")).unwrap();
    let bounds = Bounds { entries: 500, ..BOUNDS };
    assert!(matches!(stage_within(bounds, &place.from, &place.to), Err(StageError::TooLarge { .. })));
}

/// security.md 6: canonicalize-then-open leaked in such a race, openat2 must not.
#[test]
fn a_folder_swapped_for_a_link_out_leaks_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let place = place(&[("d/f", "inside")]);
    let outside = place.from.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "secret").unwrap();
    let (folder, aside) = (place.from.join("d"), place.from.parent().unwrap().join("aside"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&folder, &aside).unwrap();
                symlink(&outside, &folder).unwrap();
                fs::remove_file(&folder).unwrap();
                fs::rename(&aside, &folder).unwrap();
            }
        });
        for round in 0..1500 {
            let to = place.to.join(round.to_string());
            fs::create_dir(&to).unwrap();
            let _ = stage(&place.from, &to);
            let copy = to.join("d/f");
            if copy.exists() {
                assert_eq!(fs::read_to_string(copy).unwrap(), "inside");
            }
            fs::remove_dir_all(&to).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
