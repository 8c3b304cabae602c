//! `grep` and `find`.

use protocol::{Found, Matches, Partial, Skipped};

use super::*;

fn matches(shown: u64, matches: u64) -> Matches {
    Matches {
        shown,
        cut: false,
        matches,
        matched_files: matches.min(2),
        files: 7,
        skipped: Skipped::default(),
        partial: None,
    }
}

fn grep(found: Matches, payload: &str) -> ToolResult {
    call("grep", json!({"pattern": "x"}), vec![Ok(reply(Outcome::Matches(found), payload))])
}

fn found(shown: u64, total: u64) -> Found {
    Found { shown, cut: false, total, names: 70, skipped: Skipped::default(), partial: None }
}

fn find(found: Found, payload: &str) -> ToolResult {
    call("find", json!({"pattern": "*"}), vec![Ok(reply(Outcome::Found(found), payload))])
}

/// T-GREP-2: the last line says what was found and what was not searched, with a hint when only ignored files are left.
#[test]
fn greps_end_with_what_they_left_out() {
    assert_eq!(
        told(&grep(matches(1, 1), "a:1: x\n")),
        (false, None, "a:1: x\n[1 match in 1 of 7 files; nothing was left out]")
    );
    let skipped = Skipped { ignored: 1, binary: 2, unreadable: 3, too_large: 4, special: 5 };
    let all = Matches { skipped, ..matches(2, 2) };
    assert_eq!(
        grep(all.clone(), "a:1: x\nb:2: x\n").text,
        "a:1: x\nb:2: x\n[2 matches in 2 of 7 files; \
         not searched: 1 ignored, 2 binary, 3 unreadable, 4 over the size limit, 5 special]"
    );
    let none = Matches { skipped: Skipped { ignored: 1, ..Skipped::default() }, files: 1, ..matches(0, 0) };
    assert_eq!(
        told(&grep(none, "")),
        (false, None, "[no match in 1 file; not searched: 1 ignored; includeIgnored: true searches what is ignored]")
    );
    assert_eq!(grep(matches(0, 0), "").text, "[no match in 7 files; nothing was left out]");
}

/// T-5, T-GREP-2: a cut result says how many there are and how to get the rest; one that ran out of time is marked.
#[test]
fn cut_greps_say_so() {
    assert_eq!(
        grep(matches(100, 345), "").text,
        "[the first 100 of 345 matches, which are in 2 of 7 files; ask for more with limit, or narrow pattern, glob or \
         path; nothing was left out]"
    );
    let full = Matches { cut: true, partial: Some(Partial::Counting), ..matches(100, 345) };
    assert_eq!(
        grep(full, "").text,
        "[the first 100 of at least 345 matches, which are in 2 of 7 files; no more fit into a result, so narrow \
         pattern, glob or path; nothing was left out]"
    );
    let late = Matches { partial: Some(Partial::Time), ..matches(0, 0) };
    assert_eq!(
        grep(late, "").text,
        "[partial result, the time limit of 30 s passed; so far no match in 7 files; nothing was left out]"
    );
}

/// T-FIND-1: the same last line.
#[test]
fn finds_end_with_what_they_left_out() {
    assert_eq!(told(&find(found(1, 1), "a/\n")), (false, None, "a/\n[1 path; nothing was left out]"));
    let none = Found { skipped: Skipped { ignored: 2, ..Skipped::default() }, ..found(0, 0) };
    assert_eq!(
        find(none, "").text,
        "[no path fits; not searched: 2 ignored; includeIgnored: true finds what is ignored]"
    );
    assert_eq!(
        find(found(1000, 2345), "").text,
        "[the first 1000 of 2345 paths; ask for more with limit, or narrow the pattern or path; nothing was left out]"
    );
    assert_eq!(
        find(Found { partial: Some(Partial::Time), ..found(9, 2345) }, "").text,
        "[partial result, the time limit of 30 s passed; so far the first 9 of 2345 paths; no more fit into a result, \
         so narrow the pattern or path; nothing was left out]"
    );
}

/// T-1: arguments reach the sandbox as they were given, with their defaults.
#[test]
fn searches_are_asked_for() {
    let answer = || Ok(reply(Outcome::Matches(matches(0, 0)), ""));
    let hands = Scripted::new(vec![answer(), answer(), Ok(reply(Outcome::Found(found(0, 0)), ""))]);
    call_with(&hands, &session(), "grep", json!({"pattern": "a"}));
    let all = json!({"pattern": "a", "path": "~/x", "glob": "*.rs", "ignoreCase": true, "literal": true, "context": "2",
        "limit": 3, "includeIgnored": true});
    call_with(&hands, &session(), "grep", all);
    call_with(&hands, &session(), "find", json!({"pattern": "*.rs", "includeIgnored": true}));
    let asked: Vec<Request> = hands.asked.borrow().iter().map(|call| call.request.clone()).collect();
    let plain = Request::Grep {
        pattern: "a".to_owned(),
        path: None,
        glob: None,
        ignore_case: false,
        literal: false,
        context: 0,
        limit: 100,
        include_ignored: false,
    };
    let full = Request::Grep {
        pattern: "a".to_owned(),
        path: Some("~/x".to_owned()),
        glob: Some("*.rs".to_owned()),
        ignore_case: true,
        literal: true,
        context: 2,
        limit: 3,
        include_ignored: true,
    };
    let names = Request::Find { pattern: "*.rs".to_owned(), path: None, limit: 1000, include_ignored: true };
    assert_eq!(asked, [plain, full, names]);
    assert!(refused("grep", json!({"pattern": ""})).contains("minLength"));
    assert!(refused("find", json!({"pattern": "*", "glob": "x"})).contains("glob"));
}

/// T-7: whatever a sandbox claims, a result keeps the output limit.
#[test]
fn results_of_searches_are_bounded() {
    let text = "é".repeat(100_000);
    assert!(grep(matches(1, 1), &text).text.len() < 51 * 1024 + 100);
    assert!(find(found(1, 1), &text).text.len() < 51 * 1024 + 100);
}
