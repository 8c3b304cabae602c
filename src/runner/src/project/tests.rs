//! Projects as people write them, right and wrong.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::sandbox::limits::{Limits, Wanted};

/// A folder with these files.
pub(super) fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    place
}

pub(super) const MODEL: &str = "[models.main]\nprovider = \"script\"\nfile = \"turns.json\"\n";

/// Loads the agent `a` and gives its error with the hint, without the folder's changing name.
pub(super) fn complaint(project: &str, agent: &str) -> String {
    let place = place(&[("config.toml", project), ("agents/a/SKILL.md", "Do."), ("agents/a/config.toml", agent)]);
    let root = place.path().canonicalize().unwrap();
    let error = Project::open(&root).and_then(|project| project.agent("a")).unwrap_err();
    let text = match error.hint() {
        Some(hint) => format!("{error} [{hint}]"),
        None => error.to_string(),
    };
    text.replace(root.to_str().unwrap(), "").replace(root.file_name().unwrap().to_str().unwrap(), "NAME")
}

#[test]
fn an_agent_takes_the_projects_settings_and_its_own() {
    let project = format!(
        "bashTimeout = 60\norphanGrace = 30\nmaxTurns = 7\nprojectName = \"demo\"\n{MODEL}\
         [local]\nmemory = \"2g\"\ntimeout = 100\npids = 100\nruntime = \"crun\"\ncpus = 0.5\n"
    );
    let own = "timeout = 50\nmaxTokens = 1000\n[params]\nrepo = \"x/y\"\nn = [1, 2.5, true]\nd = 2024-01-01\n\
               [local]\nimage = \"my/image:1\"\npids = 200\ntmpSize = \"100m\"\n";
    let place = place(&[
        ("config.toml", &project),
        ("agents/a/SKILL.md", "---\nname: a\n---\nDo it.\n"),
        ("agents/a/config.toml", own),
    ]);
    let root = place.path().canonicalize().unwrap();
    let project = Project::find(&root.join("agents/a")).unwrap();
    assert_eq!((project.root.as_path(), project.name.as_str()), (root.as_path(), "demo"));
    let agent = Agent {
        name: "a".to_owned(),
        folder: root.join("agents/a"),
        skill: Skill { name: Some("a".to_owned()), body: "Do it.".to_owned(), ..Skill::default() },
        params: json!({"repo": "x/y", "n": [1, 2.5, true], "d": "2024-01-01"}),
        models: vec![ModelSettings {
            name: "main".to_owned(),
            source: ModelSource::Script { file: root.join("turns.json") },
        }],
        settings: Settings {
            image: "my/image:1".to_owned(),
            limits: Limits { memory: 2 << 30, milli_cpus: 500, pids: 200, tmp_size: 100 << 20, tmp_inodes: 131_072 },
            runtime: Some("crun".to_owned()),
            timeout: Duration::from_secs(50),
            bash_timeout: Duration::from_mins(1),
            orphan_grace: 30,
            max_turns: 7,
            max_tokens: Some(1000),
            scale: 1,
            queue: 100,
            wait_timeout: Duration::from_mins(30),
            on_caller_exit: OnCallerExit::Cancel,
            on_sandbox_lost: OnSandboxLost::Fail,
            schedule: None,
        },
    };
    assert_eq!(project.agent("a").unwrap(), agent);
    assert_eq!(project.agent(root.join("agents/a").to_str().unwrap()).unwrap(), agent);
}

#[test]
fn everything_has_a_default() {
    let place = place(&[("config.toml", &format!("local.cpus = 1\n{MODEL}")), ("agents/a/SKILL.md", "Do.")]);
    let settings = Project::open(place.path()).unwrap().agent("a").unwrap().settings;
    assert_eq!(
        settings,
        Settings {
            image: "runner/minimal".to_owned(),
            limits: Limits::resolve(&Wanted { cpus: Some(1.0), ..Wanted::default() }, 1).unwrap(),
            runtime: None,
            timeout: Duration::from_mins(15),
            bash_timeout: Duration::from_mins(2),
            orphan_grace: 600,
            max_turns: 200,
            max_tokens: None,
            scale: 1,
            queue: 100,
            wait_timeout: Duration::from_mins(30),
            on_caller_exit: OnCallerExit::Cancel,
            on_sandbox_lost: OnSandboxLost::Fail,
            schedule: None,
        }
    );
}

