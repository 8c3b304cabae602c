//! The agents of examples/ do what they are shown for.

use std::fs;
use std::path::Path;

use crate::harness::{BASE, Place};

/// `make demo-work`: a repository goes in, its bug is found and mended on runner/base, and a patch comes out; the
/// repository on the host is as it was.
#[test]
fn the_fixer_mends_its_repository() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().expect("it is there");
    let (examples, place) = (examples.to_str().expect("UTF-8"), Place::on(BASE));
    // The repository is made where git is for sure.
    let repository = format!("{examples}/repo");
    let commit = r#"{"command": "cd /tmp/repo && git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm 'A basket'"}"#;
    let folder = place.project().display().to_string();
    let make =
        ["tool", "--agent", "worker", "--in", &repository, "--out", &format!("/tmp/repo:{folder}"), "bash", commit];
    place.run(make).exits(0);

    let (input, output) = (format!("{folder}/repo"), format!("/tmp/fix.patch:{folder}"));
    let ran = place.run(["start", "--project", examples, "--agent", "fixer", "--in", &input, "--out", &output]);
    ran.exits(0).prints("done: the agent is done").prints("6 turns, 7 tool calls (1 failed)");
    let patch = fs::read_to_string(place.project().join("fix.patch")).expect("it came out");
    let changed: Vec<&str> = patch.lines().filter(|line| line.starts_with(['-', '+'])).collect();
    let expected = [
        "--- a/basket/pricing.py",
        "+++ b/basket/pricing.py",
        "-    if quantity > BULK_FROM:",
        "+    if quantity >= BULK_FROM:",
    ];
    assert_eq!(changed, expected);
    let code = |folder: &str| fs::read_to_string(Path::new(folder).join("basket/pricing.py")).expect("it is there");
    assert_eq!(code(&input), code(&repository));
}
