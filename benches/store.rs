//! The store under eight sessions at once, against bare commits of the same rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use runner::store::{
    Generation, Lines, LockAnswer, NewEvent, NewSession, OwnerId, ReleaseAnswer, Seat, SqliteStore, Store,
};

use super::commits::{Commits, Durable, Rows};
use super::place::Place;
use super::stats::{Bound, Figure};

const SESSIONS: usize = 8;
const BLOCKS: usize = 7;

/// How long the longest stall is looked for.
const LOOKED: Duration = Duration::from_mins(1);

/// A tool's answer of the usual length.
const BODY: &str = r#"{"key":"01890a5d-ac96-774b-bcce-b302099a8057/17/0","name":"acquire_lock","is_error":false,"text":"{\"acquired\":true,\"resource_key\":\"lock://bench/0\",\"fencing_token\":12345}","duration_ms":1}"#;

fn line() -> NewEvent {
    NewEvent { kind: "tool_finished".into(), body: BODY.to_owned(), ..NewEvent::default() }
}

/// Eight sessions in a store of this place.
async fn sessions(place: &Place) -> anyhow::Result<(Arc<dyn Store>, Vec<Seat>)> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(place.state().root())?);
    let mut seats = Vec::new();
    for _ in 0..SESSIONS {
        seats.push(session(place, &*store).await?);
    }
    Ok((store, seats))
}

/// A new session, which is active.
pub(crate) async fn session(place: &Place, store: &dyn Store) -> anyhow::Result<Seat> {
    let session = NewSession {
        id: uuid::Uuid::now_v7().to_string(),
        project: "bench".to_owned(),
        agent: "bench".to_owned(),
        owner: OwnerId { id: "bench".to_owned(), host: place.state().token().to_owned() },
        container: None,
        keep: false,
        place: runner::store::Place::default(),
    };
    let started = NewEvent { kind: "started".into(), body: "{}".to_owned(), ..NewEvent::default() };
    let key = store.create_session(session, started).await?;
    Ok(Seat { key, generation: Generation::FIRST })
}

/// Acquire and release with their journal lines, against a lock's row and a line, and its removal and a line.
pub(crate) async fn lock_pairs(place: &Place) -> anyhow::Result<Figure> {
    const PAIRS: usize = 150;
    let (store, seats) = sessions(place).await?;
    let floor = Commits::start(place.folder.path(), Durable::Full)?;
    let mut rates = Rates::default();
    for _ in 0..BLOCKS {
        let begin = Instant::now();
        try_join_all((0..SESSIONS).map(|session| {
            let (floor, resource) = (&floor, format!("lock://bench/{session}"));
            async move {
                for _ in 0..PAIRS {
                    floor.commit(Rows::Lock(resource.clone(), BODY.to_owned())).await?;
                    floor.commit(Rows::Unlock(resource.clone(), BODY.to_owned())).await?;
                }
                anyhow::Ok(())
            }
        }))
        .await?;
        rates.floor.push(rate(SESSIONS * PAIRS, begin));
        let begin = Instant::now();
        try_join_all(seats.iter().enumerate().map(|(session, seat)| {
            let (store, resource) = (&store, format!("lock://bench/{session}"));
            async move {
                for _ in 0..PAIRS {
                    let lines = Lines::new(|_: &LockAnswer| vec![line()]);
                    let answer = store.acquire_lock(*seat, resource.clone(), 60_000, lines).await?;
                    anyhow::ensure!(matches!(answer, LockAnswer::Granted { renewed: false, .. }), "{answer:?}");
                    let lines = Lines::new(|_: &ReleaseAnswer| vec![line()]);
                    let answer = store.release_lock(*seat, resource.clone(), lines).await?;
                    anyhow::ensure!(answer == ReleaseAnswer::Released, "{answer:?}");
                }
                Ok(())
            }
        }))
        .await?;
        rates.ours.push(rate(SESSIONS * PAIRS, begin));
    }
    let detail = rates.detail("bare FULL commits of both", "acquire and release", "pairs");
    Ok(Figure::judge("lock_pairs", rates.ratio(), "ratio", Bound::AtLeast(0.5), &detail))
}

/// Awaited journal lines of eight sessions, against bare commits of the same lines.
pub(crate) async fn journal_appends(place: &Place) -> anyhow::Result<Figure> {
    const LINES: usize = 1000;
    let (store, seats) = sessions(place).await?;
    let floor = Commits::start(place.folder.path(), Durable::Normal)?;
    let mut rates = Rates::default();
    for _ in 0..BLOCKS {
        let begin = Instant::now();
        try_join_all((0..SESSIONS).map(|_| async {
            for _ in 0..LINES {
                floor.commit(Rows::Line(BODY.to_owned())).await?;
            }
            anyhow::Ok(())
        }))
        .await?;
        rates.floor.push(rate(SESSIONS * LINES, begin));
        let begin = Instant::now();
        try_join_all(seats.iter().map(|seat| async {
            for _ in 0..LINES {
                store.append(seat.key, seat.generation, line()).await?;
            }
            anyhow::Ok(())
        }))
        .await?;
        rates.ours.push(rate(SESSIONS * LINES, begin));
    }
    let detail = rates.detail("bare NORMAL commits", "appends", "lines");
    Ok(Figure::judge("journal_appends", rates.ratio(), "ratio", Bound::AtLeast(0.5), &detail))
}

/// The longest that any of eight writers waited for a line in a minute.
pub(crate) async fn journal_stall(place: &Place) -> anyhow::Result<Figure> {
    let (store, seats) = sessions(place).await?;
    let until = Instant::now() + LOOKED;
    let longest = try_join_all(seats.iter().map(|seat| async {
        let (mut longest, mut lines) = (Duration::ZERO, 0_u64);
        while Instant::now() < until {
            let begin = Instant::now();
            store.append(seat.key, seat.generation, line()).await?;
            longest = longest.max(begin.elapsed());
            lines += 1;
        }
        anyhow::Ok((longest, lines))
    }))
    .await?;
    let lines: u64 = longest.iter().map(|(_, lines)| lines).sum();
    let longest = longest.iter().map(|(longest, _)| *longest).max().unwrap_or_default();
    let detail = format!("{lines} lines in {LOOKED:?}");
    Ok(Figure::judge("journal_stall", longest.as_secs_f64() * 1000.0, "ms", Bound::AtMost(50.0), &detail))
}

fn rate(count: usize, since: Instant) -> f64 {
    let count = u32::try_from(count).expect("a block is small");
    f64::from(count) / since.elapsed().as_secs_f64()
}

/// Things a second of both sides, block by block.
#[derive(Default)]
struct Rates {
    floor: Vec<f64>,
    ours: Vec<f64>,
}

impl Rates {
    /// The median over the blocks of ours in parts of the floor's.
    fn ratio(&self) -> f64 {
        median(self.floor.iter().zip(&self.ours).map(|(floor, ours)| ours / floor).collect())
    }

    fn detail(&self, floor: &str, ours: &str, unit: &str) -> String {
        let (bare, own) = (median(self.floor.clone()), median(self.ours.clone()));
        format!("{floor} {bare:.0} {unit}/s, {ours} {own:.0} {unit}/s, {SESSIONS} sessions, {BLOCKS} blocks")
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
