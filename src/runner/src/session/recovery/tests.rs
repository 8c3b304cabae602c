//! bug 29: after a runner died, nothing of its sessions is left and nothing of anybody else's is touched. The engine is
//! a list here; the same with a real one is among the product's tests.

use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::session::journal::{Event, Started, load};
use crate::store::{Container, End, Generation, NewSession, OwnerId, SessionKey, SqliteStore};

#[derive(Default)]
struct FakeEngine {
    containers: Mutex<Vec<FoundContainer>>,
    broken: Option<String>,
}

impl FakeEngine {
    fn has(&self, name: &str) -> bool {
        self.containers.lock().unwrap().iter().any(|c| c.name == name)
    }

    fn add(&self, name: &str, running: bool) {
        let session = name.strip_prefix("c-").map(str::to_owned);
        let container = FoundContainer { id: format!("id-of-{name}"), name: name.into(), running, session };
        self.containers.lock().unwrap().push(container);
    }
}

impl Containers for FakeEngine {
    fn with_our_token(&self) -> BoxFuture<'_, Result<Vec<FoundContainer>, EngineFailure>> {
        Box::pin(async { Ok(self.containers.lock().unwrap().clone()) })
    }

    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), EngineFailure>> {
        let id = id.to_owned();
        Box::pin(async move {
            if self.broken.as_ref() == Some(&id) {
                return Err("the engine said 500".into());
            }
            self.containers.lock().unwrap().retain(|c| c.id != id);
            Ok(())
        })
    }
}

struct Place {
    _folder: tempfile::TempDir,
    state: State,
    store: Arc<dyn Store>,
    me: Owner,
    engine: FakeEngine,
    keys: HashMap<String, SessionKey>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let store = Arc::new(SqliteStore::open(state.root()).unwrap());
        let me = Owner::claim(&state).unwrap();
        Place { _folder: folder, state, store, me, engine: FakeEngine::default(), keys: HashMap::new() }
    }

    /// A session with container and folder; its owner is dead unless given.
    async fn session(&mut self, id: &str, owner: Option<&OwnerId>, keep: bool) {
        let dead = OwnerId { id: "dead".into(), host: self.state.token().into() };
        let session = NewSession {
            id: id.into(),
            project: "/p".into(),
            agent: "a".into(),
            owner: owner.unwrap_or(&dead).clone(),
            container: Some(format!("c-{id}")),
            keep,
            place: crate::store::Place::default(),
        };
        let key = self.store.create_session(session, Event::Started(Started::default()).to_row()).await.unwrap();
        self.keys.insert(id.into(), key);
        self.engine.add(&format!("c-{id}"), true);
        let folder = self.state.session_folder(id);
        std::fs::create_dir_all(folder.join("static")).unwrap();
        std::os::unix::fs::symlink("/etc", folder.join("static/link")).unwrap();
    }

    async fn end(&self, id: &str, sandbox_removed: bool) {
        let journal = Journal::new(Arc::clone(&self.store), self.keys[id], Generation::FIRST);
        journal.end(EndCause::Done, "done".into(), sandbox_removed).await.unwrap();
    }

    async fn recover(&self) -> Recovered {
        recover(&self.store, &self.state, &self.me, &self.engine).await.unwrap()
    }

    fn has(&self, id: &str) -> (bool, bool) {
        (self.engine.has(&format!("c-{id}")), self.state.session_folder(id).exists())
    }

    async fn cause(&self, id: &str) -> Option<(String, bool)> {
        self.store
            .session(id)
            .await
            .unwrap()
            .end
            .map(|(End { cause, sandbox_removed, .. }, _)| (cause, sandbox_removed))
    }
}

const NOTHING: (bool, bool) = (false, false);
const ALL: (bool, bool) = (true, true);

