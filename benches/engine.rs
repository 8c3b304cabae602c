//! The engine's API as bare as it gets: what the raw calls cost that ours are held against.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Makes one request on a connection of its own and returns the answer's JSON (null when it has none).
pub(crate) fn request(method: &str, path: &str, body: &Value) -> io::Result<Value> {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    let mut stream = UnixStream::connect(host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock"))?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    if (200..400).contains(&status) {
        Ok(serde_json::from_str(body).unwrap_or(Value::Null))
    } else {
        Err(io::Error::other(format!("{method} {path}: {status} {body}")))
    }
}

/// The create request of a container that is there already.
pub(crate) fn order_of(container: &str) -> io::Result<Value> {
    let found = request("GET", &format!("/containers/{container}/json"), &Value::Null)?;
    let mut order = found["Config"].clone();
    order["HostConfig"] = found["HostConfig"].clone();
    // The runner's own recovery must not take it for one of its containers.
    order["Labels"] = json!({});
    Ok(order)
}

/// A container that is removed when it is dropped.
pub(crate) struct Container {
    /// Its id.
    pub(crate) id: String,
}

impl Container {
    /// Creates and starts it.
    pub(crate) fn start(order: &Value) -> io::Result<Self> {
        let made = request("POST", "/containers/create", order)?;
        let id = made["Id"].as_str().ok_or_else(|| io::Error::other("create gave no id"))?.to_owned();
        let container = Self { id };
        request("POST", &format!("/containers/{}/start", container.id), &Value::Null)?;
        Ok(container)
    }

    /// Kills and removes it.
    pub(crate) fn end(self) -> io::Result<()> {
        request("POST", &format!("/containers/{}/kill", self.id), &Value::Null)?;
        request("DELETE", &format!("/containers/{}?force=1", self.id), &Value::Null)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = request("DELETE", &format!("/containers/{}?force=1", self.id), &Value::Null);
    }
}

/// Runs `SHELL -c true` in a container by the engine's exec and waits for its end.
pub(crate) fn exec_true(container: &str, shell: &str) -> io::Result<()> {
    let order = json!({"AttachStdout": true, "AttachStderr": true, "Cmd": [shell, "-c", "true"]});
    let made = request("POST", &format!("/containers/{container}/exec"), &order)?;
    let id = made["Id"].as_str().ok_or_else(|| io::Error::other("exec gave no id"))?;
    request("POST", &format!("/exec/{id}/start"), &json!({"Detach": false, "Tty": false}))?;
    Ok(())
}
