use std::time::Duration;

use serde_json::{Value, json};

use super::super::ps::tests::{Place, without_times};
use super::*;
use crate::session::journal::{EndCause, Returned, Status};
use crate::store::NewEvent;

fn args(session: &str, follow: bool, json: bool) -> LogsArgs {
    LogsArgs { session: session.into(), follow, full: false, json }
}

async fn shown(place: &Place, args: LogsArgs) -> (u8, String) {
    let mut out = Vec::new();
    let code = print(&place.records, &args, Style::PLAIN, &mut out).await.unwrap();
    (code, String::from_utf8(out).unwrap())
}

fn status(text: &str) -> Event {
    Event::Status(Status { text: text.into() })
}

#[tokio::test]
async fn a_journal_is_printed_for_people_and_for_programs() {
    let place = Place::new();
    let journal = place.session("s-1").await;
    journal.record(&status("half way\u{1b}[2J")).await.unwrap();
    let unknown = NewEvent { kind: "dreamt".into(), body: r#"{"of":"sheep"}"#.into(), ..NewEvent::default() };
    journal.store().append(journal.key(), journal.generation(), unknown).await.unwrap();
    // Long enough to be kept apart from its line.
    journal.record(&Event::Returned(Returned { value: json!("long ".repeat(10_000)) })).await.unwrap();
    journal.end(EndCause::Done, "it is done".into(), true).await.unwrap();

    let (code, text) = shown(&place, args("s-1", false, false)).await;
    assert_eq!(code, 0);
    insta::assert_snapshot!(without_times(&text).replace(&"long ".repeat(9_990), "…"), @r#"
    TIME started    hello
      say hello
    TIME status     half way\u{1b}[2J
    TIME line 3 of the journal (dreamt) cannot be understood by this runner: its kind is not known
    TIME returned
      "…long long long long long long long long long long "
    TIME ended      done it is done
    "#);

    let (_, text) = shown(&place, args("s", true, true)).await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "status", "dreamt", "returned", "ended"]);
    assert_eq!(lines[2]["body"], json!({"of": "sheep"}));
    assert_eq!(lines[3]["body"]["value"], "long ".repeat(10_000));
    assert_eq!(lines[1]["session"], "s-1");
}

#[tokio::test]
async fn a_follower_prints_everything_until_the_end() {
    let place = Place::new();
    let journal = place.session("s-1").await;
    let writing = async {
        for n in 0..700 {
            journal.record_later(&status(&n.to_string())).await;
            if n % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        journal.end(EndCause::Done, "done".into(), true).await.unwrap();
    };
    let following = shown(&place, args("s-1", true, true));
    let ((), (code, text)) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(writing, following) }).await.unwrap();
    assert_eq!(code, 0);
    let numbers: Vec<u64> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=702).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_follower_of_a_dead_runners_session_ends() {
    let place = Place::new();
    place.lost_session("s-1").await;
    let following = shown(&place, args("s-1", true, false));
    let (code, _) = tokio::time::timeout(Duration::from_secs(10), following).await.unwrap();
    assert_eq!(code, 1);
}

#[tokio::test]
async fn an_unknown_session_is_a_usage_error() {
    let place = Place::new();
    let error = print(&place.records, &args("x\u{1b}", false, false), Style::PLAIN, &mut Vec::new()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert_eq!(error.to_string(), r#"no session "x\u{1b}"; `runner ps --all` lists them"#);
}

/// CLI-29: a session of a fleet goes on, with another runner.
#[tokio::test]
async fn a_follower_of_a_fleets_session_stays_when_its_runner_dies() {
    let place = Place::new();
    let journal = place.orphan("s-1").await;
    let going_on = async {
        tokio::time::sleep(LOOK_AFTER + LOOK_AFTER / 2).await;
        journal.end(EndCause::Done, "done".into(), true).await.unwrap();
    };
    let following = shown(&place, args("s-1", true, true));
    let ((), (code, text)) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(going_on, following) }).await.unwrap();
    assert_eq!(code, 0);
    assert!(text.lines().last().unwrap().contains("ended"), "{text}");
}
