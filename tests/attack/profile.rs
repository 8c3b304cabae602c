//! seccomp/agent.json says what seccomp/README.md and the table of the attack program say.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

const PROFILE: &str = include_str!("../../seccomp/agent.json");
const README: &str = include_str!("../../seccomp/README.md");
const TABLE: &str = include_str!("syscalls.h");

/// The part of Docker's format that engines of API 1.41 know. Others are refused here: such an engine would drop them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Profile {
    default_action: String,
    architectures: Vec<String>,
    syscalls: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    comment: String,
    names: Vec<String>,
    action: String,
    errno_ret: Option<i32>,
    #[serde(default)]
    args: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    index: u32,
    op: String,
    /// The mask.
    value: u64,
    /// What is left under the mask.
    value_two: u64,
}

fn profile() -> Profile {
    serde_json::from_str(PROFILE).expect("agent.json is a profile in Docker's format")
}

/// The attack program's table: number and verdict of each system call.
fn table() -> BTreeMap<String, (u32, String)> {
    let lines = TABLE.lines().filter_map(|line| line.strip_prefix("SYSCALL(")?.strip_suffix(')'));
    let mut numbers = BTreeSet::new();
    let mut table = BTreeMap::new();
    for line in lines {
        let [number, name, verdict] = line.split(", ").collect::<Vec<_>>()[..] else { panic!("not a call: {line}") };
        let number = number.parse().expect("a number");
        assert!(numbers.insert(number), "two calls have the number {number}");
        let before = table.insert(name.to_owned(), (number, verdict.to_owned()));
        assert!(before.is_none(), "{name} is named twice");
    }
    table
}

/// What the profile does with a call, in the table's words.
fn verdict(profile: &Profile, name: &str) -> &'static str {
    let rules: Vec<_> = profile.syscalls.iter().filter(|rule| rule.names.iter().any(|other| other == name)).collect();
    match rules[..] {
        [] => "REFUSED",
        [rule] if rule.args.is_empty() => match (rule.action.as_str(), rule.errno_ret) {
            ("SCMP_ACT_ALLOW", None) => "ALLOWED",
            ("SCMP_ACT_ERRNO", Some(0)) => "NOTHING",
            ("SCMP_ACT_ERRNO", Some(38)) => "ABSENT",
            other => panic!("{name}: unexpected action {other:?}"),
        },
        _ => {
            // A rule without conditions beside one with them would win and allow everything.
            assert!(rules.iter().all(|rule| !rule.args.is_empty()), "{name} has rules with and without conditions");
            assert!(rules.iter().all(|rule| rule.action == "SCMP_ACT_ALLOW"), "{name} is not allowed by value");
            "BY_ARGUMENT"
        }
    }
}

/// What is not named is refused, and only 64-bit calls exist: `int 0x80` and x32 die.
#[test]
fn refuses_by_default_and_knows_one_architecture() {
    let profile = profile();
    assert_eq!(profile.default_action, "SCMP_ACT_ERRNO");
    assert_eq!(profile.architectures, ["SCMP_ARCH_X86_64"]);
}

