//! What tests of scheduler tools begin with.

use std::time::Duration;

use crate::fleet::Rules;
use crate::store::{Lock, SessionKey};

/// A lock that somebody holds.
pub(crate) fn lock() -> Lock {
    Lock {
        resource: "lock://repo/main".to_owned(),
        key: SessionKey(2),
        session: "s2".to_owned(),
        agent: "deployer".to_owned(),
        project: "/p".to_owned(),
        fence: 6,
        held_since: 1_000,
        expires_at: 61_000,
    }
}

/// The rules of a project with three sources.
pub(crate) fn rules() -> Rules {
    let sources = [("github", "github"), ("ours", "github"), ("errors", "sentry")];
    Rules {
        lock_timeout: Duration::from_mins(30),
        wait_timeout: Duration::from_mins(30),
        max_suspended: 50,
        max_call_depth: 3,
        sources: sources.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec(),
    }
}
