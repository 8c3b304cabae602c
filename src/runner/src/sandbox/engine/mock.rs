//! An engine of our own making for tests: it answers like Docker 20.10, and lies, stalls or fails where a test says so.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
    time::sleep,
};

use super::{Engine, EngineError};

pub(crate) const IMAGE_ID: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

/// How answers are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Prompt,
    /// The request is read and nothing is said.
    Silent,
    /// One byte at a time, too slowly to be done in time.
    Dribble,
    /// The connection is closed in the middle of the answer.
    HangUp,
}

/// What the engine says. Tests change it before or between calls.
pub(crate) struct Script {
    pub(crate) manner: Manner,
    pub(crate) version: Value,
    pub(crate) info: Value,
    pub(crate) image: Value,
    /// Warnings in the create reply.
    pub(crate) warnings: Vec<String>,
    /// Replaces parts of inspect's answer: JSON pointer and value.
    pub(crate) alter: Vec<(String, Value)>,
    /// Answers to start, one for each, the last for ever: status and message.
    pub(crate) starts: Vec<(u16, String)>,
    /// Containers that list shows besides the one made here.
    pub(crate) others: Vec<Value>,
    /// The last order.
    pub(crate) order: Option<Value>,
    /// It was started.
    pub(crate) started: bool,
    /// `METHOD path` of every request.
    pub(crate) requests: Vec<String>,
    /// Connections that are open now.
    pub(crate) open: usize,
}

/// The engine, running until it is dropped.
pub(crate) struct Mock {
    base: tempfile::TempDir,
    script: Arc<Mutex<Script>>,
    server: JoinHandle<()>,
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Mock {
    pub(crate) fn new() -> Mock {
        let base = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(base.path().join("docker.sock")).unwrap();
        let kernel = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
        let script = Arc::new(Mutex::new(Script {
            manner: Manner::Prompt,
            version: json!({"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}),
            info: json!({
                "OSType": "linux", "Architecture": "x86_64", "KernelVersion": kernel, "OperatingSystem": "Debian",
                "NCPU": 4, "MemTotal": 8u64 << 30, "CgroupVersion": "1", "MemoryLimit": true, "SwapLimit": true,
                "PidsLimit": true, "CpuCfsQuota": true, "Runtimes": {"runc": {"path": "runc"}}, "DefaultRuntime": "runc",
                "SecurityOptions": ["name=seccomp,profile=default"]
            }),
            image: json!({
                "Id": IMAGE_ID, "Os": "linux", "Architecture": "amd64",
                "Config": {"Env": ["PATH=/bin", "LD_PRELOAD=/x.so"], "Labels": {"maker": "someone"}}
            }),
            warnings: Vec::new(),
            alter: Vec::new(),
            starts: vec![(204, String::new())],
            others: Vec::new(),
            order: None,
            started: false,
            requests: Vec::new(),
            open: 0,
        }));
        let shared = script.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Mock { base, script, server }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.base.path().join("docker.sock")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.base.path()
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.script.lock().unwrap())
    }

    pub(crate) async fn connect(&self) -> Result<Engine, EngineError> {
        Engine::connect(Some(&format!("unix://{}", self.path().display()))).await
    }
}

async fn serve(mut stream: UnixStream, script: Arc<Mutex<Script>>) {
    script.lock().unwrap().open += 1;
    // A peer that hangs up early is what some tests are about.
    let _ = converse(&mut stream, &script).await;
    script.lock().unwrap().open -= 1;
}

async fn converse(stream: &mut UnixStream, script: &Mutex<Script>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let length = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, value)| value.trim().parse().unwrap());
        while bytes.len() < head + length {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        let body: Value = serde_json::from_slice(&bytes[head..head + length]).unwrap_or_default();
        bytes.drain(..head + length);
        let line: Vec<&str> = text.lines().next().unwrap_or_default().split(' ').collect();
        let (status, reply, manner) = {
            let mut script = script.lock().unwrap();
            script.requests.push(format!("{} {}", line[0], line[1]));
            let (status, reply) = script.answer(line[0], line[1], &body);
            (status, reply, script.manner)
        };
        let content = if reply.is_null() { String::new() } else { reply.to_string() };
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        match manner {
            Manner::Prompt => stream.write_all(answer.as_bytes()).await?,
            // Until the client gives up and closes.
            Manner::Silent => while stream.read_buf(&mut bytes).await? != 0 {},
            Manner::Dribble => {
                for byte in answer.bytes() {
                    stream.write_all(&[byte]).await?;
                    sleep(Duration::from_millis(50)).await;
                }
            }
            Manner::HangUp => {
                stream.write_all(&answer.as_bytes()[..answer.len() / 2]).await?;
                return Ok(());
            }
        }
    }
}

