//! Faults of a script: in its file, and on the way.

use serde_json::{Value, json};

use super::refused;
use crate::harness::Place;

/// The complaint about a script that cannot be one.
#[track_caller]
fn script(text: &str) -> String {
    let place = Place::new();
    place.write("script.json", text);
    refused(&place, 2)
}

/// The file is missing or says what cannot be: nothing is begun.
#[test]
fn in_the_file() {
    insta::assert_snapshot!(script("{\"turns\": [\n  {\"text\": \"a\"},\n  {\"text\" \"b\"}\n]}"), @"error: PROJECT/script.json:3:11: expected `:`");
    insta::assert_snapshot!(script("{\"turns\": [{\"txt\": \"a\"}]}"), @"error: PROJECT/script.json:1:17: unknown field `txt`, expected one of `text`, `calls`, `expect`, `repeat`, `fail`, `usage`");
    insta::assert_snapshot!(script("[{\"text\": \"a\"}]"), @r#"error: PROJECT/script.json: a script is an object with `turns`, not a list: {"turns": […]}"#);
    insta::assert_snapshot!(script("{}"), @"error: PROJECT/script.json:1:2: missing field `turns`");
    insta::assert_snapshot!(script("{\"turns\": [{\"text\": \"${\"}]}"), @r#"error: PROJECT/script.json: turn 1: `${` without `}` in "${" (write `$${` for a literal `${`)"#);
    insta::assert_snapshot!(script("{\"turns\": [{\"fail\": {\"kind\": \"tired\"}}]}"), @"error: PROJECT/script.json:1:36: unknown variant `tired`, expected one of `rate_limit`, `overloaded`, `timeout`, `network`, `auth`, `invalid`, `context_length`, `refused`");
    insta::assert_snapshot!(script("{\"turns\": [{\"text\": \"a\", \"fail\": {\"kind\": \"auth\"}}]}"), @"error: PROJECT/script.json: turn 1: `fail` stands alone: a failed turn has no text and no calls");
    let call = r#"{"id": "a", "tool": "bash"}"#;
    insta::assert_snapshot!(script(&format!("{{\"turns\": [{{\"calls\": [{call}, {call}]}}]}}")), @r#"error: PROJECT/script.json: turn 1: two calls have the id "a""#);
    insta::assert_snapshot!(
        script(&format!("{{\"turns\": [{{\"calls\": [{call}], \"expect\": {{\"b\": {{}}}}}}]}}")), @r#"error: PROJECT/script.json: turn 1: `expect` names "b", which is no call of this turn"#);
    insta::assert_snapshot!(
        script(&format!("{{\"turns\": [{{\"calls\": [{call}], \"expect\": {{\"a\": {{\"matches\": \"(\"}}}}}}]}}")), @r#"error: PROJECT/script.json: turn 1: `matches` of "a": unclosed group"#);
    let place = Place::new();
    std::fs::remove_file(place.project().join("script.json")).expect("it is there");
    insta::assert_snapshot!(refused(&place, 2), @"
error: PROJECT/script.json: No such file or directory
hint: the model's `file` in config.toml names it, relative to that config.toml
");
}

/// The last line but one of a session that ends with a fault of its script.
#[track_caller]
fn fault(turns: &Value) -> String {
    let place = Place::new();
    place.script(turns);
    super::not_begun(&place, place.command(["start", "--agent", "worker"]), 4)
}

/// A value that is missing or an expectation that is not met ends the session with code 4 and says which turn.
#[test]
fn on_the_way() {
    let call = json!({"id": "a", "tool": "bash", "args": {"command": "echo hello"}});
    insta::assert_snapshot!(fault(&json!([{"text": "${task}"}])), @"model: turn 1 of the script: `${task}` has no value: no task was given");
    insta::assert_snapshot!(fault(&json!([{"text": "${b.text}"}])), @"model: turn 1 of the script: `${b.text}` has no value: no earlier call has this id (write `$${` for a literal `${`)");
    insta::assert_snapshot!(fault(&json!([{"text": "${params.repo}"}])), @"model: turn 1 of the script: `${params.repo}` has no value: nothing is there in the agent's params");
    insta::assert_snapshot!(fault(&json!([{"calls": [call], "expect": {"a": {"is_error": true}}}])), @r#"model: turn 1 of the script: expected "a" to fail, but its result is "hello\n""#);
    insta::assert_snapshot!(fault(&json!([{"calls": [call], "expect": {"a": {"contains": "bye"}}}])), @r#"model: turn 1 of the script: expected "a" to contain "bye", but its result is "hello\n""#);
    insta::assert_snapshot!(fault(&json!([{"calls": [call], "expect": {"a": {"matches": "^b"}}}])), @r#"model: turn 1 of the script: expected "a" to match "^b", but its result is "hello\n""#);
    insta::assert_snapshot!(fault(&json!([{"calls": [call]}, {"text": "${a.status}"}])), @"model: turn 2 of the script: `${a.status}` has no value: the result is not JSON");
    insta::assert_snapshot!(fault(&json!([{"calls": [call], "repeat": {"until": {"a.text": "bye"}, "max": 2}}])), @"model: turn 1 of the script: `until` does not hold after 2 times");
}
