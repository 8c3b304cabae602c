//! security.md 1: what the engine has on record for a running sandbox, field by field.

use std::os::unix::fs::MetadataExt;

use serde_json::{Map, Value, json};

use crate::harness::{Place, engine};

/// Drops what means nothing (null, false, 0, empty), and orders what has no order.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(plain);
            fields.retain(|_, value| !is_nothing(value));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(plain);
            items.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The fields of an object that a test knows of, taken out of it.
fn take(from: &mut Value, key: &str) -> Value {
    from.as_object_mut().and_then(|fields| fields.remove(key)).unwrap_or_default()
}

struct Record {
    place: Place,
    session: String,
    whole: Value,
}

/// What the engine has on record for a sandbox with every limit set.
fn record() -> Record {
    let place = Place::new();
    let limits = "memory = \"1g\"\ncpus = 0.5\npids = 100\ntmpSize = \"100m\"\ntmpInodes = 5000\n";
    place.agent("worker", &format!("[local]\n{limits}"));
    let mut desk = place.desk();
    desk.bash("true").ok();
    let name = place.containers().remove(0);
    let (status, whole) = engine("GET", &format!("/containers/{name}/json"));
    assert_eq!(status, 200);
    let listed = place.run(["ps", "--json"]).exits(0).json();
    let session = listed[0]["session"].as_str().expect("an id").to_owned();
    desk.close().exits(0);
    Record { place, session, whole }
}

#[test]
fn every_field_is_as_it_was_ordered() {
    let Record { place, session, mut whole } = record();
    let folder = place.state().canonicalize().expect("it is there").join("sessions").join(&session);
    let folder = folder.to_str().expect("UTF-8");
    let mut host = take(&mut whole, "HostConfig");

    let security = take(&mut host, "SecurityOpt");
    let mut options: Vec<String> = serde_json::from_value(security).expect("texts");
    let profile = options.iter().position(|option| option.starts_with("seccomp={")).expect("a profile of our own");
    let profile: Value = serde_json::from_str(&options.remove(profile)["seccomp=".len()..]).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    options.retain(|option| option != "apparmor=docker-default" || !apparmor());
    assert_eq!(options, ["no-new-privileges:true"]);

    let masked: Vec<String> = serde_json::from_value(take(&mut host, "MaskedPaths")).expect("texts");
    for path in [
        "acpi",
        "asound",
        "bus",
        "cmdline",
        "config.gz",
        "kallsyms",
        "kcore",
        "keys",
        "kmsg",
        "kpagecount",
        "modules",
        "pressure",
        "sched_debug",
        "slabinfo",
        "timer_list",
        "vmstat",
        "zoneinfo",
    ] {
        assert!(masked.contains(&format!("/proc/{path}")), "/proc/{path} is not masked");
    }
    for path in [
        "block",
        "bus",
        "class",
        "dev",
        "devices/virtual",
        "firmware",
        "fs/bpf",
        "fs/cgroup",
        "kernel",
        "module",
        "power",
    ] {
        assert!(masked.contains(&format!("/sys/{path}")), "/sys/{path} is not masked");
    }

    for capabilities in ["CapAdd", "CapDrop"] {
        for name in host[capabilities].as_array_mut().expect("a list") {
            *name = name.as_str().expect("a text").trim_start_matches("CAP_").into();
        }
    }
    // Of no consequence: a terminal's size, the engine's own /dev/shm, which IpcMode none does without, and the
    // runtime and swappiness, which differ between engines and control groups.
    for free in ["ConsoleSize", "ShmSize", "Runtime", "MemorySwappiness", "Isolation"] {
        take(&mut host, free);
    }
    plain(&mut host);
    let bind = |source: String, target: &str| {
        json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": true,
            "BindOptions": {"Propagation": "rprivate"}})
    };
    let mut mounts = vec![bind(folder.to_owned(), "/app")];
    mounts
        .extend(["passwd", "group", "hosts"].map(|name| bind(format!("{folder}/etc/{name}"), &format!("/etc/{name}"))));
    let ulimit = |name: &str, value: u64| json!({"Name": name, "Soft": value, "Hard": value});
    let mut expected = json!({
        "ReadonlyRootfs": true, "NetworkMode": "none", "IpcMode": "none", "CgroupnsMode": "private",
        "CapDrop": ["ALL"], "CapAdd": ["SETUID", "SETGID", "KILL"],
        "GroupAdd": [std::fs::metadata(place.state()).expect("it is there").gid().to_string()],
        "Mounts": mounts,
        "Tmpfs": {
            "/tmp": "rw,nosuid,nodev,exec,size=104857600,nr_inodes=5000,mode=1777",
            "/dev/shm": "rw,nosuid,nodev,noexec,size=16777216,nr_inodes=1024,mode=1777"
        },
        "Memory": 1 << 30, "MemorySwap": 1 << 30, "NanoCpus": 500_000_000, "PidsLimit": 100, "OomScoreAdj": 500,
        "Ulimits": [
            ulimit("nofile", 1024), ulimit("core", 0), ulimit("memlock", 64 << 10), ulimit("msgqueue", 0),
            ulimit("sigpending", 512), ulimit("rtprio", 0), ulimit("nice", 0), ulimit("fsize", 16 << 30)
        ],
        "Sysctls": {
            "kernel.shm_rmid_forced": "1", "kernel.shmall": "0", "kernel.shmmni": "0", "kernel.msgmni": "0",
            "kernel.sem": "0 0 0 0", "fs.mqueue.queues_max": "0", "net.ipv4.ping_group_range": "1 0"
        },
        "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"}
    });
    plain(&mut expected);
    assert_eq!(sorted(host), sorted(expected));
}

