//! The model-facing side of every tool, against hands whose answers are written down.

use std::cell::RefCell;
use std::collections::VecDeque;

use protocol::{BashEnd, End, Space};
use serde_json::json;

use super::*;
use crate::sandbox::{Gone, GoneKind};

mod files;
pub(crate) mod fleet;
mod search;

/// Hands that answer what they were told to, in order, and remember what they were asked.
pub(crate) struct Scripted {
    pub(crate) answers: RefCell<VecDeque<Result<Reply, CallError>>>,
    pub(crate) asked: RefCell<Vec<ToolCall>>,
    pub(crate) shell: Option<&'static str>,
}

impl Scripted {
    pub(crate) fn new(answers: Vec<Result<Reply, CallError>>) -> Self {
        Self { answers: RefCell::new(answers.into()), asked: RefCell::default(), shell: None }
    }
}

impl Hands for Scripted {
    fn call(&self, call: ToolCall) -> LocalBoxFuture<'_, Result<Reply, CallError>> {
        self.asked.borrow_mut().push(call);
        let answer = self.answers.borrow_mut().pop_front().expect("an answer for every call");
        Box::pin(async move { answer })
    }

    fn gone(&self) -> LocalBoxFuture<'_, Gone> {
        Box::pin(std::future::pending())
    }

    fn other_shell(&self) -> Option<String> {
        self.shell.map(str::to_owned)
    }

    fn forget(&self, _: &str) {}

    fn let_go(&self) {}
}

pub(crate) fn reply(outcome: Outcome, payload: impl Into<Vec<u8>>) -> Reply {
    Reply { outcome, payload: payload.into(), streamed: Vec::new(), oom: false, pids: false }
}

fn limits() -> Limits {
    Limits { memory: 256 << 20, milli_cpus: 1000, pids: 64, tmp_size: 64 << 20, tmp_inodes: 1000 }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// A call with these arguments, answered by `hands`, by a session with 100 s left.
fn call_with(hands: &Scripted, session: &ToolSession, name: &str, args: Value) -> ToolResult {
    let registry = Registry::transport();
    let cancel = CancellationToken::new();
    let context =
        Context { hands, session, key: "s/1/0", remaining: Duration::from_secs(100), cancel: &cancel, fleet: None };
    run(async {
        match registry.prepare(name, args) {
            Ok(ready) => ready.result(context).await,
            Err(result) => *result,
        }
    })
}

fn session() -> ToolSession {
    ToolSession::new(Duration::from_secs(50), limits(), true)
}

fn call(name: &str, args: Value, answers: Vec<Result<Reply, CallError>>) -> ToolResult {
    call_with(&Scripted::new(answers), &session(), name, args)
}

/// A command that ended like this with this output, shown whole.
fn ended(end: End, output: &str) -> Reply {
    reply(
        Outcome::Bash(BashEnd {
            end,
            head: output.len() as u64,
            total_bytes: output.len() as u64,
            total_lines: output.lines().count() as u64,
            omitted_bytes: 0,
            omitted_lines: 0,
            kept: None,
            kept_is_cut: false,
            full: None,
            duration_ms: 5,
        }),
        output,
    )
}

fn bash(answer: Reply) -> ToolResult {
    call("bash", json!({"command": "x"}), vec![Ok(answer)])
}

/// is_error, cause and text.
fn told(result: &ToolResult) -> (bool, Option<Cause>, &str) {
    (result.is_error, result.cause, result.text.as_str())
}

/// How arguments are refused.
fn refused(name: &str, args: Value) -> String {
    let result = call(name, args, Vec::new());
    assert_eq!((result.is_error, result.cause), (true, Some(Cause::Invalid)), "{}", result.text);
    result.text
}

/// T-1: what is published is a valid 2020-12 schema without references that allows no unknown key.
#[test]
fn schemas_are_closed_and_without_references() {
    let transport = Registry::transport().names();
    assert_eq!(transport, ["bash", "edit", "find", "grep", "ls", "read", "write"]);
    let registry = Registry::session();
    let names = registry.names();
    assert_eq!(names.len(), 14);
    assert!(names.is_sorted() && transport.iter().all(|name| names.contains(name)), "{names:?}");
    for definition in registry.definitions() {
        let schema = &definition.schema;
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
        assert!(!schema.to_string().contains("$ref"), "{schema}");
        assert!(jsonschema::meta::is_valid(schema), "{schema}");
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{}.{name} is described", definition.name);
        }
    }
}

