//! docs/fleet.md, typed.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Ran, has, until};

/// The page's commands, which are typed in its order.
struct Walk {
    place: Place,
    page: String,
    at: usize,
}

impl Walk {
    /// Moves on to the next line of the page that types this.
    #[track_caller]
    fn reads(&mut self, typed: &str) {
        let line = format!("\n$ {typed}\n");
        let found = self.page[self.at..].find(&line);
        self.at += found.unwrap_or_else(|| panic!("docs/fleet.md does not type {typed:?} here")) + line.len() - 1;
    }

    /// Types a command of the page and waits for its end.
    #[track_caller]
    fn types(&mut self, arguments: &str) -> Ran {
        self.reads(&format!("runner {arguments}"));
        let ran = self.place.run(arguments.split(' '));
        ran.exits(0);
        ran
    }

    /// Starts the daemon as the page does.
    #[track_caller]
    fn serves(&mut self) -> Daemon {
        self.reads("runner serve &");
        self.place.serve()
    }
}

/// Copies the files of an example into the project.
fn copy(from: &Path, place: &Place, below: &str) {
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        let name = format!("{below}{}", entry.file_name().to_str().expect("UTF-8"));
        if entry.path().is_dir() {
            copy(&entry.path(), place, &format!("{name}/"));
        } else {
            place.write(&name, std::fs::read(entry.path()).expect("a readable file"));
        }
    }
}

/// A lock conflict, a call with a value, a wait that `runner emit` wakes, `kill -9` of the daemon in the middle, a restart,
/// and the right end: as docs/fleet.md tells it.
#[test]
fn the_walk_comes_to_the_right_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = Place::new();
    std::fs::remove_dir_all(place.project()).expect("it is ours");
    copy(&root.join("examples/fleet"), &place, "");
    let page = std::fs::read_to_string(root.join("docs/fleet.md")).expect("it is there");
    let mut walk = Walk { place, page, at: 0 };
    walk.types("validate");

    let daemon = walk.serves();
    walk.types("start --agent release --detach");
    let release = walk.place.session_of("release");
    walk.place.waiting(&release);
    walk.types("ps").prints("release");
    walk.types("waits").prints("release");
    walk.types("locks").prints("lock://shop/main");
    walk.types("start --agent notes --detach");
    let notes = walk.place.session_of("notes");
    has(&walk.place.tidy(&walk.place.answered(&notes, "first")), &json!({"acquired": false, "reason": "conflict"}));
    walk.place.answered(&notes, "lock");
    walk.types("ps").prints("I try again later");

    walk.reads("kill -9 $!");
    daemon.kill_9();
    let asked = walk.place.answers(&notes).len();
    walk.types("ps").prints("release");
    walk.types("waits").prints("release");
    walk.types("locks").prints("lock://shop/main");

    let daemon = walk.serves();
    until("it goes on asking", || walk.place.answers(&notes).len() > asked);
    walk.types("ps").prints("notes");
    walk.types("emit webhook --source github --event pull_request merged.json");
    for session in [&release, &notes] {
        assert_eq!(walk.place.ended(session), "done");
    }
    walk.types("ps --all").prints("release").prints("tester").prints("notes");
    assert_eq!(walk.place.ps_json().len(), 3);
    assert_eq!(walk.place.show(&release)["answer"], "Released main: 3 tests passed, and octocat merged #7.",);
    let fence = |session: &str| walk.place.answer(session, "lock")["fencing_token"].as_i64().expect("a number");
    assert!(fence(&notes) > fence(&release));
    let told = walk.place.answer(&release, "merged");
    has(&told, &json!({"type": "webhook", "repo": "acme/shop", "action": "closed", "number": 7, "sender": "octocat"}));
    walk.types("logs last");

    walk.reads("kill $!");
    daemon.stop().exits(0);
    for list in ["ps", "locks", "waits", "calls", "queue"] {
        walk.types(list);
        assert_eq!(walk.place.listed(list), Vec::<Value>::new(), "{list}");
    }
    walk.place.assert_nothing_left();
}
