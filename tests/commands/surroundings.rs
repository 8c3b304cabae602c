//! What a command finds when it starts, and how its text gets there.

use serde_json::json;

use crate::harness::{Place, Variant};

const LOOK: &str = "pwd; umask; env | sort; alias; trap; declare -F";

const FOUND: &str = "\
/app/static
0022
HOME=/tmp/home
LANG=C.UTF-8
PATH=/usr/local/bin:/usr/bin:/bin
PWD=/app/static
SHLVL=1
TERM=dumb
TMPDIR=/tmp
TZ=UTC
USER=agent
_=/usr/bin/env
";

/// T-BASH-1, T-BASH-6: directory, variables and umask are the same for every call; only files stay.
#[test]
fn nothing_but_files_goes_from_one_command_to_the_next() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        assert_eq!(desk.bash(LOOK).ok(), FOUND);
        let leave = "cd /tmp; umask 077; export LEAK=1 HOME=/; alias a=b; f() { :; }; trap '' TERM; ulimit -n 20; echo kept > kept";
        assert_eq!(desk.bash(leave).ok(), "(no output)");
        assert_eq!(desk.bash(LOOK).ok(), FOUND);
        assert_eq!(desk.bash("cat /tmp/kept; [ $(ulimit -n) -gt 20 ] && echo limits too").ok(), "kept\nlimits too\n");
    }
}

/// T-BASH-1, bug 8: stdin is empty, there is no terminal, the shell is bash.
#[test]
fn input_is_empty_and_there_is_no_terminal() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let asks = "cat; read x; echo \"read: $? [$x]\"; sh; awk 1; cat -; echo ${BASH_VERSION:+bash} $-";
        assert_eq!(desk.bash(asks).ok(), "read: 1 []\nbash hBc\n");
        assert_eq!(
            desk.bash("tty; (: < /dev/tty) 2>&1 | grep -c tty; readlink /proc/self/fd/0").ok(),
            "not a tty\n1\n/dev/null\n"
        );
    }
}

/// T-BASH-1: an image without bash has its commands run by sh, and the first result says so.
#[test]
fn without_bash_sh_takes_its_place_and_that_is_said_once() {
    let image = Variant::new("sh", &["/bin/busybox", "rm", "/bin/bash"], &[]);
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let mut desk = place.desk();
    assert_eq!(
        desk.bash("echo $0 ${BASH_VERSION:-none}").ok(),
        "sh none\n[this image has no bash: commands run under /bin/sh]"
    );
    assert_eq!(desk.bash("echo again").ok(), "again\n");
}

/// T-BASH-5: the names of the pipes can be opened.
#[test]
fn the_outputs_can_be_opened_by_name() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let writes = "\
echo one > /dev/stdout
echo two > /dev/stderr
echo three > /dev/fd/1
sh -c 'echo four > /dev/stdout; echo five >> /proc/self/fd/2'
echo six | tee /dev/stderr
exec 7> /tmp/seven; echo seven > /dev/fd/7; cat /tmp/seven
cat <(echo eight)";
        assert_eq!(desk.bash(writes).ok(), "one\ntwo\nthree\nfour\nfive\nsix\nsix\nseven\neight\n");
    }
}

/// T-BASH-6: harmless variables of the image are kept; ours and dangerous ones cannot be set by it.
#[test]
fn harmless_variables_of_the_image_are_kept() {
    let changes =
        ["ENV GREETING=hello", "ENV PATH=/bin:/opt", "ENV HOME=/root", "ENV LD_PRELOAD=/x.so", "ENV BASH_ENV=/x"];
    let image = Variant::new("env", &["/bin/true"], &changes);
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let found =
        FOUND.replace("PATH=/usr/local/bin:/usr/bin:/bin", "PATH=/bin:/opt").replace("/usr/bin/env", "/bin/env");
    let found = found.replace("HOME=", "GREETING=hello\nHOME=");
    assert_eq!(place.desk().bash(LOOK).ok(), found);
}

/// Bug 37: HOME can be written and lies below /tmp, so do temporary files.
#[test]
fn home_can_be_written() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        let uses = "mkdir -p ~/.cache/x && echo a > ~/.cache/x/y && cat ~/.cache/x/y; ls -ld ~ | cut -c1-10; mktemp | cut -c1-9; cd && pwd";
        assert_eq!(desk.bash(uses).ok(), "a\ndrwx------\n/tmp/tmp.\n/tmp/home\n");
    }
}

/// T-BASH-2, bug 24: no limit of argument lists applies to a command.
#[test]
fn commands_of_megabytes_run() {
    for place in Place::on_each_image() {
        let mut desk = place.desk();
        for length in [200_000, 300_000, 10 << 20] {
            let text = "x".repeat(length);
            assert_eq!(desk.bash(&format!("x='{text}'\necho ${{#x}}")).ok(), format!("{length}\n"));
        }
        let quoted = "a='日本語'; echo \"$a\" '$b' \"it's\" \\\\; # the end";
        assert_eq!(desk.bash(quoted).ok(), "日本語 $b it's \\\n");
        assert_eq!(desk.bash("-x; echo a dash first").ok(), "bash: line 1: -x: command not found\na dash first\n");
        desk.call("bash", &json!({"command": "echo a\0b"})).fails("invalid");
        assert_eq!(desk.bash("").ok(), "(no output)");
    }
}
