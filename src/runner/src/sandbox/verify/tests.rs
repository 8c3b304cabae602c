use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    sandbox::{
        engine::{
            Engine, EngineError,
            mock::{IMAGE_ID, Mock},
        },
        folder::SessionFolder,
        image::Image,
        launch::{Launch, LaunchError, Launched},
        limits::{Limits, Wanted},
    },
    state::State,
};

struct Ordered {
    mock: Mock,
    engine: Engine,
    image: Image,
    folder: SessionFolder,
}

impl Ordered {
    async fn new() -> Ordered {
        Ordered::with(Mock::new()).await
    }

    async fn with(mock: Mock) -> Ordered {
        let engine = mock.connect().await.unwrap();
        let image = engine.image("some/image").await.unwrap();
        let state = State::open_at(&mock.folder().join("state")).unwrap();
        let toolbox = state.place_toolbox(b"program", "aa").unwrap();
        let folder = SessionFolder::create(&state.session_folder("s"), &toolbox).unwrap();
        Ordered { mock, engine, image, folder }
    }

    async fn launch(&self) -> Result<Launched, LaunchError> {
        self.mock.with(|script| script.started = false);
        let launch = Launch {
            session: "s",
            name: "0123456789abcdef",
            token: "token",
            image: &self.image,
            limits: Limits::resolve(&Wanted::default(), 4).unwrap(),
            runtime: None,
            folder: &self.folder,
            socket_gid: 7,
        };
        launch.run(&self.engine).await
    }

    /// Launches with one lie and says what was refused; none when the lie was believed.
    async fn with_lie(&self, pointer: &str, value: &Value) -> Option<String> {
        self.mock.with(|script| script.alter = vec![(pointer.to_owned(), value.clone())]);
        match self.launch().await {
            Ok(launched) => {
                self.engine.remove(&launched.id).await.unwrap();
                None
            }
            Err(LaunchError::Engine(error)) => {
                self.mock.with(|script| {
                    assert!(script.order.is_none(), "{pointer}: the container was not deleted");
                    assert!(!script.started, "{pointer}: it was started");
                });
                match error {
                    EngineError::Altered { field, .. } => Some(field),
                    // An answer that cannot be read at all (an unknown word in a field of fixed words) is no proof.
                    EngineError::Garbled { .. } => Some(pointer.to_owned()),
                    other => panic!("{pointer}: {other}"),
                }
            }
            Err(other) => panic!("{pointer}: {other}"),
        }
    }
}

/// Everything in inspect that a sandbox may not care about; see the constants in verify.rs for the reasons.
const FREE: [&str; 8] = [
    "/Id",
    "/HostConfig/ConsoleSize",
    "/HostConfig/ShmSize",
    "/State/Pid",
    "/Config/ExposedPorts",
    "/Config/OnBuild",
    "/Config/Shell",
    "/Config/ArgsEscaped",
];

fn is_free(pointer: &str) -> bool {
    FREE.iter().any(|free| pointer == *free || pointer.starts_with(&format!("{free}/")))
}

/// Every leaf of a JSON value, and every list and map as a whole.
fn pointers(value: &Value, at: &str, into: &mut Vec<(String, Value)>) {
    if !at.is_empty() {
        into.push((at.to_owned(), value.clone()));
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), into);
            }
        }
        Value::Array(list) => {
            for (n, value) in list.iter().enumerate() {
                pointers(value, &format!("{at}/{n}"), into);
            }
        }
        _ => {}
    }
}

/// Values that differ from the given one, of the same kind.
fn lies(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![],
        Value::Bool(flag) => {
            vec![json!(!flag), Value::Null].into_iter().filter(|lie| *flag || !lie.is_null()).collect()
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap();
            let gone = if number == 0 { vec![] } else { vec![Value::Null] };
            [vec![json!(number + 1)], gone].concat()
        }
        Value::String(text) if text.is_empty() => vec![json!("x")],
        Value::String(text) => vec![json!(format!("{text}x")), json!("")],
        Value::Array(list) => {
            let more = list.iter().cloned().chain([list.first().cloned().unwrap_or(json!("x"))]).collect();
            let fewer = if list.is_empty() { vec![] } else { vec![list[1..].iter().cloned().collect(), Value::Null] };
            [vec![more], fewer].concat()
        }
        Value::Object(map) if map.is_empty() => vec![],
        Value::Object(_) => vec![json!({}), Value::Null],
    }
}

