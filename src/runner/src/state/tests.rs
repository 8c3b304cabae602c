use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn place(runner_state: &str, xdg: &str, home: &str, root: bool) -> Result<PathBuf, String> {
    let path = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
    let place = Place { runner_state: path(runner_state), xdg_state_home: path(xdg), home: path(home), root };
    place.directory().map_err(|error| error.to_string())
}

/// config.md "Where things live": `RUNNER_STATE`, else /var/lib/runner for root, else `XDG_STATE_HOME/runner`.
#[test]
fn the_path_follows_the_rules() {
    assert_eq!(place("/s", "/x", "/h", true).unwrap(), Path::new("/s"));
    assert_eq!(place("", "/x", "/h", true).unwrap(), Path::new("/var/lib/runner"));
    assert_eq!(place("", "/x", "/h", false).unwrap(), Path::new("/x/runner"));
    assert_eq!(place("", "", "/h", false).unwrap(), Path::new("/h/.local/state/runner"));
    assert_eq!(place("", "relative", "/h", false).unwrap(), Path::new("/h/.local/state/runner"));
    assert!(place("relative", "", "/h", false).unwrap_err().contains("RUNNER_STATE"));
    assert!(place("", "", "", false).unwrap_err().contains("RUNNER_STATE"));
}

/// security.md 3: modes are set by explicit chmod, whatever the umask.
#[test]
fn modes_do_not_depend_on_the_umask() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("a/b/state");
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let state = State::open_at(&root).unwrap();
    let toolbox = state.place_toolbox(b"a program", "aa").unwrap();
    nix::sys::stat::umask(umask);
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("sessions")), 0o700);
    assert_eq!(mode(&root.join("token")), 0o600);
    assert_eq!(mode(&toolbox), 0o555);
    assert_eq!(fs::read(&toolbox).unwrap(), b"a program");
}

#[test]
fn the_token_stays_and_two_first_starts_agree() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("state");
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..8).map(|_| scope.spawn(|| State::open_at(&root).unwrap().token().to_owned())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(tokens[0].len(), 32);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_eq!(State::open_at(&root).unwrap().token(), tokens[0]);
    let mut left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["sessions", "token"]);
}

#[test]
fn a_damaged_token_is_named() {
    let base = tempfile::tempdir().unwrap();
    State::open_at(base.path()).unwrap();
    fs::write(base.path().join("token"), "short").unwrap();
    let message = State::open_at(base.path()).unwrap_err().to_string();
    assert!(message.contains("token") && message.contains("32 hex digits"), "{message}");
}

#[test]
fn the_toolbox_is_written_once_and_repaired() {
    let base = tempfile::tempdir().unwrap();
    let state = State::open_at(base.path()).unwrap();
    let path = state.place_toolbox(b"one", "11").unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    assert_eq!(state.place_toolbox(b"one", "11").unwrap(), path);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_ne!(state.place_toolbox(b"two", "22").unwrap(), path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"damaged").unwrap();
    state.place_toolbox(b"one", "11").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
}

/// A directory that holds other things is never closed to others, however `RUNNER_STATE` came to name it.
#[test]
fn a_directory_with_foreign_files_is_left_alone() {
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(base.path().join("precious"), "x").unwrap();
    let message = State::open_at(base.path()).unwrap_err().to_string();
    assert!(message.contains("precious") && message.contains("RUNNER_STATE"), "{message}");
    assert_eq!(mode(base.path()), 0o755);
    let file = base.path().join("precious");
    assert!(matches!(State::open_at(&file), Err(StateError::NotADirectory(_))));
    assert!(matches!(State::open_at(&file.join("below")), Err(StateError::NotADirectory(_))));
}

#[test]
fn failures_of_the_disk_name_the_remedy() {
    for (code, word) in
        [(nix::Error::ENOSPC, "no space"), (nix::Error::EROFS, "read-only"), (nix::Error::EACCES, "no permission")]
    {
        let message = StateError::from_io("write", Path::new("/d"), code.into()).to_string();
        assert!(message.contains(word) && message.contains("/d") && message.contains("RUNNER_STATE"), "{message}");
    }
}

#[test]
fn sessions_with_a_folder_are_listed() {
    let base = tempfile::tempdir().unwrap();
    let state = State::open_at(base.path()).unwrap();
    assert!(state.session_folders().unwrap().is_empty());
    fs::create_dir(state.session_folder("b")).unwrap();
    fs::create_dir(state.session_folder("a")).unwrap();
    assert_eq!(state.session_folders().unwrap(), ["a", "b"]);
}

#[test]
fn the_embedded_toolbox_is_what_is_placed() {
    let base = tempfile::tempdir().unwrap();
    let state = State::open_at(base.path()).unwrap();
    let path = state.toolbox().unwrap();
    assert!(path.ends_with(format!("toolbox-{TOOLBOX_SHA256}")));
    assert!(fs::read(path).unwrap() == TOOLBOX);
}

/// A noexec mount and a full disk, for real where mounting is allowed.
#[test]
fn real_mounts_are_refused_with_the_remedy() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    for (options, word) in [("noexec", "noexec"), ("size=4k", "no space"), ("ro", "read-only")] {
        let point = base.path().join(word);
        fs::create_dir(&point).unwrap();
        let mounted =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&point).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return;
        }
        let opened = State::open_at(&point);
        std::process::Command::new("umount").arg(&point).status().unwrap();
        let message = opened.unwrap_err().to_string();
        assert!(message.contains(word) && message.contains("RUNNER_STATE"), "{message}");
    }
}
