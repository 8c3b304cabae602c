use super::super::ps::tests::{Fleet, Place, without_times};
use super::*;
use crate::session::journal::{Assistant, Call, EndCause, Returned, ToolFinished};

async fn shown(place: &Place, json: bool, script: bool) -> String {
    let mut out = Vec::new();
    let args = ShowArgs { session: "s-1".into(), json, script };
    assert_eq!(print(&place.records, &args, Style::PLAIN, &mut out).await.unwrap(), 0);
    String::from_utf8(out).unwrap()
}

async fn worked() -> Place {
    let place = Place::new();
    let journal = place.session("s-1").await;
    let usage = Usage { input: 100, cached: 40, output: 7 };
    let call = Call {
        key: "s-1/1/0".into(),
        provider_id: "toolu_1".into(),
        name: "bash".into(),
        args: json!({"command": "echo hello"}),
    };
    let first = Assistant { turn: 1, text: "I try.".into(), calls: vec![call], usage, ..Assistant::default() };
    let failed = ToolFinished { key: "s-1/1/0".into(), is_error: true, ..ToolFinished::default() };
    let second = Assistant { turn: 2, text: "hello\nstate       \u{9b}forged".into(), usage, ..Assistant::default() };
    for event in [
        Event::Assistant(first),
        Event::ToolFinished(failed),
        Event::Assistant(second),
        Event::Returned(Returned { value: json!({"said": "hello"}) }),
    ] {
        journal.record(&event).await.unwrap();
    }
    journal.end(EndCause::Done, "the model stopped calling tools".into(), true).await.unwrap();
    place
}

#[tokio::test]
async fn a_session_is_summed_up() {
    let place = worked().await;
    insta::assert_snapshot!(without_times(&shown(&place, false, false).await), @r#"
    session     s-1
    agent       hello
    project     /p
    state       done (exit code 0): the model stopped calling tools
    started     TIME
    ended       TIME, after TOOK
    turns       2, 1 call (1 failed)
    tokens      200 in (80 cached), 14 out
    task        say hello
    answer      hello
                state       \u{9b}forged
    returned    {"said":"hello"}
    "#);
    let object: Value = serde_json::from_str(&shown(&place, true, false).await).unwrap();
    assert_eq!(object["tokens"], json!({"input": 200, "cached": 80, "output": 14}));
    assert_eq!((&object["turns"], &object["calls"], &object["failed_calls"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(object["answer"], "hello\nstate       \u{9b}forged");
    assert_eq!(object["returned"], json!({"said": "hello"}));
}

#[tokio::test]
async fn a_recorded_session_becomes_a_script() {
    let place = worked().await;
    let script: Value = serde_json::from_str(&shown(&place, false, true).await).unwrap();
    assert_eq!(
        script,
        json!({"turns": [
            {
                "text": "I try.",
                "calls": [{"id": "t1c1", "tool": "bash", "args": {"command": "echo hello"}}],
                "expect": {"t1c1": {"is_error": true}},
                "usage": {"input": 100, "cached": 40, "output": 7}
            },
            {
                "text": "hello\nstate       \u{9b}forged",
                "usage": {"input": 100, "cached": 40, "output": 7}
            },
        ]})
    );
}

/// CLI-24: a session's place among others.
#[tokio::test]
async fn a_session_of_a_fleet_is_shown() {
    let fleet = Fleet::new();
    fleet.waiting_root_and_queued_child().await;
    let shown = async |id: &str, json: bool| {
        let mut out = Vec::new();
        let args = ShowArgs { session: id.into(), json, script: false };
        assert_eq!(print(&fleet.place.records, &args, Style::PLAIN, &mut out).await.unwrap(), 0);
        without_times(&String::from_utf8(out).unwrap())
    };
    insta::assert_snapshot!(shown("root-1", false).await, @"
    session     root-1
    agent       root
    project     /p
    state       waiting for any event from github
    started     TIME
    container   c0ffee
    status      reading mail
    turns       0, 0 calls (0 failed)
    tokens      0 in (0 cached), 0 out
    tree        2 sessions below and with root-1, 0 tokens of at most 5000
    called      child child-1: queued
    waits for   any event from github, until TIME (paused)
    lock        lock://repo/main, until TIME, fence 1
    ");
    insta::assert_snapshot!(shown("child-1", false).await, @"
    session     child-1
    agent       child
    project     /p
    state       queued
    started     TIME
    turns       0, 0 calls (0 failed)
    tokens      0 in (0 cached), 0 out
    called by   root root-1
    tree        2 sessions below and with root-1, 0 tokens of at most 5000
    serves      root root-1
    ");
    let object: Value = serde_json::from_str(&shown("root-1", true).await).unwrap();
    assert_eq!(object["tree"], json!({"root": "root-1", "sessions": 2, "tokens": 0, "max_tokens": 5000}));
    assert_eq!(object["called"], json!([{"session": "child-1", "agent": "child", "state": "queued", "tokens": 0}]));
    assert_eq!(object["calls_made"][0]["session"], "child-1");
    assert_eq!(object["wait"]["waiting_for"], "any event from github");
    assert_eq!(object["lock"]["resource"], "lock://repo/main");
}
