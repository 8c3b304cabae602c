//! What the engine itself says, asked over its socket without our own client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Makes a request of the engine and returns status and body.
pub(crate) fn engine(method: &str, path: &str) -> (u16, Value) {
    request(method, path, "application/json", b"")
}

/// Makes a request with a body.
pub(crate) fn engine_with(method: &str, path: &str, body: &Value) -> (u16, Value) {
    request(method, path, "application/json", body.to_string().as_bytes())
}

/// The engine's socket.
pub(crate) fn socket() -> String {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock").to_owned()
}

/// Makes a request with a body of any kind.
pub(super) fn request(method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket()).expect("tests need an engine: see README");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a valid time");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: {kind}\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n").and_then(|()| stream.write_all(body)).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let answer = String::from_utf8(answer).expect("it answers in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("an HTTP status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// True when the engine has this image.
pub(crate) fn has_image(reference: &str) -> bool {
    engine("GET", &format!("/images/{reference}/json")).0 == 200
}

/// Names of the containers that carry the token of this state directory.
pub(crate) fn containers_of(state: &Path) -> Vec<String> {
    let Ok(token) = std::fs::read_to_string(state.join("token")) else { return Vec::new() };
    let token = token.trim();
    let (status, all) = engine("GET", "/containers/json?all=1");
    assert_eq!(status, 200, "{all}");
    let ours = |container: &&Value| {
        container["Labels"].as_object().is_some_and(|labels| labels.values().any(|value| value == token))
    };
    let name = |container: &Value| {
        container["Names"][0].as_str().expect("a container has a name").trim_start_matches('/').to_owned()
    };
    all.as_array().expect("a list").iter().filter(ours).map(name).collect()
}

/// Removes what a failed test left.
pub(crate) fn remove_containers_of(state: &Path) {
    for name in containers_of(state) {
        engine("DELETE", &format!("/containers/{name}?force=1"));
    }
}
