//! What requests do.

use super::*;
use crate::store::{SessionState, StopHow};

#[tokio::test]
async fn a_session_is_started_listed_shown_and_read() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let health = client.health().await.unwrap();
        assert_eq!((health.pid, health.project.as_str()), (std::process::id(), stage.project.as_str()));

        let new = NewStart {
            agent: "a".to_owned(),
            task: Some("look".to_owned()),
            copy_in: vec![CopyIn { from: "/etc/hostname".into(), to: "/tmp/h".to_owned() }],
            copy_out: vec![CopyOut { from: "/tmp/o".to_owned(), to: "/tmp".into() }],
            ..NewStart::default()
        };
        let id = client.start(&new).await.unwrap();
        assert_eq!(*stage.control.asked.borrow(), [new]);
        let other = stage.queue("b").await;

        let ids = |list: &Value| -> Vec<String> {
            let sessions = list["sessions"].as_array().unwrap();
            sessions.iter().map(|session| session["session"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(ids(&stage.get("/sessions").await), [other.id.clone(), id.clone()]);
        assert_eq!(ids(&stage.get("/sessions?agent=a").await), std::slice::from_ref(&id));
        assert_eq!(ids(&stage.get(&format!("/sessions?tree={}", other.id)).await), std::slice::from_ref(&other.id));
        assert_eq!(ids(&stage.get("/sessions?all=true&limit=1").await), std::slice::from_ref(&other.id));
        assert_eq!(ids(&stage.get("/queue").await), [id.clone(), other.id.clone()]);

        let shown = stage.get(&format!("/sessions/{}", &id[24..])).await;
        assert_eq!((&shown["session"], &shown["agent"], &shown["state"]), (&json!(id), &json!("a"), &json!("queued")));
        let lines = stage.get(&format!("/sessions/{id}/events")).await;
        assert_eq!(lines["events"][0]["kind"], "started");
        assert_eq!(lines["events"][0]["body"], json!({"task": "x"}));
        assert_eq!(stage.get(&format!("/sessions/{id}/events?after=1")).await, json!({"events": []}));
        assert_eq!(stage.get(&format!("/sessions/{id}/events?limit=0")).await, json!({"events": []}));
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_has_the_words_and_the_code_of_the_command_line() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let start = async |agent: &str| {
            let new = NewStart { agent: agent.to_owned(), ..NewStart::default() };
            client.start(&new).await.unwrap_err()
        };
        let failure = start("nobody").await;
        assert_eq!((failure.code, failure.message.as_str()), (2, "no agent \"nobody\""));
        assert_eq!(failure.hint.as_deref(), Some("the project has a"));
        assert_eq!(start("untrusted").await.code, 6);
        let (status, answer) = stage.ask("POST", "/sessions", "{\"agent\": \"untrusted\"}").await;
        assert_eq!(status, 403);
        assert_eq!(answer, json!({"error": "the image is not trusted", "hint": null, "code": 6}));
        let failure = client.stop("0000").await.unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (2, "no session \"0000\"; `runner ps --all` lists them"));
        let failure = client.pause(Some("nobody")).await.unwrap_err();
        assert_eq!((failure.code, failure.hint.as_deref()), (2, Some("the project has a")));
    })
    .await;
}

#[tokio::test]
async fn stop_and_kill_are_asked_for_in_the_store() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let (one, two) = (stage.queue("a").await, stage.queue("a").await);
        client.stop(&one.id).await.unwrap();
        client.kill(&two.id).await.unwrap();
        let requests = [&one, &two].map(|session| stage.store.stop_requested(session.key));
        let hows = futures_util::future::try_join_all(requests).await.unwrap();
        let hows: Vec<StopHow> = hows.into_iter().map(|request| request.unwrap().how).collect();
        assert_eq!(hows, [StopHow::Orderly, StopHow::Kill]);
        stage.heard().await;
        assert_eq!(stage.control.told.get().nudges, 2);
        let shown = stage.get(&format!("/sessions/{}", one.id)).await;
        assert!(shown["stop_requested_by"].is_string());
    })
    .await;
}

#[tokio::test]
async fn an_event_wakes_whom_it_concerns_and_says_so() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let (one, other) = (stage.waiting("a", "us/one").await, stage.waiting("b", "us/other").await);
        let waits = stage.get("/waits").await;
        assert_eq!(waits["waits"][0]["session"], one.id.as_str());
        assert_eq!(waits["waits"][0]["waiting_for"], "a pull request");

        let event = |source: &str| NewEmit {
            source: source.to_owned(),
            event: "pull_request".to_owned(),
            payload: json!({"action": "opened", "repository": {"full_name": "us/one"}}),
        };
        let emitted = client.emit(&event("github")).await.unwrap();
        assert_eq!(emitted.woke, std::slice::from_ref(&one.id));
        // A second one finds nobody.
        let again = client.emit(&event("github")).await.unwrap();
        assert!(again.id > emitted.id && again.woke.is_empty());
        assert_eq!(stage.store.session(&one.id).await.unwrap().state, SessionState::Woken);
        assert_eq!(stage.store.session(&other.id).await.unwrap().state, SessionState::Waiting);
        assert_eq!(stage.get("/queue").await["sessions"][0]["state"], "woken");
        let inbox = stage.get("/inbox").await;
        assert_eq!(inbox["events"][1]["woke"], json!([one.id]));
        assert_eq!(inbox["events"][1]["fields"]["repo"], "us/one");

        // By its type alone a source is found when it is the only one.
        client.emit(&event("sentry")).await.unwrap();
        for wrong in ["generic", "gitlab", ""] {
            let failure = client.emit(&event(wrong)).await.unwrap_err();
            assert_eq!(failure.code, 2);
            assert_eq!(failure.hint.as_deref(), Some("the project has app, github, one, two"), "{wrong}");
        }
        assert_eq!(stage.get("/inbox?limit=10").await["events"].as_array().unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn agents_and_the_project_are_paused() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let paused = async || {
            let queue = stage.get("/queue").await;
            (queue["paused"].clone(), queue["paused_agents"].clone())
        };
        client.pause(Some("a")).await.unwrap();
        assert_eq!(paused().await, (json!(false), json!(["a"])));
        client.pause(None).await.unwrap();
        assert_eq!(paused().await, (json!(true), json!(["a"])));
        client.unpause(Some("a")).await.unwrap();
        assert_eq!(stage.ask("POST", "/unpause", "").await, (204, Value::Null));
        assert_eq!(paused().await, (json!(false), json!([])));
        client.drain().await.unwrap();
        client.nudge().await.unwrap();
        stage.heard().await;
        assert_eq!(stage.control.told.get(), Told { nudges: 5, drains: 1 });
        assert_eq!(stage.get("/locks").await, json!({"locks": []}));
        assert_eq!(stage.get("/calls").await, json!({"calls": []}));
    })
    .await;
}

#[tokio::test]
async fn sessions_of_other_projects_are_not_there() {
    staged(Deadlines::USUAL, async |stage| {
        let foreign = queue(&*stage.store, "/another", "a").await;
        for (method, path) in [("GET", ""), ("GET", "/events"), ("POST", "/stop"), ("POST", "/kill")] {
            let (status, answer) = stage.ask(method, &format!("/sessions/{}{path}", foreign.id), "").await;
            assert_eq!((status, &answer["code"]), (404, &json!(2)), "{path}");
        }
        assert_eq!(stage.get("/sessions?all=true").await, json!({"sessions": []}));
        assert_eq!(stage.store.stop_requested(foreign.key).await.unwrap(), None);
    })
    .await;
}