/// Engines accept unknown names without a word, so a typing error would go unseen.
#[test]
fn names_are_real_and_do_what_the_table_says() {
    let (profile, table) = (profile(), table());
    for name in profile.syscalls.iter().flat_map(|rule| &rule.names) {
        assert!(table.contains_key(name), "agent.json names {name}, which is not a system call");
    }
    let mut differing = Vec::new();
    for (name, (_, expected)) in &table {
        let expected = match expected.as_str() {
            "NEWER" => "ALLOWED",
            "UNFILTERED" => "REFUSED",
            other => other,
        };
        let found = verdict(&profile, name);
        if found != expected {
            differing.push(format!("{name}: {found} in agent.json, {expected} in syscalls.h"));
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}

/// The attack program calls by the table's numbers, so they must be the kernel's.
#[test]
fn numbers_are_the_kernels() {
    let table = table();
    let macros =
        Command::new("gcc").args(["-dM", "-E", "-include", "asm/unistd_64.h", "-x", "c", "/dev/null"]).output();
    let macros = macros.expect("gcc runs");
    assert!(macros.status.success(), "no kernel headers: install libc6-dev");
    let mut compared = 0;
    for line in String::from_utf8(macros.stdout).expect("text").lines() {
        let Some(line) = line.strip_prefix("#define __NR_") else { continue };
        let (name, number) = line.split_once(' ').expect("a name and a number");
        let (known, _) = table.get(name).unwrap_or_else(|| panic!("syscalls.h lacks {name}, which the headers have"));
        assert_eq!(number, known.to_string(), "number of {name}");
        compared += 1;
    }
    assert!(compared > 300, "the headers name {compared} calls only");
}

/// security.md's own list of what must never be allowed, whatever the arguments.
#[test]
fn dangerous_calls_are_not_allowed() {
    const REFUSED: &str = "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd \
        name_to_handle_at open_by_handle_at fanotify_init fanotify_mark io_setup io_destroy io_submit io_cancel \
        io_getevents io_pgetevents remap_file_pages memfd_secret uretprobe uprobe modify_ldt clock_adjtime ioprio_set \
        shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink \
        mq_timedsend mq_timedreceive mq_notify mq_getsetattr add_key request_key keyctl bpf perf_event_open userfaultfd \
        mount umount2 move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr setns unshare \
        chroot pivot_root quotactl quotactl_fd syslog reboot swapon swapoff kexec_load kexec_file_load init_module \
        finit_module delete_module iopl ioperm acct settimeofday clock_settime adjtimex sethostname setdomainname";
    const ABSENT: &str = "clone3 splice tee vmsplice io_uring_setup io_uring_enter io_uring_register";
    const BY_ARGUMENT: &str = "clone personality socket socketpair mknod mknodat prctl";
    let profile = profile();
    for (names, expected) in
        [(REFUSED, "REFUSED"), (ABSENT, "ABSENT"), (BY_ARGUMENT, "BY_ARGUMENT"), ("sync", "NOTHING")]
    {
        for name in names.split_whitespace() {
            assert_eq!(verdict(&profile, name), expected, "{name}");
        }
    }
}

/// Engines OR several conditions on one argument of a rule, and compare 64 bits where the kernel takes 32.
#[test]
fn conditions_mean_what_they_say() {
    for rule in profile().syscalls {
        let comment = &rule.comment;
        assert!(!comment.is_empty(), "a rule for {:?} has no comment", rule.names);
        let indices: BTreeSet<_> = rule.args.iter().map(|condition| condition.index).collect();
        assert_eq!(indices.len(), rule.args.len(), "{comment}: two conditions on one argument");
        for condition in &rule.args {
            assert_eq!(condition.op, "SCMP_CMP_MASKED_EQ", "{comment}");
            assert!(u32::try_from(condition.value).is_ok(), "{comment}: the upper half is not the kernel's to read");
            assert_eq!(condition.value_two & !condition.value, 0, "{comment}: can never be equal");
        }
    }
}

/// libseccomp 2.5.4 shares equal ends of two calls' comparisons without loading the argument again, so that
/// `socket(INET, STREAM, 1)` passed as `prctl(1)`. A mask of its own keeps socket's last comparison apart.
#[test]
fn the_last_comparison_of_socket_is_shared_with_none() {
    let profile = profile();
    let on =
        |name: &'static str| profile.syscalls.iter().filter(move |rule| rule.names.iter().any(|other| other == name));
    let last = on("socket").flat_map(|rule| &rule.args).filter(|condition| condition.index == 0);
    let last = last.min_by_key(|condition| condition.value_two).expect("socket has conditions");
    assert_eq!((last.value, last.value_two), (0x7fff_ffff, 1));
    let others = ["socketpair", "prctl", "clone", "personality", "mknod", "mknodat"];
    for condition in others.into_iter().flat_map(on).flat_map(|rule| &rule.args) {
        assert_ne!((condition.value, condition.value_two), (last.value, last.value_two));
    }
}

/// Every call is documented with the code that needs it or the reason why it is not there.
#[test]
fn the_readme_explains_every_call() {
    let missing: Vec<_> = table().into_keys().filter(|name| !README.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "seccomp/README.md does not speak of {missing:?}");
}