#[test]
fn the_rest_is_as_it_was_ordered_and_holds_no_secret() {
    let Record { place, session, mut whole } = record();
    let mut config = take(&mut whole, "Config");
    let labels = take(&mut config, "Labels");
    let token = std::fs::read_to_string(place.state().join("token")).expect("a token");
    let ids = labels["runner.ids"].as_str().and_then(|ids| ids.parse::<u32>().ok()).expect("a number");
    assert_eq!(
        labels,
        json!({"runner.install": token.trim(), "runner.session": session, "runner.ids": ids.to_string()})
    );
    assert!(ids >= 20_000, "{ids}");
    plain(&mut config);
    // PATH is the image's; PID 1 has no variable of ours.
    let expected = json!({
        "Hostname": "agent", "User": "0:0", "WorkingDir": "/app/static", "Cmd": ["/app/toolbox"],
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Image": whole["Image"], "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGKILL", "StopTimeout": 1, "NetworkDisabled": true
    });
    assert_eq!(sorted(config), sorted(expected));
    assert_eq!((&whole["Path"], &whole["Args"]), (&json!("/app/toolbox"), &json!([])));
    let name = place.show(&session)["container"]["name"].clone();
    assert_eq!(whole["Name"], format!("/{}", name.as_str().expect("a name")));
    let networks = take(&mut whole["NetworkSettings"], "Networks");
    assert!(networks.as_object().is_none_or(|all| all.keys().all(|name| name == "none")), "{networks}");
    let written = whole["Mounts"].as_array().expect("a list").iter().filter(|mount| mount["RW"] != json!(false));
    assert_eq!(written.count(), 0, "{}", whole["Mounts"]);
    assert_eq!(whole["Mounts"].as_array().map(Vec::len), Some(4), "an image's volumes would be here too");
}

fn apparmor() -> bool {
    let options = engine("GET", "/info").1["SecurityOptions"].clone();
    options.as_array().is_some_and(|all| all.iter().any(|one| one.as_str().is_some_and(|one| one.contains("apparmor"))))
}

/// Keys in order, for a difference that can be read.
fn sorted(value: Value) -> String {
    fn order(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<(String, Value)> =
                    fields.into_iter().map(|(key, value)| (key, order(value))).collect();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(Map::from_iter(fields))
            }
            Value::Array(items) => {
                let mut items: Vec<Value> = items.into_iter().map(order).collect();
                items.sort_by_key(ToString::to_string);
                Value::Array(items)
            }
            other => other,
        }
    }
    serde_json::to_string_pretty(&order(value)).expect("a value")
}