#[tokio::test]
async fn sessions_of_a_dead_runner_are_ended_and_cleaned() {
    let mut place = Place::new();
    let living = Owner::claim(&place.state).unwrap();
    for id in ["a", "b", "c", "d", "e"] {
        place.session(id, None, false).await;
    }
    place.session("mine", Some(&place.me.id().clone()), false).await;
    place.session("theirs", Some(living.id()), false).await;
    let done = place.recover().await;
    assert_eq!(done.ended.len(), 5);
    assert_eq!(done.problems, Vec::<String>::new());
    for id in ["a", "b", "c", "d", "e"] {
        assert_eq!(place.has(id), NOTHING);
        assert_eq!(place.cause(id).await, Some(("runner_died".into(), true)));
        let events = load(&*place.store, place.keys[id]).await.unwrap();
        assert!(matches!(&events[..], [Event::Started(_), Event::Ended(end)] if end.cause == EndCause::RunnerDied));
    }
    for id in ["mine", "theirs"] {
        assert_eq!(place.has(id), ALL);
        assert_eq!(place.cause(id).await, None);
    }
    assert_eq!(place.recover().await, Recovered::default());
    assert!(std::fs::exists("/etc/passwd").unwrap(), "links are not followed");
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let mut place = Place::new();
    place.session("a", None, false).await;
    // Our token, a name that nobody recorded; and the recorded name on another container than the recorded one.
    place.engine.add("c-foreign", true);
    place.session("b", None, false).await;
    let other = Container { name: "c-b".into(), id: Some("another".into()) };
    place.store.set_container(place.keys["b"], Generation::FIRST, other).await.unwrap();
    // A folder that the store does not know.
    std::fs::create_dir(place.state.session_folder("strange")).unwrap();
    let done = place.recover().await;
    assert_eq!(done.ended.len(), 2);
    assert_eq!(place.has("a"), NOTHING);
    assert!(place.engine.has("c-foreign"));
    assert_eq!(place.has("b"), (true, false));
    assert!(place.state.session_folder("strange").exists());
    assert_eq!(done.problems.len(), 1, "{:?}", done.problems);
}

#[tokio::test]
async fn what_could_not_be_removed_is_removed_next_time() {
    let mut place = Place::new();
    place.session("a", None, false).await;
    place.engine.broken = Some("id-of-c-a".into());
    let done = place.recover().await;
    assert_eq!(done.problems, ["container id-of-c-a of session a is still there: the engine said 500"]);
    assert_eq!(place.cause("a").await, Some(("runner_died".into(), false)));
    // The one who failed is alive, so it is that one's to do; then it is gone too.
    place.engine.broken = None;
    place.me = Owner::claim(&place.state).unwrap();
    assert_eq!(place.recover().await.cleaned, ["a"]);
    assert_eq!(place.has("a"), NOTHING);
    assert_eq!(place.cause("a").await, Some(("runner_died".into(), true)));
}

#[tokio::test]
async fn leftovers_of_ended_sessions_go_and_kept_ones_stay_while_they_run() {
    let mut place = Place::new();
    for (id, keep) in [("ended", false), ("kept", true), ("folder", false)] {
        place.session(id, None, keep).await;
    }
    place.end("ended", false).await;
    place.end("kept", false).await;
    place.engine.containers.lock().unwrap().retain(|c| c.name != "c-folder");
    place.end("folder", true).await;
    let mut cleaned = place.recover().await.cleaned;
    cleaned.sort();
    assert_eq!(cleaned, ["ended", "folder"]);
    assert_eq!((place.has("ended"), place.has("kept"), place.has("folder")), (NOTHING, ALL, NOTHING));
    assert_eq!(place.cause("ended").await, Some(("done".into(), true)));
    // Its PID 1 gave up waiting for a host.
    place.engine.containers.lock().unwrap()[0].running = false;
    assert_eq!(place.recover().await.cleaned, ["kept"]);
    assert_eq!(place.has("kept"), NOTHING);
}

#[tokio::test]
async fn a_container_that_appears_after_the_cleaning_is_removed() {
    let mut place = Place::new();
    place.session("a", None, false).await;
    place.engine.containers.lock().unwrap().clear();
    assert_eq!(place.recover().await.ended, ["a"]);
    place.engine.add("c-a", false);
    // A label alone proves nothing.
    let session = Some("a".to_owned());
    let other = FoundContainer { id: "x".into(), name: "another".into(), running: true, session };
    place.engine.containers.lock().unwrap().push(other);
    assert_eq!(place.recover().await.cleaned, ["a"]);
    assert_eq!(place.has("a"), NOTHING);
    assert!(place.engine.has("another"));
}

