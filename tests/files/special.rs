//! What is no regular file, and links that lead where nothing is to be seen.

use std::time::{Duration, Instant};

use super::{ls, read, write};
use crate::attack::program;
use crate::harness::Place;

/// T-4, bug 25: pipes, sockets and devices are named at once by every tool; folders point to `ls`.
#[test]
fn special_files_are_named() {
    for place in Place::on_each_image() {
        let socket = program::build("socket", &["../files/socket.c"]);
        let mut desk = place.desk_with("worker", &["--in", &format!("{}:/tmp/make", socket.display())]);
        desk.bash("mkfifo /tmp/pipe; /tmp/make /tmp/socket; ln -s /dev/zero /tmp/zero; ln -s loop /tmp/loop").ok();
        let only = "not a regular file: only regular files can be read, written or copied";
        let begun = Instant::now();
        for (path, what) in [
            ("/tmp/pipe", "a FIFO (named pipe)"),
            ("/tmp/socket", "a Unix socket"),
            ("/dev/zero", "a character device"),
            ("/tmp/zero", "a character device"),
            ("/dev/null", "a character device"),
        ] {
            assert_eq!(read(&mut desk, path).fails("invalid"), format!("{path} is {what}, {only}"));
            assert_eq!(
                ls(&mut desk, path).fails("invalid"),
                format!("{path} is {what}, not a folder: use read for a regular file")
            );
        }
        for (path, what) in [("/tmp/pipe", "a FIFO (named pipe)"), ("/tmp/socket", "a Unix socket")] {
            assert_eq!(write(&mut desk, path, "x").fails("invalid"), format!("{path} is {what}, {only}"));
        }
        write(&mut desk, "/tmp/zero", "x").fails("denied");
        assert_eq!(read(&mut desk, "/tmp").fails("invalid"), "/tmp is a folder: use ls");
        assert_eq!(read(&mut desk, ".").fails("invalid"), "/app/static is a folder: use ls");
        let loops = read(&mut desk, "/tmp/loop");
        assert!(loops.fails("denied").starts_with("/tmp/loop leads through a loop of links"), "{loops:?}");
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}

/// Bug 23: nothing of PID 1, of the file server or of root can be read through the file tools.
#[test]
fn nothing_of_others_is_read() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        desk.bash("cd /tmp; ln -s /proc/self/environ env; ln -s /proc/1/environ init; ln -s /proc/self/fd fd; ln -s /proc/1/root root").ok();
        for path in [
            "/tmp/env",
            "/proc/self/environ",
            "/proc/self/maps",
            "/proc/self/mem",
            "/proc/self/status",
            "/proc/thread-self/status",
            "/tmp/init",
            "/proc/1/maps",
            "/proc/1/fd/0",
            "/proc/1/root/etc/hosts",
            "/tmp/root/etc/hosts",
            "/proc/self/root/etc/hosts",
            "/proc/self/exe",
            "/app/link/sock",
        ] {
            let answer = read(&mut desk, path);
            assert!(answer.is_error() && answer.cause() == "denied", "{path}: {answer:?}");
        }
        for path in ["/proc/self/fd", "/tmp/fd", "/proc/1/fd", "/root", "/app", "/app/link"] {
            let answer = ls(&mut desk, path);
            assert!(answer.is_error() && answer.cause() == "denied", "{path}: {answer:?}");
        }
        assert!(read(&mut desk, "/etc/shadow").is_error());
        // What the agent's own commands may see, its tools may see.
        assert_eq!(read(&mut desk, "/etc/hosts").ok(), desk.bash("cat /etc/hosts").ok());
        assert!(read(&mut desk, "/proc/1/status").ok().starts_with("Name:\ttoolbox\n"));
    }
}
