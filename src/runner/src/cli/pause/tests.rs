use super::super::ps::tests::Place;
use super::*;

/// CLI-28: by name or all of it, and never a mistyped name.
#[tokio::test]
async fn agents_are_paused_by_name_or_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.toml"), "projectName = \"mine\"\n").unwrap();
    for name in ["review", "notes"] {
        let agent = folder.path().join("agents").join(name);
        std::fs::create_dir_all(&agent).unwrap();
        std::fs::write(agent.join("SKILL.md"), "").unwrap();
    }
    let project = Project::open(folder.path()).unwrap();
    let place = Place::new();
    let store = &*place.records.store;
    let mut said = Vec::new();
    for (agent, paused) in [
        (Some("review"), true),
        (None, true),
        (None, false),
        (Some("reviev"), true),
        (Some("x"), false),
        (Some("review"), false),
    ] {
        said.push(match set(store, &project, agent.map(str::to_owned), paused).await {
            Ok(said) => said,
            Err(failure) => {
                let message = failure.message.replace(&project.root.display().to_string(), "PROJECT");
                format!("{}: {message} [{}]", failure.code, failure.hint.unwrap())
            }
        });
    }
    insta::assert_snapshot!(said.join("\n"), @"
    agent review is paused: no new session starts, those at work go on
    project mine is paused: no new session starts, those at work go on
    project mine is not paused; still paused: review
    2: PROJECT has no agent `reviev` [did you mean review?]
    2: PROJECT has no agent `x` [did you mean notes, review?]
    agent review is not paused
    ");
    // One that was removed while it was paused.
    let identity = project.root.display().to_string();
    store.pause_agent(identity.clone(), Some("gone".into()), true).await.unwrap();
    set(store, &project, Some("gone".into()), false).await.unwrap();
    assert_eq!(store.paused_agents(identity).await.unwrap(), Vec::<String>::new());
}