/// security.md 1: an engine that alters any one field of inspect is caught, the container deleted, the field named.
#[tokio::test]
async fn every_field_of_inspect_altered_in_turn_is_caught() {
    let ordered = Ordered::new().await;
    ordered.launch().await.unwrap();
    let honest = ordered.engine.inspect("made").await.unwrap();
    let mut whole = serde_json::to_value(&*honest.whole).unwrap();
    whole["State"] = json!({"Status": "created"});
    ordered.engine.remove("made").await.unwrap();
    let mut fields = Vec::new();
    pointers(&whole, "", &mut fields);
    let (mut tried, mut believed) = (0, Vec::new());
    for (pointer, value) in fields.into_iter().filter(|(pointer, _)| !is_free(pointer)) {
        for lie in lies(&value) {
            tried += 1;
            match ordered.with_lie(&pointer, &lie).await {
                None => believed.push(format!("{pointer} = {lie}")),
                Some(field) => {
                    let last = field.split(['.', '[']).next_back().unwrap_or_default().trim_end_matches(']');
                    let parts: BTreeSet<String> = pointer.split('/').map(|part| part.replace("~1", "/")).collect();
                    let inside = format!("/{}", field.replace('.', "/")).starts_with(&pointer);
                    let named = parts.contains(last) || inside || pointer.starts_with("/Mounts") || field == pointer;
                    assert!(named, "{pointer}: the error names {field}");
                }
            }
        }
    }
    assert!(tried > 300, "{tried} lies");
    // No network settings at all: nothing of a network is there.
    assert_eq!(believed, ["/NetworkSettings = {}", "/NetworkSettings = null"]);
}

