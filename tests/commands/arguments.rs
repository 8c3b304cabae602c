//! Arguments that do not fit, and results that always come.

use serde_json::json;

use crate::harness::{Place, Ran};

/// T-1, T-2: what breaks a schema is an error result that names the path, the rule and the value; the session goes on.
#[test]
fn broken_arguments_are_named() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        for (tool, args, complaint) in [
            (
                "bash",
                json!({"comand": "id"}),
                "- the arguments: Additional properties are not allowed ('comand' was unexpected) (rule `additionalProperties`) \
             (did you mean \"command\"?); received {\"comand\":\"id\"}",
            ),
            (
                "bash",
                json!({"command": 7}),
                "- /command: the value is not of type \"string\" (rule `type`); received 7",
            ),
            (
                "bash",
                json!({"command": "id", "timeout": 0}),
                "- /timeout: the value is less than or equal to the minimum of 0 (rule `exclusiveMinimum`); received 0",
            ),
            (
                "bash",
                json!({"command": "id", "timeout": "soon"}),
                "- /timeout: the value is not of type \"number\" (rule `type`); received \"soon\"",
            ),
            ("read", json!({}), "- the arguments: \"path\" is a required property (rule `required`); received {}"),
            (
                "read",
                json!({"path": "x", "offset": 0}),
                "- /offset: the value is less than the minimum of 1 (rule `minimum`); received 0",
            ),
            (
                "write",
                json!({"path": "/tmp/x", "content": ["a"]}),
                "- /content: the value is not of type \"string\" (rule `type`); received [\"a\"]",
            ),
            (
                "read",
                json!({"path": "x", "offset": 1e30}),
                "- /offset: the value is greater than the maximum of 9007199254740991 (rule `maximum`); received 1e+30",
            ),
            ("ls", json!({"limit": 1.5}), "- /limit: the value is not of type \"integer\" (rule `type`); received 1.5"),
            ("ls", json!([]), "- the arguments: the value is not of type \"object\" (rule `type`); received []"),
        ] {
            let answer = desk.call(tool, &args);
            assert_eq!(answer.fails("invalid"), format!("the arguments of `{tool}` do not fit:\n{complaint}"));
        }
        assert_eq!(
            desk.call("bsh", &json!({})).fails("not_found"),
            "there is no tool \"bsh\"; did you mean `bash`? There are `bash`, `edit`, `find`, `grep`, `ls`, `read`, `write`."
        );
        assert_eq!(desk.bash("echo still here").ok(), "still here\n");
    }
}

/// T-1: numbers that arrive as strings are numbers.
#[test]
fn numbers_may_be_strings() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let answer = desk.call("bash", &json!({"command": "seq 9 > /tmp/nine; sleep 9", "timeout": "0.5"}));
        assert_eq!(answer.fails("timeout"), "(no output)\n[timed out after 0.5 s]");
        let answer = desk.call("read", &json!({"path": "/tmp/nine", "offset": "4", "limit": " 2 "}));
        assert_eq!(answer.ok(), "4\n5\n[lines 4–5 of 9 (18 bytes in all); continue with offset 6]");
        assert_eq!(desk.call("ls", &json!({"path": "/tmp", "limit": "1"})).ok().lines().count(), 2);
    }
}

/// A result that cannot be written is no success, and what was asked for after it is not done.
#[test]
fn lost_results_are_a_failure() {
    let place = Place::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let said = "error: cannot write a result: No space left on device\n";
    let call = r#"{"command": "echo hello"}"#;
    let single = Ran::from(
        place.command(["tool", "--agent", "worker", "bash", call]).stdout(full()).output().expect("the program starts"),
    );
    assert_eq!(single.exits(1).stderr, said);
    let calls = place.write("calls", "{\"id\": 1, \"tool\": \"ls\"}\n".repeat(2));
    let mut many = place.command(["tool", "--agent", "worker", "-"]);
    many.stdin(std::fs::File::open(calls).expect("it is there")).stdout(full());
    assert_eq!(Ran::from(many.output().expect("the program starts")).exits(1).stderr, said);
    let begun = place.run(["ps", "--all", "--json"]);
    let session = begun.exits(0).stdout.split('"').find(|part| part.len() == 36).expect("an id").to_owned();
    assert_eq!(place.bodies(&session, "tool_started").len(), 1);
    let tools = Ran::from(place.command(["tools"]).stdout(full()).output().expect("the program starts"));
    tools.exits(1).complains("cannot write the output");
}

/// T-2: a sandbox that dies under a call gives that call and every later one an error result; the session then ends.
#[test]
fn a_dead_sandbox_is_a_result_and_the_end() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        desk.send("bash", &json!({"command": "sleep 300"}));
        block.wait_for(1);
        let [container] = &place.containers()[..] else { panic!("one container") };
        let (status, _) = crate::harness::engine("POST", &format!("/containers/{container}/kill?signal=KILL"));
        assert_eq!(status, 204);
        desk.answer().fails("sandbox_gone");
        let ran = desk.close();
        ran.exits(5);
        place.assert_clean();
    }
}
