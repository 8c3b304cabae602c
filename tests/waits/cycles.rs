//! Sessions that are paused and resumed again and again.

use serde_json::{Value, json};

use crate::harness::script::{bash, say, wait};
use crate::harness::{Place, Session, until};

/// Rounds of pause and resume.
const ROUNDS: u64 = 20;

/// bug 32: twenty times paused and resumed, with a `logs -f` on it and the daemon killed once: every byte of a file is as it
/// was, and the follower sees it to the end.
#[test]
fn twenty_times_paused_and_resumed() {
    let mut turns =
        vec![bash("make", "head -c 5000000 /dev/urandom >/tmp/f; sha256sum /tmp/f >/tmp/sum; cat /tmp/sum")];
    for round in 0..ROUNDS {
        turns.push(wait(&format!("w{round}"), &json!({"number": round}), "5m"));
        turns.push(bash(&format!("check{round}"), "sha256sum /tmp/f | cmp - /tmp/sum && echo same"));
    }
    turns.push(say("twenty times"));
    let place = Place::fleet("", &[("waits", "", Value::Array(turns))]);
    let mut daemon = place.serve();
    let session = place.detach("waits");
    let follower = Session::of(place.command(["logs", "-f", &session]));
    for round in 0..ROUNDS {
        let nth = usize::try_from(round).expect("small") + 1;
        until("it waits for the next one", || place.kinds(&session, "suspended") == nth);
        place.waiting(&session);
        if round == ROUNDS / 2 {
            daemon.kill_9();
            daemon = place.serve();
        }
        place.emit("issues", "acme/app", &json!({"number": round, "issue": {"number": round}}));
    }
    assert_eq!(place.ended(&session), "done");
    for round in 0..ROUNDS {
        assert_eq!(place.answer(&session, &format!("check{round}")), json!("same\n"), "round {round}");
    }
    let seen = follower.end();
    seen.exits(0).prints("twenty times");
    assert!(seen.stdout.matches("same").count() >= usize::try_from(ROUNDS).expect("small"), "{seen}");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}