#[tokio::test]
async fn of_several_runners_one_recovers_and_the_old_driver_is_fenced() {
    let mut place = Place::new();
    place.session("a", None, false).await;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(place.state.root()).unwrap());
    let other = Owner::claim(&place.state).unwrap();
    let (one, two) = tokio::join!(
        recover(&place.store, &place.state, &place.me, &place.engine),
        recover(&store, &place.state, &other, &place.engine)
    );
    let ended = one.unwrap().ended.len() + two.unwrap().ended.len();
    assert_eq!(ended, 1);
    let old = Journal::new(Arc::clone(&place.store), place.keys["a"], Generation::FIRST);
    let fenced = old.record(&Event::Started(Started::default())).await;
    assert_eq!(fenced, Err(StoreError::Fenced { session: "a".into() }));
}

#[tokio::test]
async fn a_stop_of_a_dead_runners_session_is_recorded_as_one() {
    let mut place = Place::new();
    place.session("a", None, false).await;
    place.store.request_stop(place.keys["a"], "ann".into(), crate::store::StopHow::Orderly).await.unwrap();
    let session = place.store.session("a").await.unwrap();
    let done = recover_session(&place.store, &place.state, &place.me, &place.engine, &session, false).await.unwrap();
    assert_eq!(done.unwrap().ended, ["a"]);
    assert_eq!(place.cause("a").await, Some(("stopped".into(), true)));
    let session = place.store.session("a").await.unwrap();
    let done = recover_session(&place.store, &place.state, &place.me, &place.engine, &session, false).await.unwrap();
    assert_eq!(done, None);
}

/// bug 29, with a real engine: a foreign container with our labels or with our name is untouched.
#[tokio::test]
async fn on_a_real_engine_only_token_and_name_together_are_ours() {
    use bollard::models::{ContainerCreateBody, HostConfig};

    use crate::sandbox::image::{MINIMAL, Programs};
    use crate::sandbox::spec::{LABEL_SESSION, LABEL_TOKEN};
    use crate::state::random_hex;

    let engine = Engine::connect(None).await.expect("this test needs a Docker engine");
    if engine.image(MINIMAL).await.is_err() {
        engine.build_minimal(&Programs::find().unwrap()).await.unwrap();
    }
    let mut place = Place::new();
    for id in ["a", "b"] {
        place.session(id, None, false).await;
    }
    let token = place.state.token().to_owned();
    let (ours, label_only, name_only) = (random_hex(), random_hex(), random_hex());
    let create = async |name: &str, labels: &[(&str, &str)]| {
        let body = ContainerCreateBody {
            image: Some(MINIMAL.to_owned()),
            cmd: Some(vec!["sleep".to_owned(), "1000".to_owned()]),
            labels: Some(labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()),
            network_disabled: Some(true),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let id = engine.create(name, body).await.unwrap();
        engine.start(&id).await.unwrap();
        id
    };
    let of_ours = create(&ours, &[(LABEL_TOKEN, &token), (LABEL_SESSION, "a")]).await;
    let foreign = [
        create(&label_only, &[(LABEL_TOKEN, &token), (LABEL_SESSION, "a")]).await,
        create(&name_only, &[(LABEL_TOKEN, "0".repeat(32).as_str()), (LABEL_SESSION, "b")]).await,
    ];
    for (session, name) in [("a", &ours), ("b", &name_only)] {
        let container = Container { name: name.clone(), id: None };
        place.store.set_container(place.keys[session], Generation::FIRST, container).await.unwrap();
    }
    let containers = OnEngine::new(engine.clone(), &place.state);
    let done = recover(&place.store, &place.state, &place.me, &containers).await.unwrap();
    let gone = engine.inspect(&of_ours).await.is_err();
    let mut alive = Vec::new();
    for id in &foreign {
        alive.push(engine.inspect(id).await.is_ok_and(|found| found.pid.is_some()));
        engine.end(id).await.unwrap();
    }
    assert_eq!(done.ended.len(), 2);
    assert_eq!(done.problems, Vec::<String>::new());
    assert_eq!((gone, alive), (true, vec![true, true]));
}
