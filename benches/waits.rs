//! Matching an event against 100,000 waits.

use std::time::Instant;

use runner::fleet::WaitIndex;
use runner::store::{InboxEvent, SessionKey, Wait, WaitOn};
use runner::trigger::Filter;
use serde_json::{Value, json};

use super::place::Place;
use super::stats::{Bound, Figure, percentile};

const WAITS: i64 = 100_000;
const ROUNDS: usize = 1000;

/// Waits of 1,000 repositories, 100 of each, and an event of one.
pub(crate) async fn of_a_thousand(place: &Place) -> anyhow::Result<Figure> {
    measure(place, "match_waits", 1000, 1.0).await
}

/// All waits are of one repository, and so is the event.
pub(crate) async fn of_one(place: &Place) -> anyhow::Result<Figure> {
    measure(place, "match_waits_hot", 1, 10.0).await
}

#[allow(clippy::unused_async, reason = "a measurement like the others")]
async fn measure(_: &Place, name: &'static str, repos: i64, bound: f64) -> anyhow::Result<Figure> {
    let mut index = WaitIndex::default();
    for id in 1..=WAITS {
        index.insert(&wait(id, id % repos));
    }
    let rounds = if repos == 1 { ROUNDS / 10 } else { ROUNDS };
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let event = event(i64::try_from(round)? % repos);
        let begin = Instant::now();
        let matched = index.matching(&event);
        times.push(begin.elapsed());
        anyhow::ensure!(matched.len() == usize::try_from(WAITS / repos)?, "{} waits match", matched.len());
    }
    let slow = percentile(&times, 99);
    let detail = format!("p50 {:.1?}, p99 {slow:.1?}, {WAITS} waits of {repos} repositories", percentile(&times, 50));
    Ok(Figure::judge(name, slow.as_secs_f64() * 1000.0, "ms", Bound::AtMost(bound), &detail))
}

fn wait(id: i64, repo: i64) -> Wait {
    let filter = Filter::parse(&json!({"repo": format!("acme/{repo}")})).expect("a filter");
    Wait {
        id,
        key: SessionKey(id),
        session: format!("session-{id}"),
        agent: "bench".to_owned(),
        project: "bench".to_owned(),
        call: format!("session-{id}/1/0"),
        on: WaitOn::Webhook { sources: vec!["github".to_owned()], event: Some("pull_request".to_owned()), filter },
        words: String::new(),
        since: 0,
        deadline: i64::MAX,
        paused: true,
        woken: None,
    }
}

fn event(repo: i64) -> InboxEvent {
    let repo = format!("acme/{repo}");
    let fields = json!({"source": "github", "event": "pull_request", "repo": repo, "action": "opened", "number": 7});
    InboxEvent {
        id: 1,
        at: 1,
        source: "github".to_owned(),
        event: "pull_request".to_owned(),
        fields,
        raw: json!({"repository": {"full_name": repo}, "more": Value::Null}),
        woke: None,
    }
}