impl Script {
    fn answer(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let path = target.split('?').next().unwrap_or_default();
        let path = match path.strip_prefix("/v1.").and_then(|rest| rest.split_once('/')) {
            Some((_, rest)) => format!("/{rest}"),
            None => path.to_owned(),
        };
        let none = || (404, json!({"message": "No such container"}));
        match (method, path.as_str()) {
            ("GET", "/version") => (200, self.version.clone()),
            ("GET", "/info") => (200, self.info.clone()),
            ("GET", "/containers/json") => (200, Value::Array(self.others.clone())),
            ("GET", path) if path.starts_with("/images/") => match &self.image {
                Value::Null => (404, json!({"message": "No such image"})),
                image => (200, image.clone()),
            },
            ("POST", "/containers/create") => {
                let name =
                    target.split(['?', '&']).find_map(|part| part.strip_prefix("name=")).unwrap_or_default().to_owned();
                let mut order = body.clone();
                order["name"] = name.into();
                self.order = Some(order);
                (201, json!({"Id": "made", "Warnings": self.warnings}))
            }
            ("GET", path) if path.starts_with("/containers/") => match &self.order {
                Some(order) => (200, self.inspect(order)),
                None => none(),
            },
            ("POST", path) if path.ends_with("/start") => {
                let (status, message) =
                    if self.starts.len() > 1 { self.starts.remove(0) } else { self.starts[0].clone() };
                self.started |= status == 204;
                (status, if status == 204 { Value::Null } else { json!({ "message": message }) })
            }
            ("POST", path) if path.ends_with("/kill") => (204, Value::Null),
            ("DELETE", _) if self.order.take().is_some() => (204, Value::Null),
            ("DELETE", _) => none(),
            _ => (400, json!({"message": format!("{method} {path} is not mocked")})),
        }
    }

    /// What inspect of an honest engine shows of the order, with the test's alterations.
    fn inspect(&self, order: &Value) -> Value {
        let mut config = order.clone();
        let fields = config.as_object_mut().unwrap();
        let name = fields.remove("name").unwrap();
        let mut host_config = fields.remove("HostConfig").unwrap();
        let ours = config["Env"].as_array().cloned().unwrap_or_default();
        let key = |line: &Value| line.as_str().unwrap().split('=').next().unwrap().to_owned();
        let keys: Vec<String> = ours.iter().map(key).collect();
        let images = self.image["Config"]["Env"].as_array().cloned().unwrap_or_default();
        let kept = images.into_iter().filter(|line| !keys.contains(&key(line)));
        config["Env"] = ours.iter().cloned().chain(kept).collect();
        let mut labels = self.image["Config"]["Labels"].as_object().cloned().unwrap_or_default();
        labels.extend(config["Labels"].as_object().cloned().unwrap_or_default());
        config["Labels"] = labels.into();
        if host_config["Runtime"].is_null() {
            host_config["Runtime"] = "runc".into();
        }
        for (field, value) in [("CpuShares", json!(0)), ("CgroupParent", json!("")), ("ConsoleSize", json!([0, 0]))] {
            host_config[field] = value;
        }
        let mounts = host_config["Mounts"].as_array().cloned().unwrap_or_default();
        let mounts = mounts.iter().map(|mount| {
            json!({"Type": "bind", "Source": mount["Source"], "Destination": mount["Target"], "Mode": "", "RW": false,
                "Propagation": "rprivate"})
        });
        let status = if self.started { "running" } else { "created" };
        let mut whole = json!({
            "Id": "made", "Name": format!("/{}", name.as_str().unwrap()), "Path": "/app/toolbox", "Args": [],
            "State": {"Status": status, "Pid": if self.started { 4242 } else { 0 }},
            "Image": IMAGE_ID, "MountLabel": "", "ProcessLabel": "", "AppArmorProfile": "", "ExecIDs": null,
            "HostConfig": host_config, "Config": config, "Mounts": mounts.collect::<Value>(),
            "NetworkSettings": {"Ports": {}, "Networks": {}}
        });
        for (pointer, value) in &self.alter {
            set(&mut whole, pointer, value.clone());
        }
        whole
    }
}

/// Sets what a JSON pointer names, making the objects on the way.
fn set(whole: &mut Value, pointer: &str, value: Value) {
    let mut at = whole;
    for part in pointer.trim_start_matches('/').split('/') {
        let part = part.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Array(list) => &mut list[part.parse::<usize>().unwrap()],
            Value::Object(map) => map.entry(part).or_insert(Value::Null),
            other => {
                *other = Value::Object(Map::new());
                other.as_object_mut().unwrap().entry(part).or_insert(Value::Null)
            }
        };
    }
    *at = value;
}
