//! How a failed command reads, and the limits it can meet.

use serde_json::json;

use crate::harness::Place;

/// T-BASH-8: codes, signals and nothing at all in words.
#[test]
fn ends_are_told_in_words() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(desk.bash("true").ok(), "(no output)");
        assert_eq!(desk.bash("echo out; exit 3").fails("exit"), "out\n[exit code 3]");
        assert_eq!(desk.bash("false").fails("exit"), "(no output)\n[exit code 1]");
        assert_eq!(desk.bash("printf out; kill -9 $$").fails("signal"), "out\n[killed by signal 9 (SIGKILL)]");
        assert_eq!(desk.bash("kill -SEGV $$").fails("signal"), "(no output)\n[killed by signal 11 (SIGSEGV)]");
        assert_eq!(desk.bash("nosuch").fails("exit"), "bash: line 1: nosuch: command not found\n[exit code 127]");
    }
}

/// T-BASH-8, bug 34: a command that eats memory says so with the limit; PID 1 and the session live.
#[test]
fn out_of_memory_is_named() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"64m\"\ntmpSize = \"16m\"\n");
        let mut desk = place.desk();
        for _ in 0..3 {
            let answer = desk.bash("echo eating; exec awk 'BEGIN { x = \"x\"; while (1) x = x x }'");
            let text = answer.fails("oom");
            assert!(
                text.starts_with("eating\n[out of memory: the limit of 64m was hit and a process was killed]"),
                "{text}"
            );
        }
        assert_eq!(desk.call("read", &json!({"path": "config.toml", "limit": 1})).ok().lines().next(), Some("[local]"));
        assert_eq!(desk.bash("echo fine").ok(), "fine\n");
        desk.close().exits(0);
    }
}

/// T-BASH-8: so does one that meets the process limit, and the next call works.
#[test]
fn the_process_limit_is_named() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\npids = 16\n");
        let mut desk = place.desk();
        let block = desk.block();
        let answer = desk.bash("sh -c 'for i in $(seq 40); do sleep 300 & done' 2>/dev/null; exit 1");
        assert_eq!(answer.fails("pids"), "(no output)\n[the limit of 16 processes was hit]\n[exit code 1]");
        block.assert_empty();
        assert_eq!(desk.bash("echo fine").ok(), "fine\n");
        assert_eq!(desk.call("write", &json!({"path": "/tmp/x", "content": "y"})).ok(), "wrote /tmp/x: 1 bytes");
    }
}

/// T-BASH-8: also when the limit is hit as soon as the command begins, whatever else the host has to do meanwhile.
#[test]
fn a_limit_that_is_hit_at_once_is_named() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\npids = 16\n");
        let mut desk = place.desk();
        // With PID 1, the file worker, this job's shell and the command's own there are as many as there may be.
        desk.job("for i in $(seq 12); do sleep 300 & done; touch /tmp/full; wait");
        while desk.call("read", &json!({"path": "/tmp/full"})).is_error() {}
        for round in 0..200 {
            let answer = desk.bash("exec sh -c ': & :'");
            assert_eq!(answer.cause(), "pids", "round {round}: {answer:?}");
        }
    }
}

/// Bug 34: when PID 1 is killed, the session ends by itself, with that cause.
#[test]
fn a_killed_pid_1_ends_the_session() {
    let place = Place::new();
    let mut desk = place.desk();
    desk.bash("true").ok();
    let [container] = &place.containers()[..] else { panic!("one container") };
    let (status, _) = crate::harness::engine("POST", &format!("/containers/{container}/kill?signal=KILL"));
    assert_eq!(status, 204);
    // Between calls, and without another one: the session ends by itself.
    desk.wait().exits(5).complains("the sandbox is gone: ");
    place.assert_clean();
}

