use super::super::ps::tests::Place;
use super::*;
use crate::store::{Lines, WaitOn, WaitRequest};
use crate::trigger::Filter;

/// A project with the sources `github` and `ours`.
fn project() -> (tempfile::TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    let config = "[webhooks.github]\ntype = \"github\"\n[webhooks.ours]\ntype = \"generic\"\n";
    std::fs::write(folder.path().join("config.toml"), config).unwrap();
    let project = Project::open(folder.path()).unwrap();
    (folder, project)
}

fn args(source: &str, json: bool) -> WebhookArgs {
    WebhookArgs { source: source.into(), event: "push".into(), file: "-".into(), project: None, json }
}

/// CLI-27: the event is kept, and wakes whoever waits for it once.
#[tokio::test]
async fn an_event_is_kept_and_wakes() {
    let (_folder, project) = project();
    let identity = project.root.display().to_string();
    let place = Place::new();
    let store = &*place.records.store;
    let seat = place.active_in(&identity, "s-1").await;
    let wait = WaitRequest {
        call: "s-1/1/0".into(),
        on: WaitOn::Webhook { sources: vec!["github".into()], event: None, filter: Filter::default() },
        timeout: 60_000,
        since: 0,
        most: 1,
        words: "any event from github".into(),
    };
    store.wait(seat, wait, Lines::none()).await.unwrap();
    let mut out = Vec::new();
    emit(store, &project, &args("ours", false), json!({"a": 1}), &mut out).await.unwrap();
    emit(store, &project, &args("github", false), json!({"a": 2}), &mut out).await.unwrap();
    emit(store, &project, &args("github", true), json!({"a": 3}), &mut out).await.unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
    event 1 is kept; no session waited for it
    event 2 woke s-1
    {"id":3,"woke":[]}
    "#);
    let kept = store.inbox(identity, 9).await.unwrap();
    assert_eq!(kept.iter().map(|event| event.raw["a"].clone()).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn an_unknown_source_is_refused_with_the_known_ones() {
    let (_folder, project) = project();
    let said = |name: &str| {
        let failure = source(&project, name).unwrap_err();
        format!("{} {}\n{}", failure.code, failure.message, failure.hint.unwrap())
    };
    assert_eq!(
        said("githup"),
        "2 no source of webhooks is named \"githup\"\ndid you mean github? the project has github, ours"
    );
    assert_eq!(said("x"), "2 no source of webhooks is named \"x\"\nthe project has github, ours");
}

/// CLI-27: what is no payload is not kept.
#[test]
fn a_payload_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("payload.json");
    let read = |text: &[u8]| {
        std::fs::write(&file, text).unwrap();
        payload(&file).map_err(|failure| failure.message.replace(&file.display().to_string(), "FILE"))
    };
    assert_eq!(read(b"{\"a\": 1}"), Ok(json!({"a": 1})));
    assert_eq!(read(b"[1]"), Err("FILE: it is JSON, but no object".into()));
    assert_eq!(read(b"{\"a\": "), Err("FILE: it is no JSON: EOF while parsing a value at line 1 column 6".into()));
    let mut large = vec![b' '; 25 * 1024 * 1024];
    large[..2].copy_from_slice(b"{}");
    assert_eq!(read(&large), Ok(json!({})));
    large.push(b' ');
    assert_eq!(read(&large), Err("FILE: it is larger than 25 MiB".into()));
    assert!(
        payload(&folder.path().join("none"))
            .unwrap_err()
            .message
            .ends_with("none: No such file or directory (os error 2)")
    );
}
