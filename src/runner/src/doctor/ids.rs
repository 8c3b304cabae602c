//! User ids for sessions: are there enough, are they nobody's, and can they be chosen?

use super::{Finding, NO_ENGINE, Usable};
use crate::sandbox::ids::{Accounts, IdsLock, choose, overlaps_wide};

pub(super) async fn examine(engine: Option<&Usable>) -> Vec<Finding> {
    let range = match Accounts::of_this_host() {
        Ok(accounts) => range(&accounts, engine).await,
        Err(error) => Finding::from_error("uid-range", &error),
    };
    let lock = match IdsLock::try_out().await {
        Ok(path) => Finding::fine("uid-lock", format!("{} can be locked", path.display())),
        Err(error) => Finding::from_error("uid-lock", &error),
    };
    vec![range, lock]
}

async fn range(accounts: &Accounts, engine: Option<&Usable>) -> Finding {
    const CHECK: &str = "uid-range";
    let in_use = match engine {
        Some(usable) => match usable.engine.ids_in_use().await {
            Ok(in_use) => in_use,
            Err(error) => return Finding::from_error(CHECK, &error),
        },
        None => Vec::new(),
    };
    let ids = match choose(accounts, &in_use) {
        Ok(ids) => ids,
        Err(error) => return Finding::from_error(CHECK, &error),
    };
    let users = match (engine, in_use.len()) {
        (None, _) => NO_ENGINE.to_owned(),
        (Some(_), 1) => "1 block in use".to_owned(),
        (Some(_), blocks) => format!("{blocks} blocks in use"),
    };
    let seen = format!("the next session gets the ids {} to {} ({users})", ids.agent, ids.first_tag + ids.tags - 1);
    if overlaps_wide(accounts) {
        let remedy =
            "sessions avoid them; give others ids below 1900000000 in /etc/subuid and /etc/subgid when you can";
        return Finding::warning(
            CHECK,
            format!("{seen}; accounts or /etc/subuid have some from 1900000000 on"),
            remedy,
        );
    }
    Finding::fine(CHECK, seen)
}
