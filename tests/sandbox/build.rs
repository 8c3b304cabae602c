//! `runner image build --base debian`: who can, what is said when it fails, and that nothing is left when it is stopped.
//! That it works the image itself shows, which the tests of `base` run in.

use std::io::Read;
use std::net::TcpListener;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Place, Ran, is_root, processes_with, until};

/// The packages' list, and the files that read it.
const PACKAGES: &str = include_str!("../../images/base/packages");
const DOCKERFILE: &str = include_str!("../../images/base/Dockerfile");

/// A user of the docker group is told what to type.
#[test]
fn docker_group_cannot_build_the_base_image() {
    if is_root() {
        return;
    }
    let place = Place::bare();
    let ran = place.run(["image", "build", "--base", "debian"]);
    ran.exits(2).complains("only root can run").complains("sudo ").complains("image build --base debian");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
}

/// Flags that are none, or for the other image.
#[test]
fn wrong_flags_are_named() {
    let place = Place::bare();
    place.run(["image", "build", "--suite", "bookworm"]).exits(2).complains("hint: add --base debian");
    if is_root() {
        let ran = place.run(["image", "build", "--base", "debian", "--suite", "../x"]);
        assert_eq!(ran.exits(2).stderr, "error: --suite is \"../x\"; it must be a release's name\n");
    }
}

/// A mirror that cannot be reached: the last words of debootstrap, one line of ours, and an empty folder.
#[test]
fn a_failed_build_says_why_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let place = Place::bare();
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    let mirror = format!("http://{nobody}/debian");
    let mut command = place.command(["image", "build", "--base", "debian", "--suite", "bookworm", "--mirror", &mirror]);
    without_proxy(&mut command).env("TMPDIR", place.folder());
    let ran = Ran::from(command.output().expect("it starts"));
    ran.exits(1).complains("error: cannot make a Debian with debootstrap: exit status: ").complains("  E: ");
    assert!(works(&place).is_empty(), "{:?}", works(&place));
}

/// Ctrl-C in the middle, when debootstrap waits for a mirror that says nothing: it is gone, with its processes, its
/// mounts and its folder.
#[test]
fn an_interrupted_build_leaves_nothing() {
    if !is_root() {
        return;
    }
    let place = Place::bare();
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mirror = format!("http://{}/debian", mute.local_addr().expect("an address"));
    let mut command = place.command(["image", "build", "--base", "debian", "--suite", "bookworm", "--mirror", &mirror]);
    without_proxy(&mut command).env("TMPDIR", place.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let (mut asked, _) = mute.accept().expect("debootstrap asks its mirror");
    let mut request = [0; 4];
    asked.read_exact(&mut request).expect("a request");
    let folder = place.folder().display().to_string();
    assert!(!processes_with(&folder).is_empty() && works(&place).len() == 1);
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a process id")), Signal::SIGINT).expect("it is ours");
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    ran.exits(130).complains("error: interrupted");
    until("its processes are gone", || processes_with(&folder).is_empty());
    assert!(works(&place).is_empty(), "{:?}", works(&place));
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    assert!(!mounts.contains(&folder), "{mounts}");
}

/// One list of packages serves both ways of making the image: the Dockerfile names none itself, and the list has what
/// the image is for.
#[test]
fn both_ways_read_one_list_of_packages() {
    let packages: Vec<&str> = PACKAGES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for wanted in [
        "bash",
        "coreutils",
        "git",
        "python3",
        "python3-venv",
        "python3-pip",
        "nodejs",
        "npm",
        "curl",
        "jq",
        "ripgrep",
        "openssh-client",
        "ca-certificates",
        "gcc",
        "make",
        "libc6-dev",
        "procps",
    ] {
        assert!(packages.contains(&wanted), "{wanted} is not in the list");
    }
    let mut sorted = packages.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), packages.len(), "a package comes twice");
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    assert!(packages.iter().all(plain), "names only, one a line: {packages:?}");
    let instructions: Vec<&str> = DOCKERFILE.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        instructions,
        [
            "FROM debian:bookworm-slim",
            "COPY packages install /build/",
            "RUN sh /build/install $(grep -v '^#' /build/packages)",
            "ENV PATH=/usr/local/bin:/usr/bin:/bin",
            "CMD [\"/bin/bash\"]",
        ]
    );
}

/// Folders of builds below the place.
fn works(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.folder()).expect("it is there");
    let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("runner-base-")).collect()
}

/// The mirrors of these tests are on this machine.
fn without_proxy(command: &mut std::process::Command) -> &mut std::process::Command {
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"] {
        command.env_remove(name);
    }
    command.env("no_proxy", "127.0.0.1")
}
