//! `runner image build`: small, whole and the same wherever it is made.

use std::path::Path;

use crate::harness::{Place, engine};

/// Two builds give one id; the image is under 6 MB and holds what commands need.
#[test]
fn the_base_image_is_small_and_reproducible() {
    let place = Place::new();
    let build = || {
        let mut command = place.command(["image", "build", "--quiet"]);
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/static");
        if std::env::var_os("RUNNER_STATIC_DIR").is_none() && target.is_dir() {
            command.env("RUNNER_STATIC_DIR", target);
        }
        let ran = crate::harness::Ran::from(command.output().expect("it starts"));
        ran.exits(0).stdout.trim_end().to_owned()
    };
    let (first, second) = (build(), build());
    assert_eq!(first, second);
    let (status, image) = engine("GET", "/images/runner/minimal:latest/json");
    assert_eq!((status, image["Id"].as_str()), (200, Some(first.as_str())));
    let size = image["Size"].as_u64().expect("a size");
    assert!(size < 6_000_000, "{size} bytes");
    assert_eq!(image["RootFS"]["Layers"].as_array().map(Vec::len), Some(1));

    let mut desk = place.desk();
    let mut said = |command: &str| desk.bash(command).ok().to_owned();
    assert_eq!(
        said("cat /etc/hosts; stat -c '%a %n' /tmp; command -v bash busybox awk sed grep tar"),
        "127.0.0.1 localhost agent\n1777 /tmp\n/usr/bin/bash\n/usr/bin/busybox\n/usr/bin/awk\n/usr/bin/sed\n/usr/bin/grep\n/usr/bin/tar\n"
    );
    desk.close().exits(0);
}

/// Nobody's static programs are there: which package has them.
#[test]
fn a_missing_program_is_named_with_its_package() {
    let place = Place::bare();
    let mut command = place.command(["image", "build"]);
    command.env("RUNNER_STATIC_DIR", place.folder());
    let ran = crate::harness::Ran::from(command.output().expect("it starts"));
    ran.exits(2);
    insta::assert_snapshot!(place.masked(&ran.stderr), @"error: no static bash on this machine (looked at PLACE); install bash-static, or set RUNNER_STATIC_DIR to a folder with it");
}
