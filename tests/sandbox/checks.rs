//! `runner image ls`, `rm` and `check`: what is said of images, and that none is removed from under a container.

use serde_json::json;

use crate::harness::{BASE, MINIMAL, Place, Variant, engine, engine_with};

/// Both our images are listed as ours, an image with a VOLUME with the reason against it.
#[test]
fn images_are_listed_with_what_speaks_against_them() {
    let volume = Variant::new("list", &["/bin/true"], &["VOLUME /data"]);
    let place = Place::on(BASE);
    let listed = place.run(["image", "ls", "--json"]).exits(0).json();
    let of = |name: &str| {
        let all = listed.as_array().expect("a list");
        all.iter()
            .find(|image| image["image"] == format!("{name}:latest"))
            .unwrap_or_else(|| panic!("{name}: {listed}"))
    };
    for ours in [MINIMAL, BASE] {
        assert_eq!((&of(ours)["ours"], &of(ours)["usable"]), (&json!(true), &json!(true)));
    }
    let refused = of(volume.name());
    assert_eq!((&refused["ours"], &refused["usable"]), (&json!(false), &json!(false)));
    assert!(refused["refused"].as_str().is_some_and(|why| why.contains("VOLUME /data")), "{refused}");
    let table = place.run(["image", "ls"]);
    let line = table.exits(0).stdout.lines().find(|line| line.starts_with(volume.name())).expect("a line").to_owned();
    assert!(line.contains("no: it declares VOLUME /data"), "{line}");
}

/// An image that a sandbox is made from stays, and the session is named; so does one of a foreign container, even a
/// stopped one. With the last of them gone it can be removed.
#[test]
fn an_image_in_use_is_not_removed() {
    let image = Variant::new("used", &["/bin/true"], &["LABEL a=b"]);
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let mut desk = place.desk();
    desk.bash("true").ok();
    let session = place.run(["ps", "--json"]).json()[0]["session"].as_str().expect("an id").to_owned();
    place
        .run(["image", "rm", image.name()])
        .exits(1)
        .complains(&format!("error: image {} is in use by container ", image.name()))
        .complains(&format!("runner stop {session}"));
    desk.close().exits(0);

    let (status, made) =
        engine_with("POST", "/containers/create", &json!({"Image": image.name(), "Cmd": ["/bin/true"]}));
    assert_eq!(status, 201, "{made}");
    let foreign = made["Id"].as_str().expect("an id");
    let name = engine("GET", &format!("/containers/{foreign}/json")).1["Name"].clone();
    let name = name.as_str().expect("a name").trim_start_matches('/').to_owned();
    let refused = place.run(["image", "rm", image.name()]);
    engine("DELETE", &format!("/containers/{foreign}?force=1"));
    refused.exits(1).complains(&format!("is in use by container {name}; it can be removed once they are gone"));

    let removed = place.run(["image", "rm", image.name()]);
    assert_eq!(removed.exits(0).stdout, format!("removed {}\n", image.name()));
    place.run(["image", "rm", image.name()]).exits(3).complains("is not on this engine");
    for command in ["rm", "check"] {
        place.run(["image", command, ""]).exits(2).complains("<IMAGE>");
    }
    place.run(["image", "rm", "../containers"]).exits(6).complains("not an image reference");
}

/// One that cannot be removed does not keep the others.
#[test]
fn each_image_is_removed_for_itself() {
    let image = Variant::new("each", &["/bin/true"], &["LABEL a=b"]);
    let place = Place::bare();
    let ran = place.run(["image", "rm", "runner-test/no-such:1", image.name(), "runner-test/no-such:2"]);
    assert_eq!(ran.exits(3).stdout, format!("removed {}\n", image.name()));
    assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("error: image runner-test/no-such:")).count(), 2);
}

/// The base image has all that an agent may miss; `transcripts` has what is said of the minimal one.
#[test]
fn the_base_image_lacks_nothing() {
    let place = Place::on(BASE);
    let whole = place.run(["image", "check", BASE, "--json"]).exits(0).json();
    assert_eq!((&whole["usable"], &whole["missing"]), (&json!(true), &json!([])));
    assert_eq!(whole["home"], "/tmp/home");
    assert_eq!(whole["certificates"], "/etc/ssl/certs/ca-certificates.crt");
    place.assert_clean();
}

/// Images that are refused, by their settings or by PID 1; and one that is not there.
#[test]
fn a_check_names_the_reason_of_a_refusal() {
    let place = Place::bare();
    let check = |image: &str, code: i32| {
        let ran = place.run(["image", "check", image, "--json"]);
        ran.exits(code);
        ran
    };
    let volume = Variant::new("check-volume", &["/bin/true"], &["VOLUME /data"]);
    let seen = check(volume.name(), 6).json();
    assert!(seen["usable"] == false && seen["refused"].as_str().is_some_and(|why| why.contains("VOLUME")), "{seen}");
    let bare = Variant::bare("check-bare", "amd64", &[("bin", None), ("tmp", None)]);
    let seen = check(bare.name(), 6).complains("has no shell").json();
    assert!(seen["usable"] == false && seen["refused"].as_str().is_some_and(|why| why.contains("shell")), "{seen}");
    let link = Variant::bare("check-link", "amd64", &[("bin", None), ("var/tmp", None), ("tmp", Some("var/tmp"))]);
    check(link.name(), 6).complains("links where folders must be: /tmp");
    let arm = Variant::bare("check-arm", "arm64", &[("bin", None), ("tmp", None)]);
    check(arm.name(), 6).complains("linux/arm64");
    check("runner-test/no-such:1", 3).complains("is not on this engine");
    place.assert_clean();
}

/// What an image says of itself, in labels, variables and the versions of its programs, steers no terminal.
#[test]
fn what_a_hostile_image_says_is_shown_harmlessly() {
    const SAYS: &str = r#"echo 'printf "\033]0;owned\007\033[2J"' >/usr/local/bin/git && chmod 755 /usr/local/bin/git"#;
    let image = Variant::new(
        "hostile",
        &["/bin/sh", "-c", SAYS],
        &["LABEL note=\"\u{1b}[2J\u{202e}\" \"na\u{7}me\"=x", "ENV BASH_ENV=/tmp/x", "ENV PATH=/usr/local/bin:/bin"],
    );
    let place = Place::bare();
    for args in [vec!["image", "check", image.name()], vec!["image", "check", image.name(), "--json"]] {
        let ran = place.run(args);
        ran.exits(0).prints("note").prints("BASH_ENV");
        let unsafe_text = ran.stdout.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
        assert!(!unsafe_text, "{:?}", ran.stdout);
    }
}
