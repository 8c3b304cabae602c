//! The end of a command is the end of all it started.

use std::time::Duration;

use crate::harness::Place;

/// T-BASH-4, bug 1: the shell's end is the call's end, whoever holds the pipe, and nothing of the call is left.
#[test]
fn nothing_outlives_its_shell() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        for (leave, output) in [
            ("sleep 300 & echo done", "done\n"),
            ("sleep 300 > /dev/null 2>&1 < /dev/null & echo done", "done\n"),
            ("setsid sleep 300 & echo done", "done\n"),
            ("(setsid sh -c 'sleep 300 & sleep 300' &) ; echo done", "done\n"),
            ("trap '' TERM HUP INT; (trap '' TERM; sleep 300; sleep 300) & setsid sleep 300 & echo done", "done\n"),
            ("sleep 300 | sleep 300 & disown -a; exec echo done", "done\n"),
            ("coproc sleep 300; kill -STOP $!; echo done", "done\n"),
            ("cd /tmp; sh -c 'sh -c \"sh -c \\\"sleep 300 &\\\" &\" &'; sleep .2; echo done", "done\n"),
        ] {
            let answer = desk.bash(leave);
            assert_eq!(answer.ok(), output, "{leave}");
            assert!(answer.duration() < Duration::from_secs(9), "{leave}: {:?}", answer.duration());
            block.assert_empty();
        }
    }
}

/// T-BASH-4: what the shell's children print before it ends is part of the output.
#[test]
fn output_of_children_counts_until_the_shell_ends() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(desk.bash("(echo child) & wait; echo shell").ok(), "child\nshell\n");
        assert_eq!(
            desk.bash("head -c 40000 /dev/zero | tr '\\0' x | fold -w 100 > >(cat); wait $!; echo").ok().len(),
            40_400
        );
    }
}

/// Bug 4: a port that a timed-out server held is free again.
#[test]
fn a_port_is_free_when_its_server_was_ended() {
    let place = Place::new();
    let mut desk = place.desk();
    let block = desk.block();
    let serve = "setsid nc -l -p 3001 & ";
    desk.bash_for(1.0, &format!("{serve} sleep 99")).fails("timeout");
    block.assert_empty();
    let ask = "for i in $(seq 50); do echo hello | nc 127.0.0.1 3001 2> /tmp/complaint && exit; sleep .1; done; exit 1";
    assert_eq!(desk.bash(&format!("{serve} {ask}")).ok(), "hello\n");
}

/// Bug 30: orphans are reaped while their command runs, and when it has ended.
#[test]
fn no_zombie_stays() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        let orphans = "for i in $(seq 500); do (sleep 0.01 &); done";
        let zombies = "cat /proc/[0-9]*/status 2>/dev/null | grep '^State:.Z'";
        let look = format!("for i in $(seq 30); do sleep .1; {zombies} || exit 0; done; exit 1");
        assert_eq!(desk.bash(&format!("{orphans}; ({look}) > /tmp/zombies; echo $?")).ok(), "0\n");
        assert_eq!(desk.bash(orphans).ok(), "(no output)");
        block.assert_empty();
    }
}
