//! The keys that concern a fleet, right and wrong.

use std::time::Duration;

use super::tests::{MODEL, complaint, place};
use super::*;

fn open(config: &str, agent: &str) -> (FleetSettings, Settings) {
    let place = place(&[("config.toml", config), ("agents/a/SKILL.md", "Do."), ("agents/a/config.toml", agent)]);
    let project = Project::open(place.path()).unwrap();
    (project.fleet().clone(), project.agent("a").unwrap().settings)
}

/// S-NUM-1: the numbers a fleet uses when nobody says otherwise.
#[test]
fn a_fleet_has_defaults() {
    let (fleet, agent) = open(MODEL, "");
    assert_eq!((fleet.scale, fleet.agent_scale, fleet.max_call_depth, fleet.max_suspended), (None, 1, 3, 50));
    assert_eq!((fleet.lock_timeout, fleet.history), (Duration::from_mins(30), Duration::from_hours(14 * 24)));
    assert_eq!(fleet.sources, []);
    assert_eq!((agent.scale, agent.queue, agent.wait_timeout), (1, 100, Duration::from_mins(30)));
    assert_eq!((agent.on_caller_exit, agent.on_sandbox_lost), (OnCallerExit::Cancel, OnSandboxLost::Fail));
    assert_eq!((agent.timeout, agent.max_turns, agent.max_tokens), (Duration::from_mins(15), 200, None));
    assert_eq!(agent.schedule, None);
}

#[test]
fn a_project_says_otherwise_and_an_agent_too() {
    let project = "scale = 4\ndefaultAgentScale = 2\nmaxCallDepth = 0\nworkQueueSize = 7\nresourceLockTimeout = 60\n\
                   defaultWaitTimeout = \"1h30m\"\nmaxSuspended = 1\nonCallerExit = \"detach\"\n\
                   historyRetentionDays = 30\ntimezone = \"Europe/Berlin\"\n[webhooks.github]\ntype = \"github\"\n\
                   [webhooks.ours_2]\ntype = \"generic\"\n";
    let project = format!("{project}{MODEL}");
    let (fleet, agent) = open(&project, "schedule = \"0 9 * * *\"\n");
    assert_eq!((fleet.scale, fleet.agent_scale, fleet.max_call_depth, fleet.max_suspended), (Some(4), 2, 0, 1));
    assert_eq!((fleet.lock_timeout, fleet.history), (Duration::from_mins(1), Duration::from_hours(30 * 24)));
    let source = |name: &str, provider| WebhookSource { name: name.to_owned(), provider };
    assert_eq!(fleet.sources, [source("github", WebhookProvider::Github), source("ours_2", WebhookProvider::Generic)]);
    assert_eq!((agent.scale, agent.queue, agent.wait_timeout), (2, 7, Duration::from_mins(90)));
    assert_eq!(agent.on_caller_exit, OnCallerExit::Detach);
    assert_eq!(agent.schedule.unwrap().zone(), "Europe/Berlin");

    let own = "scale = 0\nmaxWorkQueueSize = 1\nwaitTimeout = 3600\nonCallerExit = \"cancel\"\n\
               onSandboxLost = \"restart\"\nschedule = \"0 30 9 * * *\"\ntimezone = \"America/New_York\"\n";
    let (_, agent) = open(&project, own);
    assert_eq!((agent.scale, agent.queue, agent.wait_timeout), (0, 1, Duration::from_hours(1)));
    assert_eq!((agent.on_caller_exit, agent.on_sandbox_lost), (OnCallerExit::Cancel, OnSandboxLost::Restart));
    let schedule = agent.schedule.unwrap();
    assert_eq!((schedule.pattern.as_str(), schedule.zone()), ("0 30 9 * * *", "America/New_York"));
    assert_eq!(schedule.next(1_767_225_600_000), Some(1_767_277_800_000), "2026-01-01, half past nine in New York");
}

