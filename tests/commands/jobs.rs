//! Commands in the background.

use serde_json::{Value, json};

use super::command_for;
use crate::harness::{Desk, Place, seq};

fn stop(desk: &mut Desk, job: &str) -> String {
    desk.call("bash", &json!({"stop": job})).ok().to_owned()
}

/// T-BASH-4: a job outlives its call and others' ends, its log can be paged, and `stop` ends it and all it started.
#[test]
fn a_job_runs_until_it_is_stopped() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        let started = desk.call("bash", &json!({
        "command": "for i in $(seq 3000); do echo line $i; done; echo err >&2; setsid sleep 300 & touch /tmp/up; sleep 300; true",
        "background": true,
        "timeout": 1,
    }));
        let job: Value = serde_json::from_str(started.ok()).expect("JSON");
        let name = job["job"].as_str().expect("a name");
        let log = job["log"].as_str().expect("a path");
        assert_eq!(log, format!("/tmp/.runner/jobs/{name}.log"));
        // Longer than the timeout, which is not for jobs; and another command is ended in the meantime.
        desk.bash("until [ -e /tmp/up ]; do sleep .05; done").ok();
        desk.bash_for(1.2, "sleep 99").fails("timeout");
        assert_eq!(block.commands().len(), 3, "{:?}", block.commands());
        assert_eq!(
            desk.call("read", &json!({"path": log, "offset": 2998})).ok(),
            "line 2998\nline 2999\nline 3000\nerr\n"
        );
        assert_eq!(stop(&mut desk, name), format!("job {name} ended: killed by signal 15 (SIGTERM)"));
        block.assert_empty();
        assert_eq!(stop(&mut desk, name), format!("job {name} had ended before: killed by signal 15 (SIGTERM)"));
        assert_eq!(desk.call("read", &json!({"path": log, "limit": 1})).ok().lines().next(), Some("line 1"));
    }
}

/// T-BASH-4: a job ends with its shell; one that is deaf to SIGTERM is killed; who asks for what is not there is told.
#[test]
fn jobs_end_in_every_way() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        let (ended, log) = desk.job("echo to the log; sleep 300 & exit 3");
        desk.bash(&format!("until [ -s {log} ]; do sleep .05; done")).ok();
        block.wait_until_empty();
        assert!(stop(&mut desk, &ended).ends_with("exit code 3"));
        assert_eq!(stop(&mut desk, &ended), format!("job {ended} had ended before: exit code 3"));
        let (deaf, _) = desk.job("trap '' TERM; touch /tmp/deaf; setsid sleep 300; sleep 300");
        let (unable, _) = desk.job("no-such-program");
        desk.bash("until [ -e /tmp/deaf ]; do sleep .05; done").ok();
        assert_eq!(desk.call("read", &json!({"path": log})).ok(), "to the log\n");
        assert_eq!(stop(&mut desk, &deaf), format!("job {deaf} ended: killed by signal 9 (SIGKILL)"));
        assert!(stop(&mut desk, &unable).ends_with("exit code 127"));
        block.assert_empty();
        let nobody = desk.call("bash", &json!({"stop": "j99"}));
        assert_eq!(nobody.fails("not_found"), "there is no job \"j99\"; jobs are named when they start");
        let both = desk.call("bash", &json!({"command": "true", "stop": deaf}));
        assert_eq!(both.fails("invalid"), "`command` and `stop` exclude each other: give exactly one");
        let neither = desk.call("bash", &json!({"background": true}));
        assert_eq!(neither.fails("invalid"), "give `command`, or `stop` with the name of a job");
    }
}

/// T-BASH-4: jobs end with their session; `Place` sees that nothing is left.
#[test]
fn jobs_end_with_the_session() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let block = desk.block();
        desk.job("trap '' TERM; sleep 300; sleep 300");
        block.wait_for(2);
        desk.close().exits(0);
        block.assert_empty();
    }
}

/// T-2, T-BASH-4: something else in the place of the logs' folder is told, with what to do.
#[test]
fn something_in_the_place_of_the_logs() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let lead = ["rm -r /tmp/.runner; echo x > /tmp/.runner", "rm /tmp/.runner; ln -s gone /tmp/.runner"];
        for command in [lead[0], lead[1], "rm /tmp/.runner; mkdir /tmp/.runner; echo x > /tmp/.runner/jobs"] {
            desk.bash(command).ok();
            let refused = desk.call("bash", &json!({"command": "true", "background": true}));
            assert_eq!(
                refused.fails("invalid"),
                "cannot make the log of the job: /tmp/.runner and /tmp/.runner/jobs must be folders, and something else is in \
                 their place: move it away"
            );
        }
        desk.bash("rm /tmp/.runner/jobs").ok();
        desk.job("true");
    }
}

/// Bug 14: a command that times out with daemons takes nothing of its neighbours along.
#[test]
fn a_neighbour_keeps_its_processes_and_output() {
    for place in Place::on_each_image() {
        let mut desk = place.desk_with("worker", &["--parallel", "4"]);
        let block = desk.block();
        let (job, _) = desk.job("setsid sleep 300 & sleep 300; true");
        let answers = desk.together([
            command_for(1.0, "for i in 1 2 3; do setsid sleep 300 & (setsid sleep 300 &) ; done; sleep 300"),
            command_for(60.0, "for i in $(seq 25); do echo $i; sleep .1 & wait; done"),
            command_for(1.0, "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & while :; do sleep 1; done"),
        ]);
        answers[0].fails("timeout");
        assert_eq!(answers[1].ok(), seq(1..=25));
        answers[2].fails("timeout");
        assert_eq!(block.commands().len(), 3, "only the job is left: {:?}", block.commands());
        stop(&mut desk, &job);
        block.assert_empty();
    }
}

/// T-BASH-4: more commands than there are tags are refused with the limit and the remedy.
#[test]
fn there_are_so_many_jobs_and_no_more() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let jobs: Vec<String> = (0..62).map(|_| desk.job("exec sleep 300").0).collect();
        assert_eq!(
            desk.bash("true").fails("limit"),
            "62 commands and jobs run in this sandbox already, which is its limit; wait for one to end or stop a job"
        );
        assert_eq!(desk.call("ls", &json!({"path": "/tmp/.runner/jobs"})).ok().lines().count(), 62);
        stop(&mut desk, &jobs[30]);
        assert_eq!(desk.bash("echo room").ok(), "room\n");
    }
}
