//! bug 41: many fight for one lock that expires, through two stores on one file, as two runners have.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runner::store::{
    Generation, Lines, LockAnswer, NewEvent, NewSession, OwnerId, Place, ReleaseAnswer, Seat, SqliteStore, Store,
};

const CONTENDERS: usize = 64;

/// Milliseconds that a lock is asked for: shorter than some holders keep it.
const TTL: i64 = 30;

/// One grant, by the store's clock.
#[derive(Debug, Clone, Copy)]
struct Grant {
    fence: i64,
    from: i64,
    expires: i64,
    /// When its holder asked to release it, if it did so in time.
    released: Option<i64>,
}

fn length() -> Duration {
    if std::env::var_os("RUNNER_SOAK").is_some() { Duration::from_mins(1) } else { Duration::from_secs(5) }
}

async fn seat(store: &dyn Store) -> Seat {
    let session = NewSession {
        id: uuid::Uuid::now_v7().to_string(),
        project: "contenders".to_owned(),
        agent: "contender".to_owned(),
        owner: OwnerId { id: "test".to_owned(), host: "test".to_owned() },
        container: None,
        keep: false,
        place: Place::default(),
    };
    let started = NewEvent { kind: "started".into(), body: "{}".to_owned(), ..NewEvent::default() };
    let key = store.create_session(session, started).await.expect("a fresh session");
    Seat { key, generation: Generation::FIRST }
}

/// Fights until the time is over. Every third grant is kept until it has expired.
async fn contend(store: Arc<dyn Store>, until: Instant) -> Vec<Grant> {
    let seat = seat(&*store).await;
    let key = "lock://one/key".to_owned();
    let mut grants = Vec::new();
    while Instant::now() < until {
        let answer = store.acquire_lock(seat, key.clone(), TTL, Lines::none()).await.expect("the store works");
        let LockAnswer::Granted { fence, expires_at, .. } = answer else {
            tokio::task::yield_now().await;
            continue;
        };
        let mut grant = Grant { fence, from: expires_at - TTL, expires: expires_at, released: None };
        if fence % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(TTL.unsigned_abs() + 5)).await;
            let answer = store.release_lock(seat, key.clone(), Lines::none()).await.expect("the store works");
            assert_ne!(answer, ReleaseAnswer::Released, "it has expired: {grant:?}");
        } else {
            let asked = store.now().await.expect("the store works");
            let answer = store.release_lock(seat, key.clone(), Lines::none()).await.expect("the store works");
            grant.released = (answer == ReleaseAnswer::Released).then_some(asked);
        }
        grants.push(grant);
    }
    grants
}

/// S-LOCK-2, S-LOCK-6, bug 41: at any instant the key has one holder, and the tokens are in the order of the grants.
#[test]
fn one_key_has_one_holder() {
    let folder = tempfile::Builder::new().prefix("runner-test-").tempdir().expect("a folder below /tmp");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(folder.path()).expect("a fresh store")) };
    let stores = [open(), open()];
    let mut grants = runtime.block_on(async {
        let until = Instant::now() + length();
        let tasks: Vec<_> = (0..CONTENDERS).map(|n| tokio::spawn(contend(Arc::clone(&stores[n % 2]), until))).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("none panics"));
        }
        all
    });
    grants.sort_by_key(|grant| grant.fence);
    assert!(grants.len() > 20, "there is a fight: {} grants", grants.len());
    for two in grants.windows(2) {
        let [first, second] = two else { unreachable!("windows of two") };
        assert!(first.fence < second.fence, "a token is given once: {two:?}");
        let free = first.released.map_or(first.expires, |released| released.min(first.expires));
        assert!(second.from >= free, "two holders at once: {two:?}");
    }
}