#[test]
fn scales_of_all_agents() {
    let place = place(&[
        ("config.toml", &format!("defaultAgentScale = 3\n{MODEL}")),
        ("agents/a/SKILL.md", "Do."),
        ("agents/b/SKILL.md", "Do."),
        ("agents/b/config.toml", "scale = 0"),
        ("agents/broken/SKILL.md", ""),
    ]);
    let project = Project::open(place.path()).unwrap();
    let scales = [("a", 3), ("b", 0), ("broken", 3)].map(|(name, scale)| (name.to_owned(), scale));
    assert_eq!(project.agent_scales(), scales.into());
    assert_eq!(project.agent_names(), ["a", "b", "broken"]);
}

/// bug 38: numbers out of range name the key and the range.
#[test]
fn numbers_out_of_range_name_the_key_and_the_range() {
    let project = |line: &str| complaint(line, "");
    insta::assert_snapshot!(project("scale = -1"), @"/config.toml:1:9: `scale` must be a whole number in 0–4294967295, not -1");
    insta::assert_snapshot!(project("scale = 4294967296"), @"/config.toml:1:9: `scale` must be a whole number in 0–4294967295, not 4294967296");
    insta::assert_snapshot!(project("defaultAgentScale = -1"), @"/config.toml:1:21: `defaultAgentScale` must be a whole number in 0–4294967295, not -1");
    insta::assert_snapshot!(project("maxCallDepth = 33"), @"/config.toml:1:16: `maxCallDepth` must be a whole number in 0–32, not 33");
    insta::assert_snapshot!(project("workQueueSize = 0"), @"/config.toml:1:17: `workQueueSize` must be a whole number in 1–100000, not 0");
    insta::assert_snapshot!(project("workQueueSize = 100001"), @"/config.toml:1:17: `workQueueSize` must be a whole number in 1–100000, not 100001");
    insta::assert_snapshot!(project("resourceLockTimeout = 0"), @"/config.toml:1:23: `resourceLockTimeout` must be a whole number of seconds in 1–86400, not 0");
    insta::assert_snapshot!(project("resourceLockTimeout = 86401"), @"/config.toml:1:23: `resourceLockTimeout` must be a whole number of seconds in 1–86400, not 86401");
    insta::assert_snapshot!(project("defaultWaitTimeout = \"31d\""), @r#"/config.toml:1:22: `defaultWaitTimeout` must be a time from 1s to 30d, not "31d" [whole numbers with the units d, h, m and s, each at most once and the larger first: "45s", "30m", "1h30m", "2d", or a whole number of seconds]"#);
    insta::assert_snapshot!(project("defaultWaitTimeout = \"0s\""), @r#"/config.toml:1:22: `defaultWaitTimeout` must be a time from 1s to 30d, not "0s" [whole numbers with the units d, h, m and s, each at most once and the larger first: "45s", "30m", "1h30m", "2d", or a whole number of seconds]"#);
    insta::assert_snapshot!(project("defaultWaitTimeout = true"), @"/config.toml:1:22: `defaultWaitTimeout` must be a string or a whole number, not true");
    insta::assert_snapshot!(project("maxSuspended = 0"), @"/config.toml:1:16: `maxSuspended` must be a whole number in 1–4294967295, not 0");
    insta::assert_snapshot!(project("onCallerExit = \"stop\""), @r#"/config.toml:1:16: `onCallerExit` must be "cancel" or "detach", not "stop""#);
    insta::assert_snapshot!(project("historyRetentionDays = 0"), @"/config.toml:1:24: `historyRetentionDays` must be a whole number of days in 1–36500, not 0");
    insta::assert_snapshot!(project("timezone = \"Mars/Base\""), @r#"/config.toml:1:12: no time zone is called "Mars/Base" [name one of the tz database, such as "UTC" or "Europe/Berlin"]"#);
    let agent = |line: &str| complaint(MODEL, line);
    insta::assert_snapshot!(agent("scale = -1"), @"/agents/a/config.toml:1:9: `scale` must be a whole number in 0–4294967295, not -1");
    insta::assert_snapshot!(agent("maxWorkQueueSize = 0"), @"/agents/a/config.toml:1:20: `maxWorkQueueSize` must be a whole number in 1–100000, not 0");
    insta::assert_snapshot!(agent("waitTimeout = \"soon\""), @r#"/agents/a/config.toml:1:15: `waitTimeout` must be a time from 1s to 30d, not "soon" [whole numbers with the units d, h, m and s, each at most once and the larger first: "45s", "30m", "1h30m", "2d", or a whole number of seconds]"#);
    insta::assert_snapshot!(agent("waitTimeout = 2592001"), @r#"/agents/a/config.toml:1:15: `waitTimeout` must be a time from 1s to 30d, not "2592001" [whole numbers with the units d, h, m and s, each at most once and the larger first: "45s", "30m", "1h30m", "2d", or a whole number of seconds]"#);
    insta::assert_snapshot!(agent("onCallerExit = 1"), @"/agents/a/config.toml:1:16: `onCallerExit` must be a string, not 1");
    insta::assert_snapshot!(agent("onSandboxLost = \"ignore\""), @r#"/agents/a/config.toml:1:17: `onSandboxLost` must be "fail" or "restart", not "ignore""#);
    insta::assert_snapshot!(agent("schedule = \"* * *\""), @r#"/agents/a/config.toml:1:12: `schedule` "* * *" is no cron pattern: it has 3 fields, and a pattern has five, or six with seconds in front [minute, hour, day, month and weekday, such as "*/5 * * * *" or "0 9 * * MON-FRI"]"#);
    insta::assert_snapshot!(agent("schedule = \"0 0 31 2 *\""), @r#"/agents/a/config.toml:1:12: `schedule` "0 0 31 2 *" is no cron pattern: that time never comes [minute, hour, day, month and weekday, such as "*/5 * * * *" or "0 9 * * MON-FRI"]"#);
    insta::assert_snapshot!(agent("schedule = \"99 * * * *\""), @r#"/agents/a/config.toml:1:12: `schedule` "99 * * * *" is no cron pattern: Component error: Number out of bounds. [minute, hour, day, month and weekday, such as "*/5 * * * *" or "0 9 * * MON-FRI"]"#);
    insta::assert_snapshot!(agent("timezone = \"\""), @r#"/agents/a/config.toml:1:12: no time zone is called "" [name one of the tz database, such as "UTC" or "Europe/Berlin"]"#);
}

/// S-WAIT-2: names of sources and their types cannot be mistaken for each other.
#[test]
fn sources_of_webhooks_are_checked() {
    let source = |name: &str, rest: &str| complaint(&format!("[webhooks.{name}]\n{rest}\n"), "");
    insta::assert_snapshot!(source("a", ""), @r#"/config.toml:1:11: `webhooks.a.type` is missing [one of "github", "sentry", "linear", "mintlify", "generic"]"#);
    insta::assert_snapshot!(source("a", "type = \"githup\""), @r#"/config.toml:2:8: unknown type of webhooks "githup" [did you mean "github"?]"#);
    insta::assert_snapshot!(source("a", "type = \"discord\""), @r#"/config.toml:2:8: unknown type of webhooks "discord" [one of "github", "sentry", "linear", "mintlify", "generic"; "generic" takes any JSON object]"#);
    insta::assert_snapshot!(source("a", "tipe = \"github\""), @"/config.toml:2:1: unknown key `webhooks.a.tipe` [did you mean `webhooks.a.type`?]");
    insta::assert_snapshot!(source("sentry", "type = \"github\""), @r#"/config.toml:1:11: a source called "sentry" must be of that type, not "github" [choose another name]"#);
    insta::assert_snapshot!(source("\"a b\"", "type = \"github\""), @r#"/config.toml:1:11: "a b" cannot be the name of a source [letters, digits, hyphens and underscores, at most 64, and not "schedule"]"#);
    assert!(source("schedule", "type = \"generic\"").contains("cannot be the name of a source"));
    insta::assert_snapshot!(source("a", "type = \"github\"\ncredential = \"x\""), @"/config.toml:3:1: `webhooks.a.credential` is not supported yet [remove it; a key is never ignored silently]");
    insta::assert_snapshot!(complaint("webhooks = 1", ""), @"/config.toml:1:12: `webhooks` must be a table, not 1");
}