/// Fields that we never ask for and that would open the sandbox.
#[tokio::test]
async fn fields_that_were_not_ordered_are_caught() {
    let ordered = Ordered::new().await;
    let cases = [
        ("/HostConfig/Binds", json!(["/:/host"])),
        (
            "/HostConfig/Devices",
            json!([{"PathOnHost": "/dev/sda", "PathInContainer": "/dev/sda", "CgroupPermissions": "rwm"}]),
        ),
        ("/HostConfig/DeviceCgroupRules", json!(["a *:* rwm"])),
        ("/HostConfig/DeviceRequests", json!([{"Driver": "nvidia", "Count": -1}])),
        ("/HostConfig/VolumesFrom", json!(["other"])),
        ("/HostConfig/Links", json!(["/other:/x"])),
        ("/HostConfig/Privileged", json!(true)),
        ("/HostConfig/PidMode", json!("host")),
        ("/HostConfig/UTSMode", json!("host")),
        ("/HostConfig/UsernsMode", json!("host")),
        ("/HostConfig/IpcMode", json!("host")),
        ("/HostConfig/NetworkMode", json!("bridge")),
        ("/HostConfig/CgroupnsMode", json!("host")),
        ("/HostConfig/CgroupParent", json!("/elsewhere")),
        ("/HostConfig/Cgroup", json!("container:x")),
        ("/HostConfig/PortBindings", json!({"80/tcp": [{"HostIp": "", "HostPort": "80"}]})),
        ("/HostConfig/PublishAllPorts", json!(true)),
        ("/HostConfig/Dns", json!(["8.8.8.8"])),
        ("/HostConfig/ExtraHosts", json!(["a:1.2.3.4"])),
        ("/HostConfig/StorageOpt", json!({"size": "1t"})),
        ("/HostConfig/Annotations", json!({"a": ""})),
        ("/HostConfig/Tmpfs/~1var", json!("")),
        ("/HostConfig/Sysctls/net.ipv4.ip_forward", json!("")),
        ("/HostConfig/OomKillDisable", json!(true)),
        ("/HostConfig/MemorySwappiness", json!(60)),
        ("/HostConfig/AutoRemove", json!(true)),
        ("/HostConfig/Runtime", json!("crun")),
        ("/HostConfig/CapAdd", json!(["SETUID", "SETGID", "KILL", "SYS_ADMIN"])),
        ("/HostConfig/CapAdd", json!(["ALL"])),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges:true", "seccomp=unconfined"])),
        ("/HostConfig/GroupAdd", json!(["7", "0"])),
        ("/Config/Volumes", json!({"/data": {}})),
        ("/Config/Env", json!(["PATH=/bin", "LD_PRELOAD=/x.so"])),
        ("/Config/Env", json!(["LD_PRELOAD", "PATH=/bin", "EXTRA=1"])),
        ("/Config/Labels/runner.install", json!("another")),
        ("/Config/Labels/extra", json!("")),
        ("/Config/ExposedPorts", json!({"22/tcp": {}})),
        ("/Config/User", json!("1000")),
        ("/Config/Healthcheck/Test", json!(["CMD", "/bin/x"])),
        ("/Config/Entrypoint", json!(["/evil"])),
        ("/Config/Tty", json!(true)),
        ("/Config/NetworkDisabled", json!(false)),
        ("/Mounts/0/RW", json!(true)),
        ("/Mounts/0/Propagation", json!("rshared")),
        ("/Mounts/0/Source", json!("/")),
        ("/Mounts/0/Type", json!("volume")),
        ("/Mounts/0/Mode", json!("z")),
        ("/Mounts/0/Name", json!("volume")),
        ("/AppArmorProfile", json!("unconfined")),
        ("/NetworkSettings/Networks", json!({"bridge": {"NetworkID": "x"}})),
        ("/NetworkSettings/Ports", json!({"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "80"}]})),
        ("/State/Status", json!("running")),
        ("/ExecIDs", json!(["abc"])),
        ("/Name", json!("/another")),
        ("/Image", json!(IMAGE_ID.replace('1', "2"))),
    ];
    for (pointer, lie) in cases {
        let named = ordered.with_lie(pointer, &lie).await;
        let named = named.unwrap_or_else(|| panic!("{pointer} = {lie} was believed"));
        let field = pointer.split('/').nth(2).filter(|part| part.parse::<usize>().is_err());
        assert!(named.contains(field.unwrap_or(&pointer[1..5])), "{pointer}: the error names {named}");
    }
}

/// Ways in which honest engines of other versions write the same thing.
#[tokio::test]
async fn other_spellings_of_the_order_are_accepted() {
    let ordered = Ordered::new().await;
    for (pointer, same) in [
        ("/HostConfig/CapAdd", json!(["CAP_KILL", "CAP_SETGID", "CAP_SETUID"])),
        ("/HostConfig/CapAdd", json!(["KILL", "SETGID", "SETUID"])),
        ("/HostConfig/Devices", Value::Null),
        ("/HostConfig/LogConfig", json!({"Type": "none", "Config": null})),
        ("/HostConfig/Mounts/0/BindOptions", json!({"Propagation": "rprivate", "NonRecursive": false})),
        ("/HostConfig/PortBindings", json!({})),
        ("/HostConfig/ConsoleSize", json!([24, 80])),
        ("/Config/Volumes", json!({})),
        ("/Config/Entrypoint", Value::Null),
        ("/NetworkSettings/Networks", json!({"none": {"NetworkID": "x"}})),
    ] {
        assert_eq!(ordered.with_lie(pointer, &same).await, None, "{pointer} = {same}");
    }
}

/// security.md 1: on cgroup v2 no swappiness is sent; with `AppArmor` the profile is asked for and must be shown.
#[tokio::test]
async fn what_is_ordered_follows_the_engine() {
    let mock = Mock::new();
    mock.with(|script| {
        script.info["CgroupVersion"] = "2".into();
        script.info["SecurityOptions"] = json!(["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"]);
        script.info["NCPU"] = 1.into();
        script.alter = vec![("/AppArmorProfile".to_owned(), "docker-default".into())];
    });
    let ordered = Ordered::with(mock).await;
    ordered.launch().await.unwrap();
    ordered.mock.with(|script| {
        let order = script.order.as_ref().unwrap();
        assert!(order["HostConfig"]["MemorySwappiness"].is_null());
        assert_eq!(order["HostConfig"]["SecurityOpt"][2], "apparmor=docker-default");
        script.alter.clear();
    });
    ordered.engine.remove("made").await.unwrap();
    assert!(ordered.launch().await.unwrap_err().to_string().contains("AppArmorProfile"));
}

/// security.md 1: a limit that the daemon may not set is left out, with a notice, under the same name and ids.
#[tokio::test]
async fn a_denied_limit_is_left_out_with_a_notice() {
    let ordered = Ordered::new().await;
    ordered.mock.with(|script| {
        let denied = "failed to create shim: error setting rlimit type 7: operation not permitted";
        script.starts = vec![
            (500, denied.to_owned()),
            (500, "write /proc/self/oom_score_adj: permission denied".to_owned()),
            (204, String::new()),
        ];
    });
    let launched = ordered.launch().await.unwrap();
    assert_eq!(launched.notices.len(), 2, "{:?}", launched.notices);
    assert!(launched.notices[0].contains("nofile") && launched.notices[1].contains("oom_score_adj"));
    ordered.mock.with(|script| {
        let order = &script.order.as_ref().unwrap()["HostConfig"];
        let names: Vec<&str> =
            order["Ulimits"].as_array().unwrap().iter().map(|limit| limit["Name"].as_str().unwrap()).collect();
        assert!(!names.contains(&"nofile") && names.contains(&"core"), "{names:?}");
        assert!(order["OomScoreAdj"].is_null());
    });
}

/// A PID 1 that is gone before it could be looked at is a failure with its exit code, and leaves nothing.
#[tokio::test]
async fn a_pid_1_that_ends_at_once_leaves_nothing() {
    let ordered = Ordered::new().await;
    let ended = [("/State/Pid", json!(0)), ("/State/ExitCode", json!(3)), ("/State/Error", json!("no exec"))];
    ordered.mock.with(|script| script.alter = ended.map(|(at, value)| (at.to_owned(), value)).to_vec());
    let error = ordered.launch().await.unwrap_err().to_string();
    assert!(error.contains("exit code 3: no exec"), "{error}");
    assert!(ordered.mock.with(|script| script.order.is_none()));
}

/// A start that fails for another reason says why and leaves nothing.
#[tokio::test]
async fn a_failed_start_leaves_nothing() {
    let ordered = Ordered::new().await;
    ordered.mock.with(|script| script.starts = vec![(500, "exec: no such file".to_owned())]);
    let error = ordered.launch().await.unwrap_err().to_string();
    assert!(error.contains("exec: no such file"), "{error}");
    assert!(ordered.mock.with(|script| script.order.is_none()));
}
