//! The attack program (`*.c`), run as the agent inside a real container. It makes each attack and prints what it got and
//! what it must get; here both are compared. Each section of the program is a test.

mod profile;
pub(crate) mod program;
mod sandbox;

use std::fmt::Write as _;

/// One line of the program.
struct Attack<'a> {
    name: &'a str,
    /// What may come.
    expected: Vec<&'a str>,
    /// What came.
    got: &'a str,
}

/// Reads the program's output; the last line says that it came to its end.
fn attacks(output: &str) -> Vec<Attack<'_>> {
    let mut attacks = Vec::new();
    for line in output.lines() {
        let [name, expected, got, _errno] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a line of the attack program: {line:?} in\n{output}")
        };
        attacks.push(Attack { name, expected: expected.split('|').collect(), got });
    }
    assert!(
        attacks.pop().is_some_and(|last| last.name == "end"),
        "the attack program did not come to its end:\n{output}"
    );
    attacks
}

/// Panics with every attack that got something else than it must.
fn assert_held(section: &str, output: &str, at_least: usize) {
    let attacks = attacks(output);
    let mut report = String::new();
    for Attack { name, expected, got } in attacks.iter().filter(|attack| !attack.expected.contains(&attack.got)) {
        writeln!(report, "  {name}: got {got}, expected {}", expected.join(" or ")).expect("a string");
    }
    assert!(report.is_empty(), "attacks of section {section}:\n{report}");
    assert!(attacks.len() >= at_least, "section {section} made {} attacks only", attacks.len());
}

/// Runs one section in a sandbox of its own.
fn attack(section: &str, at_least: usize) {
    let program = program::build("attack", program::SECTIONS);
    let command = format!("/tmp/attack {section}");
    let run = &sandbox::run_in_sandbox(&[(&program, "/tmp/attack")], &[&command])[0];
    assert!(run.ok, "{}", run.output);
    assert_held(section, &run.output, at_least);
}

/// Every system call by its number: refused ones answer as documented and are not executed, the others reach the kernel.
#[test]
fn system_calls_by_name() {
    attack("syscalls", 380);
}

/// Calls judged by their arguments, all socket families, types and protocols, `int 0x80` and x32.
#[test]
fn system_calls_by_argument() {
    attack("arguments", 200);
}

/// What agents' programs and PID 1 need works under the profile.
#[test]
fn what_programs_need_works() {
    attack("features", 14);
}

/// uid, groups, capabilities, environment, descriptors and limits are as ordered and cannot be regained; bug 51.
#[test]
fn identity_cannot_be_changed() {
    attack("identity", 60);
}

/// PID 1 cannot be signalled, limited, slowed, read, written, traced or reached through its socket.
#[test]
fn pid_1_is_out_of_reach() {
    attack("init", 120);
}

/// Nor can the file worker, although its file-system uid is the agent's.
#[test]
fn the_file_worker_is_out_of_reach() {
    attack("worker", 120);
}

/// Masked paths are empty or unreadable; mounts and devices are those that were ordered.
#[test]
fn nothing_of_the_host_can_be_seen() {
    attack("paths", 100);
}

/// Writes reach /tmp and /dev/shm only; links, setuid bits and mounts do not help.
#[test]
fn nothing_outside_tmp_can_be_written() {
    attack("writes", 200);
}

/// No interface but the loopback, no route, no socket of the host's.
#[test]
fn there_is_no_network() {
    attack("network", 12);
}

/// Bugs 1 and 3: whatever a command leaves behind is gone when the next one starts, however it hid.
#[test]
fn no_process_outlives_its_command() {
    let program = program::build("attack", program::SECTIONS);
    let runs = sandbox::run_in_sandbox(&[(&program, "/tmp/attack")], &["/tmp/attack leave", "/tmp/attack left"]);
    assert_held("leave", &runs[0].output, 1);
    assert_held("left", &runs[1].output, 1);
}
