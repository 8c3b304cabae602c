use super::super::ps::tests::{Fleet, Place, without_widths};
use super::*;

async fn shown(records: &Records, json: bool) -> String {
    let mut out = Vec::new();
    assert_eq!(list(records, Some("/p".into()), json, Style::PLAIN, &mut out).await.unwrap(), 0);
    without_widths(&String::from_utf8(out).unwrap())
}

/// CLI-5, CLI-25: of one project, or of all.
#[tokio::test]
async fn what_has_no_slot_is_listed() {
    let fleet = Fleet::new();
    fleet.waiting_root_and_queued_child().await;
    let records = &fleet.place.records;
    insta::assert_snapshot!(shown(records, false).await, @"
    SESSION  AGENT  STATE  CALLER  STARTED  AGE
    child-1  child  queued  root-1  TIME  TOOK
    ");
    insta::assert_snapshot!(shown(records, true).await, @r#"[{"session":"child-1","agent":"child","project":"/p","parent":"root-1","state":"queued","waiting_for":null,"paused":false,"status":null,"lock":null,"tokens":0,"overcommit":false,"started_at":"TIME","ended_at":null,"cause":null,"exit_code":null,"message":null,"stop_requested_by":null,"container":null,"sandbox_kept":false}]"#);
    let mut out = Vec::new();
    list(records, Some("/other".into()), true, Style::PLAIN, &mut out).await.unwrap();
    assert_eq!(out, b"[]\n");
    list(records, None, true, Style::PLAIN, &mut out).await.unwrap();
    assert_eq!(without_widths(&String::from_utf8(out).unwrap()), format!("[]\n{}", shown(records, true).await));
}

#[tokio::test]
async fn nothing_is_a_heading() {
    assert_eq!(shown(&Place::new().records, false).await.lines().count(), 1);
}

/// CLI-28: whoever wonders why nothing starts is told.
#[tokio::test]
async fn paused_agents_are_named() {
    let place = Place::new();
    place.queued("s-1").await;
    let store = &place.records.store;
    store.pause_agent("/p".into(), Some("hello".into()), true).await.unwrap();
    let said = shown(&place.records, false).await;
    assert!(said.ends_with("\npaused: hello of /p; `runner unpause AGENT` lets one go on\n"), "{said}");
    store.pause_agent("/p".into(), None, true).await.unwrap();
    let said = shown(&place.records, false).await;
    assert!(said.ends_with("\npaused: all of /p; `runner unpause` lets it go on\n"), "{said}");
}