/// bug 38: a limit of 1, 0, negative or absurd is an error that names the key and the range.
#[test]
fn limits_out_of_range_name_the_key_and_the_range() {
    let local = |line: &str| complaint(&format!("{MODEL}[local]\n{line}\n"), "");
    insta::assert_snapshot!(local("memory = \"1m\""), @r#"/config.toml:5:10: local.memory is "1m"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = 0"), @r#"/config.toml:5:10: local.memory is "0"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = \"lots\""), @r#"/config.toml:5:10: local.memory is "lots"; it must be a size like "512m" or "4g""#);
    insta::assert_snapshot!(local("cpus = 0"), @"/config.toml:5:8: local.cpus is 0; it must be 0.1 to 2, the host's number of processors");
    insta::assert_snapshot!(local("pids = 1"), @"/config.toml:5:8: local.pids is 1; it must be 16 to 65536");
    insta::assert_snapshot!(local("pids = -5"), @"/config.toml:5:8: local.pids is -5; it must be 16 to 65536");
    insta::assert_snapshot!(local("tmpSize = \"3g\""), @"/config.toml:5:11: local.tmpSize is 3g; with the 16m of /dev/shm it must be at most half of local.memory (4g), so at most 2032m");
    insta::assert_snapshot!(local("memory = \"64m\"\ntmpSize = \"17m\""), @"/config.toml:6:11: local.tmpSize is 17m; with the 16m of /dev/shm it must be at most half of local.memory (64m), so at most 16m");
    insta::assert_snapshot!(local("tmpInodes = 0"), @"/config.toml:5:13: local.tmpInodes is 0; it must be 64 to 100000000");
    insta::assert_snapshot!(local("timeout = 0"), @"/config.toml:5:11: `local.timeout` must be a whole number of seconds in 1–604800, not 0");
    insta::assert_snapshot!(local("timeout = 604801"), @"/config.toml:5:11: `local.timeout` must be a whole number of seconds in 1–604800, not 604801");
    insta::assert_snapshot!(local("timeout = 1.5"), @"/config.toml:5:11: `local.timeout` must be a whole number of seconds in 1–604800, not 1.5");
    insta::assert_snapshot!(local("image = \"a b\""), @r#"/config.toml:5:9: `local.image` is not a usable name: "a b""#);
    assert!(local("cpus = 100000").contains("local.cpus is "), "{}", local("cpus = 100000"));
    assert!(local("cpus = nan").contains("local.cpus is "), "{}", local("cpus = nan"));
    let agent = |line: &str| complaint(MODEL, line);
    insta::assert_snapshot!(agent("bashTimeout = 0"), @"/agents/a/config.toml:1:15: `bashTimeout` must be a whole number of seconds in 1–604800, not 0");
    insta::assert_snapshot!(agent("maxTurns = 0"), @"/agents/a/config.toml:1:12: `maxTurns` must be a whole number from 1 up, not 0");
    insta::assert_snapshot!(agent("maxTokens = -1"), @"/agents/a/config.toml:1:13: `maxTokens` must be a whole number from 1 up, not -1");
    insta::assert_snapshot!(complaint("orphanGrace = 5", ""), @"/config.toml:1:15: `orphanGrace` must be a whole number of seconds in 10–86400, not 5");
    insta::assert_snapshot!(complaint("orphanGrace = 99999999999999999999999", ""), @"/config.toml:1:15: `orphanGrace` must be a whole number of seconds in 10–86400, not 99999999999999999999999");
}

#[test]
fn limits_are_checked_across_files() {
    let project = format!("{MODEL}[local]\ntmpSize = \"1g\"\n");
    insta::assert_snapshot!(complaint(&project, "[local]\nmemory = \"1g\"\n"), @"/agents/a/config.toml:2:10: local.tmpSize is 1g; with the 16m of /dev/shm it must be at most half of local.memory (1g), so at most 496m");
}

#[test]
fn unknown_and_unbuilt_keys_are_refused_by_name() {
    insta::assert_snapshot!(complaint("orphangrace = 60", ""), @"/config.toml:1:1: unknown key `orphangrace` [did you mean `orphanGrace`?]");
    insta::assert_snapshot!(complaint("[local]\nmemroy = \"1g\"", ""), @"/config.toml:2:1: unknown key `local.memroy` [did you mean `local.memory`?]");
    insta::assert_snapshot!(complaint("zzz = 1", ""), @"/config.toml:1:1: unknown key `zzz` [known here: models, local, bashTimeout, orphanGrace, maxTurns, maxTokens, projectName, scale, defaultAgentScale, maxCallDepth, workQueueSize, resourceLockTimeout, defaultWaitTimeout, maxSuspended, onCallerExit, historyRetentionDays, timezone, webhooks]");
    insta::assert_snapshot!(complaint("unattended = true", ""), @"/config.toml:1:1: `unattended` is not supported yet [remove it; a key is never ignored silently]");
    insta::assert_snapshot!(complaint("[gateway]\nport = 1", ""), @"/config.toml:1:2: `gateway` is not supported yet [remove it; a key is never ignored silently]");
    insta::assert_snapshot!(complaint(MODEL, "[local]\ntimeout = 5"), @"/agents/a/config.toml:2:1: unknown key `local.timeout` [`timeout` belongs above the first [section]]");
    insta::assert_snapshot!(complaint(MODEL, "hooks = 1"), @"/agents/a/config.toml:1:1: `hooks` is not supported yet [remove it; a key is never ignored silently]");
    insta::assert_snapshot!(complaint(MODEL, "[[tools]]\nname = \"bash\""), @"/agents/a/config.toml:1:3: `tools` is not supported yet [remove it; a key is never ignored silently]");
    for key in ["limits", "credentials", "webhooks", "hooks", "skills", "runtime", "source"] {
        let said = complaint(MODEL, &format!("{key} = 1"));
        assert!(said.contains(&format!("config.toml:1:1: `{key}` is not supported yet")), "{said}");
    }
}

/// What is easily written at the wrong place is sent to the right one.
#[test]
fn keys_at_the_wrong_place_are_sent_to_the_right_one() {
    insta::assert_snapshot!(complaint("[local]\nmaxTurns = 3", ""), @"/config.toml:2:1: unknown key `local.maxTurns` [`maxTurns` belongs above the first [section]]");
    insta::assert_snapshot!(complaint(&format!("{MODEL}maxTurns = 3"), ""), @"/config.toml:4:1: unknown key `models.main.maxTurns` [`maxTurns` belongs above the first [section]]");
    // The words before the hint are the parser's.
    let said = complaint(&format!("models = [\"main\"]\n{MODEL}"), "");
    assert!(
        said.ends_with("[a list `models = […]` belongs into an agent's config.toml; here are the models themselves]"),
        "{said}"
    );
    // A key that would be refused is no help.
    insta::assert_snapshot!(complaint(MODEL, "hook = 1"), @"/agents/a/config.toml:1:1: unknown key `hook` [known here: models, params, local, timeout, bashTimeout, maxTurns, maxTokens, scale, maxWorkQueueSize, waitTimeout, onCallerExit, onSandboxLost, schedule, timezone]");
    for key in ["apiKey", "api_key", "token", "key"] {
        let said = complaint(&format!("[models.x]\nprovider = \"google\"\nmodel = \"m\"\n{key} = \"sk-secret\""), "");
        let what = format!("/config.toml:4:1: `models.x.{key}`: keys never stand in a project");
        assert!(said.starts_with(&what) && !said.contains("sk-secret"), "{said}");
        assert!(
            said.contains("GEMINI_API_KEY or into ~/.config/runner/credentials/google_key/default/token"),
            "{said}"
        );
    }
}

#[test]
fn broken_toml_is_named_with_line_and_column() {
    insta::assert_snapshot!(complaint("a = \n", ""), @"/config.toml:1:5: string values must be quoted, expected literal string");
    insta::assert_snapshot!(complaint("[local]\npids = 20\npids = 30\n", ""), @"/config.toml:3:1: duplicate key");
    insta::assert_snapshot!(complaint("local = 3", ""), @"/config.toml:1:9: `local` must be a table, not 3");
    insta::assert_snapshot!(complaint("[models]\na = 3", ""), @"/config.toml:2:1: `models.a` must be a table");
}

#[test]
fn unknown_agents_get_near_names() {
    let place = place(&[("config.toml", MODEL), ("agents/hello/SKILL.md", "x"), ("agents/review/SKILL.md", "x")]);
    let root = place.path().canonicalize().unwrap();
    let project = Project::open(&root).unwrap();
    let near = |name: &str| match project.agent(name).unwrap_err() {
        ProjectError::UnknownAgent { near, .. } => near,
        other => panic!("{other}"),
    };
    assert_eq!(near("helo"), ["hello"]);
    assert_eq!(near("zzz"), ["hello", "review"]);
    assert_eq!(near("Hello"), ["hello"]);
    // A folder that is no agent is not meant.
    std::fs::create_dir(root.join("agents/helloo")).unwrap();
    assert_eq!(near("helo"), ["hello"]);
    std::fs::create_dir(root.join("agents/Bad_Name")).unwrap();
    let error = project.agent("Bad_Name").unwrap_err().to_string();
    assert!(error.contains("cannot be an agent: its name is \"Bad_Name\""), "{error}");
}

#[test]
fn folders_that_are_no_agents_say_why() {
    let place = place(&[
        ("config.toml", MODEL),
        ("agents/bare/notes", ""),
        ("agents/manifest/agent.yaml", ""),
        ("agents/empty/SKILL.md", "---\nname: empty\n---\n"),
        ("agents/small/skill.md", "Do."),
        ("agents/other/SKILL.md", "---\nname: else\n---\nDo.\n"),
        ("Bad Name/SKILL.md", "Do."),
    ]);
    let root = place.path().canonicalize().unwrap();
    let project = Project::open(&root).unwrap();
    let said = |name: &str| {
        let error = project.agent(name).unwrap_err();
        format!("{error} [{}]", error.hint().unwrap_or_default()).replace(root.to_str().unwrap(), "")
    };
    insta::assert_snapshot!(said("bare"), @"/agents/bare: is not an agent: it has no SKILL.md [write its instructions into SKILL.md]");
    insta::assert_snapshot!(said("small"), @"/agents/small: is not an agent: `skill.md` is not SKILL.md [rename it: mv skill.md SKILL.md]");
    insta::assert_snapshot!(said("manifest"), @"/agents/manifest/agent.yaml: manifests are not supported yet [write a SKILL.md and a config.toml beside it]");
    insta::assert_snapshot!(said("empty"), @"/agents/empty/SKILL.md: has no instructions [write below the front matter what the agent is to do]");
    insta::assert_snapshot!(said("other"), @r#"/agents/other/SKILL.md: `name` is "else", but the folder is "other" [make them equal, or drop `name`]"#);
    insta::assert_snapshot!(said(root.join("Bad Name").to_str().unwrap()), @r#"/Bad Name: cannot be an agent: its name is "Bad Name" [names are lower-case letters and digits with single hyphens between, at most 64]"#);
}

#[test]
fn a_folder_without_a_project_is_named() {
    let place = place(&[("sub/x", "")]);
    let root = place.path().canonicalize().unwrap();
    assert_eq!(Project::open(&root.join("sub")).unwrap_err(), ProjectError::NotAProject(root.join("sub")));
    assert!(matches!(Project::find(Path::new("/")), Err(ProjectError::NoProject(path)) if path == Path::new("/")));
}
