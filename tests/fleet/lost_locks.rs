//! Locks that expired under their holders.

use serde_json::json;

use crate::harness::script::{Gate, call, poll, say};
use crate::harness::{Place, has};

/// bug 40: S-LOCK-6: a lock that expires while its holder is inside one long command goes to the next, with a larger
/// token. The holder is told at its next call, and can neither renew nor release what it lost.
#[test]
fn a_holder_hears_that_it_lost_its_lock() {
    let (key, gate) = ("lock://repo/main", Gate::new());
    let holder = json!([
        call("mine", "acquire_lock", &json!({"resource_key": key, "ttl_seconds": 1})),
        gate.turn("long"),
        call("renew", "acquire_lock", &json!({"resource_key": key})),
        call("free", "release_lock", &json!({"resource_key": key})),
        say("done"),
    ]);
    let other = Gate::new();
    let taker = json!([
        poll("taken", "acquire_lock", &json!({"resource_key": key}), "acquired", &json!(true)),
        other.turn("hold"),
        say("done"),
    ]);
    let place = Place::fleet("", &[("holder", "", holder), ("taker", "", taker)]);
    let daemon = place.serve();
    let first = place.detach("holder");
    gate.reached();
    let second = place.detach("taker");
    other.reached();
    gate.open();
    assert_eq!(place.ended(&first), "done");
    other.open();
    assert_eq!(place.ended(&second), "done");
    let fence = |session: &str, id: &str| place.answer(session, id)["fencing_token"].as_i64().expect("a number");
    assert!(fence(&second, "taken") > fence(&first, "mine"));
    has(&place.answer(&first, "renew"), &json!({"acquired": false, "reason": "conflict"}));
    has(&place.answer(&first, "free"), &json!({"released": false, "reason": "held_by_other"}));
    // The command's own answer, or the next one, says so; whichever comes first after the expiry.
    let journal = place.run(["logs", &first, "--json"]).exits(0).stdout.clone();
    assert!(journal.contains("lost") && journal.contains(key), "it is told that it lost {key}: {journal}");
    place.assert_nothing_left();
    daemon.stop().exits(0);
}

/// S-LOCK-3, S-UNLOCK-1: after its time a lock is no longer its holder's, even if nobody took it: a release says so, and
/// acquiring it is a new grant with a new token.
#[test]
fn an_expired_lock_is_granted_anew() {
    let key = json!({"resource_key": "lock://repo/main"});
    let short = json!({"resource_key": "lock://repo/main", "ttl_seconds": 1});
    let turns = json!([
        call("first", "acquire_lock", &short),
        call("wait", "bash", &json!({"command": "sleep 1.2"})),
        call("second", "acquire_lock", &short),
        call("wait-again", "bash", &json!({"command": "sleep 1.2"})),
        call("free", "release_lock", &key),
        say("done"),
    ]);
    let place = Place::fleet("", &[("keeper", "", turns)]);
    let session = place.alone("keeper");
    let (first, second) = (place.answer(&session, "first"), place.answer(&session, "second"));
    has(&second, &json!({"acquired": true}));
    assert_ne!(second["renewed"], true);
    assert!(second["fencing_token"].as_i64() > first["fencing_token"].as_i64(), "{first} {second}");
    has(&place.answer(&session, "free"), &json!({"released": false, "reason": "expired"}));
    place.assert_nothing_left();
}
