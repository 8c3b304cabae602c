//! The documents and the program say the same.

use std::path::Path;

use runner::doctor::CHECKS;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// CLI-14: docs/troubleshooting.md has a section for each check, in the order of the checks, and for nothing else.
#[test]
fn every_check_is_explained() {
    let page = document("troubleshooting.md");
    let sections: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### `")).filter_map(|line| line.strip_suffix('`')).collect();
    assert_eq!(sections, CHECKS);
}

/// docs/exit-codes.md has every code that the program's help names, and no other.
#[test]
fn every_exit_code_is_explained() {
    let page = document("exit-codes.md");
    let first = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u8>().ok();
    let codes: Vec<u8> = page.lines().filter_map(first).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 124, 125, 130]);
    let help = crate::harness::Place::bare().run(["--help"]).stdout;
    let listed = help.split("Exit codes:").nth(1).and_then(|rest| rest.split("Environment:").next()).expect("a list");
    let listed: Vec<u8> =
        listed.split(['·', '\n']).filter_map(|part| part.trim().split(' ').next()?.parse().ok()).collect();
    assert_eq!(listed, codes);
}
