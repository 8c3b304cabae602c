//! bug 38: limits out of range or against each other, as people meet them.

use super::refused;
use crate::harness::Place;

/// The complaint about a line of the agent's config.toml.
#[track_caller]
fn agent(line: &str) -> String {
    let place = Place::new();
    place.agent("worker", line);
    refused(&place, 2)
}

#[track_caller]
fn local(line: &str) -> String {
    agent(&format!("[local]\n{line}\n"))
}

/// A limit of 1, 0, negative or absurd: key, value and range.
#[test]
fn out_of_range() {
    insta::assert_snapshot!(local("memory = \"1\""), @r#"error: PROJECT/agents/worker/config.toml:2:10: local.memory is "1"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = 0"), @r#"error: PROJECT/agents/worker/config.toml:2:10: local.memory is "0"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = \"-4g\""), @r#"error: PROJECT/agents/worker/config.toml:2:10: local.memory is "-4g"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = \"999999999999999999999t\""), @r#"error: PROJECT/agents/worker/config.toml:2:10: local.memory is "999999999999999999999t"; it must be 64m to 16t"#);
    insta::assert_snapshot!(local("memory = \"lots\""), @r#"error: PROJECT/agents/worker/config.toml:2:10: local.memory is "lots"; it must be a size like "512m" or "4g""#);
    insta::assert_snapshot!(local("pids = 1"), @"error: PROJECT/agents/worker/config.toml:2:8: local.pids is 1; it must be 16 to 65536");
    insta::assert_snapshot!(local("pids = 99999999999999999999"), @"error: PROJECT/agents/worker/config.toml:2:8: local.pids is 9223372036854775807; it must be 16 to 65536");
    insta::assert_snapshot!(local("tmpSize = \"-1\""), @r#"error: PROJECT/agents/worker/config.toml:2:11: local.tmpSize is "-1"; it must be 1m to 16t"#);
    insta::assert_snapshot!(local("tmpInodes = 0"), @"error: PROJECT/agents/worker/config.toml:2:13: local.tmpInodes is 0; it must be 64 to 100000000");
    insta::assert_snapshot!(agent("timeout = 0"), @"error: PROJECT/agents/worker/config.toml:1:11: `timeout` must be a whole number of seconds in 1–604800, not 0");
    insta::assert_snapshot!(agent("timeout = -1"), @"error: PROJECT/agents/worker/config.toml:1:11: `timeout` must be a whole number of seconds in 1–604800, not -1");
    insta::assert_snapshot!(agent("bashTimeout = 1000000"), @"error: PROJECT/agents/worker/config.toml:1:15: `bashTimeout` must be a whole number of seconds in 1–604800, not 1000000");
    insta::assert_snapshot!(agent("maxTurns = 0"), @"error: PROJECT/agents/worker/config.toml:1:12: `maxTurns` must be a whole number from 1 up, not 0");
    insta::assert_snapshot!(agent("maxTokens = 0"), @"error: PROJECT/agents/worker/config.toml:1:13: `maxTokens` must be a whole number from 1 up, not 0");
    let cpus = local("cpus = 0");
    let range = regex::Regex::new("0.1 to [0-9]+,").expect("a pattern");
    insta::assert_snapshot!(range.replace(&cpus, "0.1 to N,"), @"error: PROJECT/agents/worker/config.toml:2:8: local.cpus is 0; it must be 0.1 to N, the host's number of processors");
}

/// bug 36: a /tmp larger than half the memory, also when each stands in a file of its own.
#[test]
fn against_each_other() {
    insta::assert_snapshot!(local("memory = \"1g\"\ntmpSize = \"600m\""), @"error: PROJECT/agents/worker/config.toml:3:11: local.tmpSize is 600m; with the 16m of /dev/shm it must be at most half of local.memory (1g), so at most 496m");
    insta::assert_snapshot!(local("memory = \"64m\"\ntmpInodes = 5000"), @"error: PROJECT/agents/worker/config.toml:3:13: local.tmpInodes is 5000; with local.memory 64m it must be at most 4096, one for each 16k");
    let place = Place::new();
    place.write(
        "config.toml",
        "orphanGrace = 30\n[local]\ntmpSize = \"1g\"\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n",
    );
    place.agent("worker", "[local]\nmemory = \"1g\"\n");
    insta::assert_snapshot!(refused(&place, 2), @"error: PROJECT/agents/worker/config.toml:2:10: local.tmpSize is 1g; with the 16m of /dev/shm it must be at most half of local.memory (1g), so at most 496m");
    place.write("config.toml", "orphanGrace = 9\n[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n");
    insta::assert_snapshot!(refused(&place, 2), @"error: PROJECT/config.toml:1:15: `orphanGrace` must be a whole number of seconds in 10–86400, not 9");
}

/// A runtime that the engine does not have: what it has.
#[test]
fn an_unknown_runtime() {
    let place = Place::new();
    place.agent("worker", "[local]\nruntime = \"no-such\"\n");
    let why = super::not_begun(&place, place.command(["start", "--agent", "worker"]), 2);
    let (said, known) = why.split_once("; this engine knows ").expect("what it knows");
    insta::assert_snapshot!(said, @r#"config: local.runtime is "no-such""#);
    assert!(known.contains("runc"), "{why}");
}