/// T-1: a violation names the path, the rule and the value received.
#[test]
fn wrong_arguments_name_path_rule_and_value() {
    insta::assert_snapshot!(refused("read", json!({"path": "a", "offset": 0})), @r"
the arguments of `read` do not fit:
- /offset: the value is less than the minimum of 1 (rule `minimum`); received 0
");
    insta::assert_snapshot!(refused("read", json!({"path": 5})), @r#"
the arguments of `read` do not fit:
- /path: the value is not of type "string" (rule `type`); received 5
"#);
    insta::assert_snapshot!(refused("read", json!({"file": "a"})), @r#"
the arguments of `read` do not fit:
- the arguments: Additional properties are not allowed ('file' was unexpected) (rule `additionalProperties`); received {"file":"a"}
- the arguments: "path" is a required property (rule `required`); received {"file":"a"}
"#);
    insta::assert_snapshot!(refused("read", json!({"path": "a", "ofset": 1})), @r#"
the arguments of `read` do not fit:
- the arguments: Additional properties are not allowed ('ofset' was unexpected) (rule `additionalProperties`) (did you mean "offset"?); received {"path":"a","ofset":1}
"#);
    insta::assert_snapshot!(refused("read", json!({"path": "a", "limit": "many"})), @r#"
the arguments of `read` do not fit:
- /limit: the value is not of type "integer" (rule `type`); received "many"
"#);
    insta::assert_snapshot!(refused("read", json!("{\"path\": ")), @r#"
the arguments of `read` do not fit:
- the arguments: they end too early (EOF while parsing a value at line 1 column 9); was the answer too long? (rule `type`: object); received "{\"path\": "
"#);
    insta::assert_snapshot!(refused("ls", json!({"limit": 1.5})), @r#"
the arguments of `ls` do not fit:
- /limit: the value is not of type "integer" (rule `type`); received 1.5
"#);
    insta::assert_snapshot!(refused("ls", json!(null)), @r#"
the arguments of `ls` do not fit:
- the arguments: the value is not of type "object" (rule `type`); received null
"#);
    insta::assert_snapshot!(refused("bash", json!({"command": "x", "timeout": -1})), @r"
the arguments of `bash` do not fit:
- /timeout: the value is less than or equal to the minimum of 0 (rule `exclusiveMinimum`); received -1
");
    insta::assert_snapshot!(refused("bash", json!({"command": "x", "timeout": "inf"})), @r#"
the arguments of `bash` do not fit:
- /timeout: the value is not of type "number" (rule `type`); received "inf"
"#);
    insta::assert_snapshot!(refused("bash", json!({"command": "x", "stop": "1"})), @"`command` and `stop` exclude each other: give exactly one");
    insta::assert_snapshot!(refused("bash", json!({"stop": "1", "timeout": 3})), @"`stop` stands alone: it takes no `timeout` and no `background`");
    insta::assert_snapshot!(refused("bash", json!({})), @"give `command`, or `stop` with the name of a job");
    let long = refused("bash", json!({"stop": "x".repeat(65)}));
    assert!(long.contains("- /stop: ") && long.contains("(rule `maxLength`)"), "{long}");
    let long = refused("write", json!({"path": "a", "content": ["x".repeat(9000)]}));
    assert!(long.len() < 1000, "{long}");
}

/// T-1: numbers given as strings are accepted and coerced.
#[test]
fn numbers_given_as_strings_are_accepted() {
    let hands = Scripted::new(vec![
        Ok(reply(Outcome::Binary { kind: "x".to_owned(), bytes: 1 }, "")),
        Ok(reply(Outcome::Binary { kind: "x".to_owned(), bytes: 1 }, "")),
        Ok(ended(End::Exited(0), "")),
    ]);
    call_with(&hands, &session(), "read", json!({"path": "12", "offset": "3", "limit": " 40 "}));
    // An integer to JSON schema, and what some models write.
    call_with(&hands, &session(), "read", json!({"path": "12", "offset": 3.0, "limit": "4e1"}));
    call_with(&hands, &session(), "bash", json!({"command": "5", "timeout": "2.5"}));
    let asked = hands.asked.borrow();
    let window = Request::Read { path: "12".to_owned(), offset: Some(3), limit: Some(40), images: true };
    assert_eq!((&asked[0].request, &asked[1].request), (&window, &window));
    assert_eq!((asked[2].body.as_ref(), asked[2].timeout), (b"5".as_slice(), Duration::from_millis(2500)));
}

#[test]
fn unknown_tools_are_named_with_those_there_are() {
    let result = call("Bash", json!({}), Vec::new());
    assert_eq!(
        told(&result),
        (
            true,
            Some(Cause::NotFound),
            "there is no tool \"Bash\"; did you mean `bash`? There are `bash`, `edit`, `find`, `grep`, `ls`, `read`, `write`."
        )
    );
}

/// T-2: a call that gets no answer is a result with its cause.
#[test]
fn lost_calls_are_results() {
    let gone = Gone { kind: GoneKind::Died, message: "its container died".to_owned() };
    for (error, cause) in [
        (CallError::Gone(gone), Cause::SandboxGone),
        (CallError::Gone(Gone { kind: GoneKind::Engine, message: "x".to_owned() }), Cause::EngineGone),
        (CallError::Interrupted, Cause::Interrupted),
    ] {
        let text = error.to_string();
        let result = call("ls", json!({}), vec![Err(error)]);
        assert_eq!(told(&result), (true, Some(cause), text.as_str()));
    }
    let failed = reply(Outcome::Failed { cause: Cause::NotFound, message: "no such file: /tmp/x".to_owned() }, "");
    let result = call("read", json!({"path": "/tmp/x"}), vec![Ok(failed)]);
    assert_eq!(told(&result), (true, Some(Cause::NotFound), "no such file: /tmp/x"));
    let result = call("read", json!({"path": "x"}), vec![Ok(reply(Outcome::Nothing, ""))]);
    assert_eq!(told(&result), (true, Some(Cause::Invalid), "the sandbox gave an answer of another kind (nothing)"));
}

/// T-BASH-8: non-zero exits, signals and empty output.
#[test]
fn commands_end_in_words() {
    assert_eq!(told(&bash(ended(End::Exited(0), "hi\n"))), (false, None, "hi\n"));
    assert_eq!(told(&bash(ended(End::Exited(0), ""))), (false, None, "(no output)"));
    assert_eq!(told(&bash(ended(End::Exited(3), "out"))), (true, Some(Cause::Exit), "out\n[exit code 3]"));
    assert_eq!(told(&bash(ended(End::Exited(1), ""))), (true, Some(Cause::Exit), "(no output)\n[exit code 1]"));
    assert_eq!(
        told(&bash(ended(End::Signalled(11), "x\n"))),
        (true, Some(Cause::Signal), "x\n[killed by signal 11 (SIGSEGV)]")
    );
    assert_eq!(told(&bash(ended(End::Cancelled, "x\n"))), (true, Some(Cause::Cancelled), "x\n[cancelled]"));
    assert_eq!(
        told(&bash(ended(End::SweptAway, ""))),
        (
            true,
            Some(Cause::Signal),
            "(no output)\n[killed: another command left processes that only a kill of every process could end]"
        )
    );
    assert_eq!(bash(ended(End::Exited(3), "")).details["end"], json!({"exited": 3}));
}

/// T-BASH-3, bug 9: a timeout keeps the output and says how long it was; bug 6: the default applies when none is given;
/// bug 7: the session's remaining time caps it.
#[test]
fn timeouts_say_how_long_they_were() {
    let timed_out = |args: Value| {
        let hands = Scripted::new(vec![Ok(ended(End::TimedOut, "before\n"))]);
        let result = call_with(&hands, &session(), "bash", args);
        assert_eq!((result.is_error, result.cause), (true, Some(Cause::Timeout)));
        let sent = hands.asked.borrow()[0].timeout;
        (sent.as_millis(), result.text)
    };
    let (sent, text) = timed_out(json!({"command": "x"}));
    assert_eq!((sent, text.as_str()), (50_000, "before\n[timed out after 50 s]"));
    let (sent, text) = timed_out(json!({"command": "x", "timeout": 1.5}));
    assert_eq!((sent, text.as_str()), (1500, "before\n[timed out after 1.5 s]"));
    let (sent, text) = timed_out(json!({"command": "x", "timeout": 1000}));
    assert_eq!((sent, text.as_str()), (100_000, "before\n[timed out after 100 s (all that the session had left)]"));
}

/// T-BASH-8: memory, processes and a full /tmp are named with their limits.
#[test]
fn limits_that_were_hit_are_named() {
    let oom = Reply { oom: true, ..ended(End::Signalled(9), "") };
    insta::assert_snapshot!(bash(oom).text, @r"
(no output)
[out of memory: the limit of 256m was hit and a process was killed]
[killed by signal 9 (SIGKILL)]
");
    let survived = Reply { oom: true, ..ended(End::Exited(0), "went on\n") };
    let result = bash(survived);
    assert_eq!((result.is_error, result.cause), (false, None));
    insta::assert_snapshot!(result.text, @r"
went on
[out of memory: the limit of 256m was hit and a process was killed]
");
    let pids = bash(Reply { pids: true, ..ended(End::Exited(254), "fork: retry\n") });
    assert_eq!(pids.cause, Some(Cause::Pids));
    insta::assert_snapshot!(pids.text, @r"
fork: retry
[the limit of 64 processes was hit]
[exit code 254]
");
    let mut full = ended(End::Exited(1), "dd: no space\n");
    if let Outcome::Bash(end) = &mut full.outcome {
        end.full = Some(Space { bytes: 1000, bytes_used: 1000, inodes: 50, inodes_used: 7 });
    }
    let full = bash(full);
    assert_eq!(full.cause, Some(Cause::NoSpace));
    insta::assert_snapshot!(full.text, @r"
dd: no space
[/tmp is full: 1000 of 1000 bytes and 7 of 50 inodes are in use; delete something]
[exit code 1]
");
}

/// T-BASH-7, T-5: a cut output says how much there was, what is left out and where the rest is.
#[test]
fn cut_output_says_what_is_missing() {
    let cut = |kept: Option<&str>, kept_is_cut: bool| {
        let end = BashEnd {
            end: End::Exited(0),
            head: 6,
            total_bytes: 100_000,
            total_lines: 5000,
            omitted_bytes: 99_989,
            omitted_lines: 4998,
            kept: kept.map(str::to_owned),
            kept_is_cut,
            full: None,
            duration_ms: 1,
        };
        bash(reply(Outcome::Bash(end), "first\nlast\n")).text
    };
    insta::assert_snapshot!(cut(Some("/tmp/.runner/out/1.log"), false), @r"
first
[output cut: 5000 lines, 100000 bytes in all; 4998 lines, 99989 bytes left out here; all of it is in /tmp/.runner/out/1.log: use read with offset]
last
");
    insta::assert_snapshot!(cut(Some("/tmp/.runner/out/1.log"), true), @r"
first
[output cut: 5000 lines, 100000 bytes in all; 4998 lines, 99989 bytes left out here; its beginning and end are in /tmp/.runner/out/1.log: use read with offset]
last
");
    insta::assert_snapshot!(cut(None, false), @r"
first
[output cut: 5000 lines, 100000 bytes in all; 4998 lines, 99989 bytes left out here; it was not kept: redirect it to a file under /tmp and use read]
last
");
}

/// T-6, bug 16: invalid UTF-8 is shown as U+FFFD, NUL as it is.
#[test]
fn any_bytes_are_shown_as_text() {
    let mut answer = ended(End::Exited(0), "12345");
    answer.payload = b"a\xffb\0c".to_vec();
    assert_eq!(told(&bash(answer)), (false, None, "a\u{fffd}b\0c"));
}

/// T-5: 50 KiB of invalid bytes would be 150 KiB of text; the counts stay right.
#[test]
fn invalid_bytes_do_not_exceed_the_limit() {
    let bytes = b"\xff".repeat(50 * 1024);
    let mut answer = ended(End::Exited(0), "");
    if let Outcome::Bash(end) = &mut answer.outcome {
        (end.head, end.total_bytes, end.total_lines) = (51_200, 51_200, 1);
    }
    answer.payload = bytes;
    let text = bash(answer).text;
    let shown = text.matches('\u{fffd}').count();
    assert!(text.len() <= text::MAX_BYTES + 300, "{}", text.len());
    let note = format!("[output cut: 1 lines, 51200 bytes in all; 0 lines, {} bytes left out here;", 51_200 - shown);
    assert!(text.contains(&note), "{note}");
}

/// T-BASH-1: an image without bash is said once.
#[test]
fn the_missing_bash_is_said_once() {
    let mut hands = Scripted::new(vec![Ok(ended(End::Exited(0), "a\n")), Ok(ended(End::Exited(0), "b\n"))]);
    hands.shell = Some("/bin/sh");
    let session = session();
    let first = call_with(&hands, &session, "bash", json!({"command": "x"}));
    let second = call_with(&hands, &session, "bash", json!({"command": "x"}));
    assert_eq!(first.text, "a\n[this image has no bash: commands run under /bin/sh]");
    assert_eq!(second.text, "b\n");
}

/// T-BASH-4: jobs.
#[test]
fn jobs_start_and_stop_in_words() {
    let started = reply(Outcome::Job { job: "1".to_owned(), log: "/tmp/.runner/jobs/1.log".to_owned() }, "");
    let hands = Scripted::new(vec![
        Ok(started),
        Ok(reply(Outcome::JobEnded { end: End::Cancelled, before: false }, "")),
        Ok(reply(Outcome::JobEnded { end: End::Exited(2), before: true }, "")),
    ]);
    let session = session();
    let started = call_with(&hands, &session, "bash", json!({"command": "serve", "background": true}));
    assert_eq!(told(&started), (false, None, r#"{"job":"1","log":"/tmp/.runner/jobs/1.log"}"#));
    assert_eq!(told(&call_with(&hands, &session, "bash", json!({"stop": "1"}))), (false, None, "job 1 ended: stopped"));
    let again = call_with(&hands, &session, "bash", json!({"stop": "1"}));
    assert_eq!(told(&again), (false, None, "job 1 had ended before: exit code 2"));
    let requests: Vec<Request> = hands.asked.borrow().iter().map(|call| call.request.clone()).collect();
    let stop = Request::StopJob { job: "1".to_owned() };
    assert_eq!(requests, [Request::Bash { background: true }, stop.clone(), stop]);
}

/// T-BASH-2: what cannot be sent is refused with the limit.
#[test]
fn bodies_over_the_limit_are_refused() {
    let huge = "x".repeat(usize::try_from(protocol::MAX_BODY).unwrap() + 1);
    let result = call("bash", json!({"command": huge}), Vec::new());
    assert_eq!((result.is_error, result.cause), (true, Some(Cause::Limit)));
    insta::assert_snapshot!(result.text, @"the command has 67108865 bytes, more than the 64m that fit into a call");
    let result = call("write", json!({"path": "/tmp/x", "content": huge}), Vec::new());
    assert_eq!((result.is_error, result.cause), (true, Some(Cause::Limit)));
}
