//! Images that are not there or cannot hold a sandbox.

use std::process::Command;

use super::{not_begun, refused};
use crate::harness::{Place, Variant};

fn place_with(image: &str) -> Place {
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{image}\"\n"));
    place
}

#[track_caller]
fn refused_image(image: &Variant, code: i32) -> String {
    refused(&place_with(image.name()), code).replace(image.name(), "IMAGE")
}

/// What inspect does not show is seen by PID 1: the session is recorded, and ends before its first turn.
#[track_caller]
fn refused_by_pid_1(image: &Variant, code: i32) -> String {
    let place = place_with(image.name());
    let command: Command = place.command(["start", "--agent", "worker"]);
    not_begun(&place, command, code).replace(image.name(), "IMAGE")
}

/// An image that the engine does not have, and a name that is none.
#[test]
fn missing_images() {
    insta::assert_snapshot!(refused(&place_with("runner-test/no-such:1"), 3), @"error: image runner-test/no-such:1 is not on this engine; fetch it (`docker pull runner-test/no-such:1`), or set local.image to another");
    insta::assert_snapshot!(refused(&place_with("../containers/json"), 2), @r#"error: PROJECT/agents/worker/config.toml:2:9: `local.image` is not a usable name: "../containers/json""#);
}

/// A volume would be a writable folder of the host.
#[test]
fn an_image_with_a_volume() {
    insta::assert_snapshot!(refused_image(&Variant::new("volume", &["/bin/true"], &["VOLUME /data"]), 6), @"error: image IMAGE is refused: it declares VOLUME /data, which would give the sandbox a writable folder of the host; build one without");
}

/// Another architecture.
#[test]
fn an_image_for_another_machine() {
    let image = Variant::bare("arm", "arm64", &[("bin", None), ("tmp", None)]);
    insta::assert_snapshot!(refused_image(&image, 6), @"error: image IMAGE is refused: it is for linux/arm64; take one for linux/amd64");
}

/// No shell: commands could not run.
#[test]
fn an_image_without_a_shell() {
    let image = Variant::bare("bare", "amd64", &[("bin", None), ("tmp", None)]);
    insta::assert_snapshot!(refused_by_pid_1(&image, 6), @"policy: the sandbox did not start: its image has no shell (/bin/bash or /bin/sh); use an image that has one");
}

/// Links where folders must be would lead what is mounted there somewhere else.
#[test]
fn an_image_with_links() {
    let tmp = Variant::bare("tmp-link", "amd64", &[("bin", None), ("var/tmp", None), ("tmp", Some("var/tmp"))]);
    insta::assert_snapshot!(refused_by_pid_1(&tmp, 6), @"policy: the sandbox did not start: its image has links where folders must be: /tmp; use another image");
    let app = Variant::bare("app-link", "amd64", &[("bin", None), ("data", None), ("app", Some("data"))]);
    insta::assert_snapshot!(refused_by_pid_1(&app, 6), @"policy: the sandbox did not start: its image has links where folders must be: /app; use another image");
}

/// Links at /proc and /dev an engine replaces by folders of its own before anything is mounted; one that did not would
/// be found out by PID 1.
#[test]
fn an_image_with_links_that_the_engine_replaces() {
    for (path, target) in [("proc", "data"), ("dev", "data"), ("dev/shm", "/data"), ("sys", "data")] {
        let topic = format!("{}-link", path.replace('/', "-"));
        let image = Variant::bare(&topic, "amd64", &[("bin", None), ("data", None), (path, Some(target))]);
        let why = refused_by_pid_1(&image, 6);
        let replaced = "policy: the sandbox did not start: its image has no shell (/bin/bash or /bin/sh); use an image that has one";
        let found = format!(
            "policy: the sandbox did not start: its image has links where folders must be: /{path}; use another image"
        );
        assert!(why == replaced || why == found, "{why}");
    }
}
