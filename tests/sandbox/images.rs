//! What an image can try by its settings.

use serde_json::json;

use crate::harness::{Place, Variant, engine, engine_with};

/// ENV of an image steers neither PID 1 nor a command: what would is dropped on the way to the engine too, the rest is
/// kept.
#[test]
fn variables_that_steer_loaders_are_dropped() {
    let image = Variant::new(
        "env",
        &["/bin/true"],
        &[
            "ENV LD_PRELOAD=/tmp/x.so",
            "ENV ld_library_path=/tmp",
            "ENV BASH_ENV=/tmp/x",
            "ENV ENV=/tmp/x",
            "ENV PYTHONPATH=/tmp",
            "ENV NODE_OPTIONS=--require=/tmp/x",
            "ENV GIT_SSH_COMMAND=/tmp/x",
            "ENV https_proxy=http://there",
            "ENV HOME=/root",
            "ENV LANG=xx",
            "ENV GREETING=hello",
            "ENV PATH=/bin:/own",
        ],
    );
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let mut desk = place.desk();
    let variables = desk.bash("env | sort").ok().to_owned();
    insta::assert_snapshot!(variables, @"
GREETING=hello
HOME=/tmp/home
LANG=C.UTF-8
PATH=/bin:/own
PWD=/app/static
SHLVL=1
TERM=dumb
TMPDIR=/tmp
TZ=UTC
USER=agent
_=/bin/env
");
    let name = place.containers().remove(0);
    let kept = engine("GET", &format!("/containers/{name}/json")).1["Config"]["Env"].clone();
    // A bare name makes the engine remove the variable; it stays in the list as it is.
    let values: Vec<&str> = kept
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line.as_str())
        .filter(|line| line.contains('='))
        .collect();
    for steering in
        ["LD_PRELOAD", "ld_library_path", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GIT_SSH_COMMAND", "https_proxy"]
    {
        assert!(!values.iter().any(|line| line.starts_with(&format!("{steering}="))), "{kept}");
    }
    assert!(!desk.bash("tr '\\0' '\\n' < /proc/1/environ; true").ok().contains("LD_PRELOAD"));
    desk.close().exits(0);
}

/// ENTRYPOINT, CMD, USER, WORKDIR, HEALTHCHECK, EXPOSE and ONBUILD of an image change nothing.
#[test]
fn settings_of_an_image_change_nothing() {
    let image = Variant::new(
        "settings",
        &["/bin/true"],
        &[
            "ENTRYPOINT [\"/bin/sleep\"]",
            "CMD [\"1\"]",
            "USER 12345",
            "WORKDIR /etc",
            "HEALTHCHECK CMD touch /tmp/checked",
            "EXPOSE 80",
            "ONBUILD RUN true",
        ],
    );
    let place = Place::new();
    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let mut desk = place.desk();
    assert_eq!(
        desk.bash("pwd; readlink /proc/self/exe | grep -c bash; ls /tmp/checked 2>/dev/null | wc -l")
            .ok()
            .lines()
            .next(),
        Some("/app/static")
    );
    let name = place.containers().remove(0);
    let found = engine("GET", &format!("/containers/{name}/json")).1;
    let seen = json!([
        found["Path"],
        found["Args"],
        found["Config"]["User"],
        found["Config"]["Healthcheck"]["Test"],
        found["Config"]["StopSignal"]
    ]);
    assert_eq!(seen, json!(["/app/toolbox", [], "0:0", ["NONE"], "SIGKILL"]));
    desk.close().exits(0);
}

/// LABELs of an image that look like ours: ours win, and a container that only an image has given our labels is nobody's
/// to remove.
#[test]
fn labels_like_ours_prove_nothing() {
    let place = Place::new();
    place.run(["tool", "--agent", "worker", "bash", r#"{"command": "true"}"#]).exits(0);
    let token = std::fs::read_to_string(place.state().join("token")).expect("a token");
    let image = Variant::new(
        "labels",
        &["/bin/true"],
        &[&format!("LABEL runner.install={} runner.session=mine runner.ids=1900000000", token.trim())],
    );
    let body = json!({"Image": image.name(), "Cmd": ["/bin/true"]});
    let (status, made) = engine_with("POST", "/containers/create", &body);
    assert_eq!(status, 201, "{made}");
    let foreign = made["Id"].as_str().expect("an id").to_owned();

    place.agent("worker", &format!("[local]\nimage = \"{}\"\n", image.name()));
    let mut desk = place.desk();
    desk.bash("true").ok();
    let listed = place.run(["ps", "--json"]).exits(0).json();
    let container = listed[0]["container"]["id"].as_str().expect("an id");
    let labels = engine("GET", &format!("/containers/{container}/json")).1["Config"]["Labels"].clone();
    assert_eq!(labels["runner.session"], listed[0]["session"]);
    desk.close().exits(0);

    let (status, _) = engine("GET", &format!("/containers/{foreign}/json"));
    engine("DELETE", &format!("/containers/{foreign}?force=1"));
    assert_eq!(status, 200, "the foreign container is left alone");
}
