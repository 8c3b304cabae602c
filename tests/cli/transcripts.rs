//! Subcommands as people meet them, with the whole of what they print: what is right, and what is wrong usage.

use std::fs::File;
use std::process::Stdio;

use serde_json::json;

use crate::harness::{MINIMAL, Place, Ran, Relay, Rule, Session, listed_image};

/// All that a run said, and its exit code.
fn told(place: &Place, ran: &Ran) -> String {
    place.masked(&format!("{}{}exit code {}", ran.stdout, ran.stderr, ran.code))
}

/// A single call: its text and nothing else; what is wrong with the command line on standard error.
#[test]
fn of_tool() {
    let place = Place::new();
    let said = |args: &[&str]| told(&place, &place.run([&["tool", "--agent", "worker"], args].concat()));
    insta::assert_snapshot!(said(&["bash", r#"{"command": "echo hi"}"#]), @"
hi
exit code 0
");
    insta::assert_snapshot!(said(&["bash", r#"{"command": "echo hi >&2; exit 3"}"#]), @"
hi
[exit code 3]
exit code 1
");
    insta::assert_snapshot!(said(&["read", r#"{"path": "/tmp/none"}"#]), @"
/tmp/none does not exist
exit code 1
");
    insta::assert_snapshot!(said(&["bsh", "{}"]), @r#"
there is no tool "bsh"; did you mean `bash`? There are `bash`, `edit`, `find`, `grep`, `ls`, `read`, `write`.
exit code 1
"#);
    insta::assert_snapshot!(said(&["bash", "id"]), @r#"
error: the arguments are not JSON: expected value at line 1 column 1
hint: such as '{"command": "id"}', in single quotes
exit code 2
"#);
    insta::assert_snapshot!(told(&place, &place.run(["tool", "--agent", "workr", "ls", "{}"])), @"
error: PROJECT has no agent `workr`
hint: did you mean worker?
exit code 2
");
}

/// Calls line by line: an answer a line, one that is no call included.
#[test]
fn of_tool_with_lines() {
    let place = Place::new();
    let lines = [
        r#"{"id": "a", "tool": "write", "args": {"path": "/tmp/x", "content": "hi\n"}}"#,
        "nonsense",
        r#"{"id": 7, "tool": "read", "args": {"path": "/tmp/x"}}"#,
        r#"{"id": 8, "tool": "ls", "args": {"path": "/none"}}"#,
    ];
    let calls = place.write("calls", lines.join("\n"));
    let mut command = place.command(["tool", "--agent", "worker", "-"]);
    command.stdin(Stdio::from(File::open(calls).expect("it is there")));
    let ran = Ran::from(command.output().expect("the program starts"));
    insta::assert_snapshot!(told(&place, &ran), @r#"
{"id":"a","is_error":false,"text":"wrote /tmp/x: 3 bytes","details":{"path":"/tmp/x","bytes":3,"replaced":false}}
{"id":null,"is_error":true,"text":"line 2 of the input is not a call such as {\"id\": 1, \"tool\": \"ls\", \"args\": {}}: expected ident at line 1 column 2","cause":"invalid"}
{"id":7,"is_error":false,"text":"hi\n","details":{"path":"/tmp/x","first":1,"last":1,"total_lines":1,"total_bytes":3,"clipped":[],"cut":false}}
{"id":8,"is_error":true,"text":"/none does not exist","cause":"not_found"}
exit code 0
"#);
}

/// The tools for people, each argument with its kind and what it is for.
#[test]
fn of_tools() {
    let place = Place::bare();
    insta::assert_snapshot!(told(&place, &place.run(["tools"])), @r#"
acquire_lock resource_key ttl_seconds?
  Locks a shared resource (an issue, a pull request, a deployment) before you work on it, so that no other session does. You hold at most one lock: release it when you are done and before you take another. If the answer is not `acquired: true`, for whatever reason, skip that resource: do not wait, do not try again, do not go on without the lock. A lock expires by itself; ask for the same key again to renew it, and release it with `release_lock`. `fencing_token` only grows: give it to systems that can refuse an older one.
  resource_key: string — A URI that names the resource, such as github://acme/app/issues/42, lock://repo/branch or file:///x.
  ttl_seconds: number — Seconds until it expires, above 0 and at most 86400; the project's resourceLockTimeout by default.

bash command? timeout? background? stop?
  Runs a command with `bash -c` in the sandbox and returns its output, stdout and stderr merged. Each call is a fresh shell: working directory, variables and umask never carry over; files under /tmp do. stdin is empty and there is no terminal. When the shell ends, every process it started is ended too, unless `background` is true. Only /tmp can be written; there is no network. Long output is cut in the middle and kept in a file.
  command: string — The command. Exactly one of `command` and `stop` is given.
  timeout: number — Seconds after which the command is ended; 120 unless the agent is set up otherwise, never more than the session has left. Does not apply to background jobs.
  background: boolean — Start the command as a job and return {job, log} at once. The job runs until it exits, is stopped or the session ends; read its log with `read`.
  stop: string — Name of a job to end.

call_agent target_agent context
  Calls another agent of the project to do something, and returns a `call_id` at once. It works in a session and a sandbox of its own and knows only the `context` that you give it. Make several calls if you need them, go on with your own work, and ask for results with `check_call`, or wait for one with `wait_for_trigger`. You cannot call yourself or an agent that you were called by.
  target_agent: string — The agent's name.
  context: any — What it is to do and all that it has to know: text, or any JSON of at most 1 MiB.

check_call call_id
  Says how a call stands that you made with `call_agent`: `pending`, `running`, `completed` with its value, or `error`. Do work between polls instead of asking again and again; if you have nothing else to do, `wait_for_trigger` with type agent_trigger waits for the result without costing anything.
  call_id: string — What `call_agent` returned.

edit path edits? oldText? newText?
  Replaces parts of a file under /tmp. Each `oldText` must stand in the file exactly once, as it was before any of the edits, and edits may not overlap; all of them are made, or none. Line endings are those of the file: write \n for either. Everything else in the file stays byte for byte. The result is a unified diff. Give `edits`, or `oldText` and `newText` for a single one. Relative paths start at the working directory, which is read-only.
  path: string — The file, under /tmp.
  edits: array — The edits, in any order.
  oldText: string — Text that stands in the file exactly once; with lines around it where it would stand there more often.
  newText: string — What replaces it.

find pattern path? limit? includeIgnored?
  Finds files and folders of the sandbox whose path below `path` fits a glob: `*.rs` at any depth, `src/*.ts`, `**/test/*.{js,ts}`. Shows sorted paths, `/` after folders. Hidden names are found, links are not followed. Left out are `.git` and what .gitignore and .ignore exclude, unless `includeIgnored` is true or the pattern is the path of one file; the last line counts them. Without `path` it looks in the working directory.
  pattern: string — The glob; a final `/` means folders only.
  path: string — The folder.
  limit: integer — Most paths, 1000 by default.
  includeIgnored: boolean — Find what ignore files exclude, too.

grep pattern path? glob? ignoreCase? literal? context? limit? includeIgnored?
  Searches a file of the sandbox, or all files of a folder, line by line for a regular expression in Rust's syntax (ripgrep's engine). Shows `path:line: text`, and lines of context as `path-line- text`; long lines are clipped at 500 characters around the match. Hidden files are searched. Not searched are `.git`, links, binary files, in folders files over 64 MiB, and what .gitignore and .ignore exclude unless `includeIgnored` is true or the path itself is named; the last line counts them. Without `path` it searches the working directory.
  pattern: string — What to search for, within one line.
  path: string — The file or folder.
  glob: string — Only files that this fits: `*.rs` at any depth, `src/**/*.ts` from path on, `!*.md` for all others.
  ignoreCase: boolean — Letters match in either case.
  literal: boolean — The pattern is plain text.
  context: integer — Lines shown before and after each match, 0 by default.
  limit: integer — Most matching lines, 100 by default.
  includeIgnored: boolean — Search what ignore files exclude, too.

ls path? limit?
  Lists a folder of the sandbox: one entry a line, names that begin with a dot included, sorted without regard to case, `/` after folders, `@ -> target` after links. Without `path` it lists the working directory.
  path: string — The folder.
  limit: integer — Most entries, 500 by default.

read path offset? limit?
  Reads a text file of the sandbox: at most 2000 lines or 50 KiB at once, `offset` and `limit` choose the lines. Lines longer than 2000 characters are clipped. PNG, JPEG, GIF and WebP files come back as images, other binary files as their type and size. Relative paths start at the working directory, `~` is the home directory.
  path: string — The file.
  offset: integer — First line, counted from 1.
  limit: integer — Most lines.

release_lock resource_key
  Releases the lock that you hold, as soon as you are done with its resource. What you still hold when your session ends is released then.
  resource_key: string — The URI that you locked.

return_value value
  Returns a value to the agent that called you: use it when <trigger> says that you were called, or when a call woke you. The last value wins. It does not end your session: when you are done, say so and call no more tools.
  value: any — The value: text, or any JSON of at most 1 MiB.

set_status text
  Tells the people who watch what you are doing, in a few words, such as "reviewing PR 42". Set it when you begin something new.
  text: string — What you are doing, in one line.

wait_for_trigger type source? event? match? source_agent? timeout?
  Suspends you until something happens, and returns the whole trigger: an event from outside (type webhook), or a call of another agent or the result of a call that you made (type agent_trigger). While you wait your sandbox is paused and nothing is used. Files and background jobs are as you left them afterwards, but their clocks went on, and so do locks: what you hold may expire. If nothing comes in time, the result is an error with the reason `timeout` and you go on.
  type: string — What to wait for.
  source: string — Webhook: name of a source, or a type such as github; any source by default.
  event: string — Webhook: the provider's event, such as pull_request.
  match: object — Dot paths and the values that they must lead to, such as {"repo": "acme/app", "action": "closed", "labels.0.name": "bug"}. A dot inside a key is written \.
  source_agent: string — Agent trigger: only calls of this agent, and results of calls to it.
  timeout: string — How long to wait at most: 45s, 30m, 1h30m, 2d; at most 30d.

write path content
  Writes a file of the sandbox: creates its folders, replaces what was there in one step and keeps its mode. Only paths under /tmp can be written. Relative paths start at the working directory, which is read-only.
  path: string — The file, under /tmp.
  content: string — The whole new content.

exit code 0
"#);
}

/// `stop`, of a session at work, of one that has ended, and of none.
#[test]
fn of_stop() {
    let place = Place::new();
    place.script(&json!([{"calls": [{"id": "a", "tool": "bash", "args": {"command": "sleep 300", "timeout": 600}}]}]));
    let mut session: Session = place.start(&[]);
    let id = session.id();
    session.container();
    let said = |args: &[&str]| told(&place, &place.run([&["stop"], args].concat()));
    insta::assert_snapshot!(said(&[&id]), @"
SESSION  stopped
exit code 0
");
    session.end().exits(125);
    insta::assert_snapshot!(said(&[&id, &id[..30]]), @"
SESSION  had ended already (stopped)
exit code 0
");
    insta::assert_snapshot!(said(&[&id, "ffff"]), @r#"
error: no session "ffff"; `runner ps --all` lists them
exit code 2
"#);
    insta::assert_snapshot!(said(&[]), @"
error: the following required arguments were not provided:
  <SESSION>...

Usage: runner stop <SESSION>...

For more information, try '--help'.
exit code 2
");
}

/// Images of an engine: ours, one that was removed while we looked, one without a name, one with a name that is none.
#[test]
fn of_image() {
    let place = Place::new();
    let relay = Relay::new();
    let id = format!("sha256:{}", "5".repeat(64));
    let image = |tags: &[&str]| listed_image(&id, tags);
    let listed =
        [image(&["runner/minimal:latest", "runner-test/gone:1"]), image(&["<none>:<none>"]), image(&["Odd Name"])];
    relay.rule("/images/json", Rule::Answer(json!(listed)));
    let said = |args: &[&str]| {
        let mut command = place.command([&["image"], args].concat());
        command.env("DOCKER_HOST", relay.address());
        told(&place, &Ran::from(command.output().expect("the program starts")))
    };
    insta::assert_snapshot!(said(&["ls"]), @"
IMAGE                  ID            SIZE    FOR AGENTS, AS FAR AS SEEN
Odd Name               ID  4.3 MB  no: it is not an image reference; write name[:tag], like debian:12
runner/minimal:latest  ID  4.3 MB  yes
exit code 0
");
    relay.heal();
    insta::assert_snapshot!(said(&["check", "runner-test/no-such:1"]), @"
error: image runner-test/no-such:1 is not on this engine; fetch it (`docker pull runner-test/no-such:1`), or set local.image to another
exit code 3
");
    insta::assert_snapshot!(said(&["rm", "NO/NAME"]), @"
error: image NO/NAME is refused: upper case is not allowed in an image's name; write no/name
exit code 6
");
    insta::assert_snapshot!(said(&["build", "--base", "arch"]), @"
error: invalid value 'arch' for '--base <BASE>'
  [possible values: minimal, debian]

For more information, try '--help'.
exit code 2
");
    relay.rule("/images/json", Rule::Answer(json!([])));
    insta::assert_snapshot!(said(&["ls"]), @"
IMAGE  ID  SIZE  FOR AGENTS, AS FAR AS SEEN
the engine has none; `runner image build` makes one
exit code 0
");
}

/// What an agent in our small image has and lacks.
#[test]
fn of_image_check() {
    let place = Place::new();
    let ran = place.run(["image", "check", MINIMAL]);
    let versions = regex::Regex::new(r"version \d\S+ \S+|\(busybox\) \S+|\d\.\d MB").expect("a pattern");
    insta::assert_snapshot!(versions.replace_all(&told(&place, &ran), "N"), @"
runner/minimal DIGEST, N
       WHAT
has    bash          GNU bash, N
has    tar           tar N
has    awk
has    home          /tmp/home: settings can be written, programs run from it
lacks  git           no version control, no patches by git diff
lacks  python3       no Python scripts
lacks  pip3          no Python packages can be installed
lacks  node          no JavaScript
lacks  npm           no npm scripts
lacks  rg            no ripgrep in commands; the tools grep and find need none
lacks  curl          no HTTP from commands, for agents that have a network
lacks  jq            no JSON in shell lines
lacks  gcc           no C compiler
lacks  make          no Makefiles
lacks  ssh           no ssh, nor git over it, for agents that have a network
lacks  GNU tools     options of ls, sed, grep, find and their like that only GNU has
lacks  certificates  no HTTPS, for agents that have a network
agents can run in it
exit code 0
");
}

/// What was mistyped comes back with what there is.
#[test]
fn of_wrong_usage() {
    let place = Place::new();
    let said = |args: &[&str]| told(&place, &place.run(args));
    insta::assert_snapshot!(said(&["strat"]), @"
error: unrecognized subcommand 'strat'

  tip: a similar subcommand exists: 'start'

Usage: runner <COMMAND>

For more information, try '--help'.
exit code 2
");
    insta::assert_snapshot!(said(&["start"]), @"
error: the following required arguments were not provided:
  --agent <NAME|PATH>

Usage: runner start --agent <NAME|PATH>

For more information, try '--help'.
exit code 2
");
    insta::assert_snapshot!(said(&["start", "--agent", "worker", "--model", "scrpt"]), @r#"
error: --model names "scrpt", which the project does not have
hint: did you mean `script`?
exit code 2
"#);
    insta::assert_snapshot!(said(&["start", "--agent", "worker", "--in", "none"]), @"
error: --in none: No such file or directory
hint: name a file or folder of this machine: --in PATH[:/tmp/…]
exit code 2
");
    insta::assert_snapshot!(said(&["show", "ffff"]), @r#"
error: no session "ffff"; `runner ps --all` lists them
exit code 2
"#);
    insta::assert_snapshot!(said(&["logs"]), @"
error: the following required arguments were not provided:
  <SESSION>

Usage: runner logs <SESSION>

For more information, try '--help'.
exit code 2
");
    insta::assert_snapshot!(said(&["doctor", "--fx"]), @"
error: unexpected argument '--fx' found

Usage: runner doctor [OPTIONS]

For more information, try '--help'.
exit code 2
");
    insta::assert_snapshot!(said(&["completions", "sh"]), @"
error: invalid value 'sh' for '<SHELL>'
  [possible values: bash, elvish, fish, powershell, zsh]

For more information, try '--help'.
exit code 2
");
    insta::assert_snapshot!(said(&["ps", "--all"]), @"
SESSION  AGENT  STATE  STARTED  AGE  TOKENS  LOCK  STATUS
exit code 0
");
    let mut command = place.command(["ps"]);
    command.env("RUNNER_STATE", "relative");
    insta::assert_snapshot!(told(&place, &Ran::from(command.output().expect("the program starts"))), @r#"
error: RUNNER_STATE is "relative"; it must be an absolute path
exit code 2
"#);
}
