use super::super::ps::tests::{Fleet, Place, without_widths};
use super::*;

async fn shown(records: &Records, json: bool) -> String {
    let mut out = Vec::new();
    assert_eq!(list(records, Some("/p".into()), json, Style::PLAIN, &mut out).await.unwrap(), 0);
    without_widths(&String::from_utf8(out).unwrap())
}

/// CLI-5, CLI-25: of one project, or of all.
#[tokio::test]
async fn locks_are_listed() {
    let fleet = Fleet::new();
    fleet.waiting_root_and_queued_child().await;
    let records = &fleet.place.records;
    insta::assert_snapshot!(shown(records, false).await, @"
    RESOURCE  AGENT  SESSION  FENCE  HELD  LEFT
    lock://repo/main  root  root-1  1  TOOK  10 min TOOK
    ");
    insta::assert_snapshot!(shown(records, true).await, @r#"[{"resource":"lock://repo/main","session":"root-1","agent":"root","project":"/p","fence":1,"held_since":"TIME","expires_at":"TIME"}]"#);
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