/// T-BASH-8, T-WRITE-1, bug 36: a full /tmp is named with size and use by every tool, and all works after a delete.
#[test]
fn a_full_tmp_is_named() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"128m\"\ntmpSize = \"4m\"\ntmpInodes = 64\n");
        let mut desk = place.desk();
        desk.call("write", &json!({"path": "/tmp/old", "content": "old\n"})).ok();

        let filled = desk.bash("head -c 9000000 /dev/zero > /tmp/fill");
        let text = filled.fails("no_space");
        assert!(text.contains("[/tmp is full: 4194304 of 4194304 bytes and "), "{text}");
        assert!(text.ends_with(" of 64 inodes are in use; delete something]\n[exit code 1]"), "{text}");
        for path in ["/tmp/old", "/tmp/new", "/tmp/folder/new"] {
            let refused = desk.call("write", &json!({"path": path, "content": "x".repeat(9000)}));
            let text = refused.fails("no_space");
            assert!(text.starts_with("no space: /tmp uses 4.0 of 4.0 MiB and "), "{text}");
        }
        assert_eq!(desk.call("read", &json!({"path": "/tmp/old"})).ok(), "old\n");
        assert_eq!(desk.call("ls", &json!({"path": "/tmp"})).ok(), ".runner/\nfill\nhome/\nold\n");
        assert_eq!(desk.bash("rm /tmp/fill; echo new > /tmp/new; cat /tmp/new").ok(), "new\n");

        let filled = desk.bash("for i in $(seq 100); do : > /tmp/inode-$i || exit 1; done");
        assert!(filled.fails("no_space").contains(" and 64 of 64 inodes are in use; delete something]"), "{filled:?}");
        let refused = desk.call("write", &json!({"path": "/tmp/more", "content": ""}));
        assert!(refused.fails("no_space").contains(" and 64 of 64 files; "), "{refused:?}");
        let refused = desk.call("write", &json!({"path": "/tmp/old", "content": "x"}));
        refused.fails("no_space");
        assert_eq!(desk.call("read", &json!({"path": "/tmp/old"})).ok(), "old\n");
        let job = desk.call("bash", &json!({"command": "true", "background": true}));
        assert_eq!(job.cause(), "no_space", "{job:?}");
        desk.bash("rm /tmp/inode-*").ok();
        assert_eq!(desk.call("write", &json!({"path": "/tmp/old", "content": "x"})).ok(), "replaced /tmp/old: 1 bytes");
        desk.job("true");
    }
}

/// Bug 34, bug 36: empty files take memory that no kill gives back; so many that PID 1 would be next are refused, in
/// /dev/shm too.
#[test]
fn empty_files_do_not_eat_the_memory() {
    let place = Place::new();
    place.agent("worker", "[local]\nmemory = \"64m\"\n");
    let mut desk = place.desk();
    let name = "x".repeat(200);
    for folder in ["/tmp", "/dev/shm"] {
        for round in ["a", "b"] {
            let made = desk.bash(&format!(
                "cd {folder}; for i in $(seq 60000); do : > $i-{round}-{name} || exit 1; done 2>/dev/null"
            ));
            // /tmp is full all along.
            made.fails("no_space");
        }
        desk.bash(&format!("test $(ls {folder} | wc -l) -gt 1000")).ok();
    }
    assert_eq!(desk.bash("rm -f /tmp/*-* /dev/shm/*; echo fine").ok(), "fine\n");
}

/// T-7, bug 34: commands that are too long for the sandbox's memory are refused before PID 1 holds them, one by one and
/// together; T-BASH-2: 10 MiB work in the smallest.
#[test]
fn long_commands_do_not_eat_the_memory() {
    for place in Place::on_each_image() {
        place.agent("worker", "[local]\nmemory = \"64m\"\n");
        let mut desk = place.desk_with("worker", &["--parallel", "2"]);
        let long = |begin: &str, bytes: usize| json!({"command": format!("{begin} #{}", "x".repeat(bytes))});
        assert_eq!(
            desk.call("bash", &long("true", 12_000_000)).fails("limit"),
            "the command has 12000006 bytes; with 64m of memory, the commands of calls that run at once may have 10922k \
         together: write what is long to a file first, or make fewer calls at once"
        );
        assert_eq!(desk.call("bash", &long("echo long", (10 << 20) - 11)).ok(), "long\n");
        let answers = desk.together([("bash", long("sleep 3; echo first", 8 << 20)), ("bash", long("true", 8 << 20))]);
        assert_eq!(answers[0].ok(), "first\n");
        answers[1].fails("limit");
        assert_eq!(desk.bash("echo fine").ok(), "fine\n");
    }
}
