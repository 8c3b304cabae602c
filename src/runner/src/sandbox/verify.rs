//! Reads a container back before it is started and compares it with the order.
//!
//! An engine that drops, changes or adds a field (an older version, a plugin, an authorisation proxy, an image's own
//! settings) would weaken the sandbox in silence. So the comparison is by what is *there*: every field of inspect that
//! is neither empty nor known to be harmless must be the ordered one, also fields that we never ask for.

use std::collections::BTreeMap;

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    engine::{EngineError, EngineFacts},
    image::Image,
    spec::{LABEL_IDS, LABEL_SESSION, LABEL_TOKEN, PROGRAM},
};

/// Fields of `HostConfig` that a sandbox's safety does not rest on, with the reason.
const FREE_HOST_CONFIG: [&str; 4] = [
    "ConsoleSize",     // the size of a terminal that there is not
    "Isolation",       // Windows
    "ShmSize",         // of the engine's own /dev/shm, which IpcMode none does without
    "ContainerIDFile", // written by the command line client
];

/// Fields of `Config` that come from the image and do nothing for a container that names its own command.
const FREE_CONFIG: [&str; 4] = [
    "ExposedPorts", // compared on its own: no more than the image's
    "OnBuild",      // for builds
    "ArgsEscaped",  // Windows
    "Shell",        // for builds
];

/// Fields with keys of anyone's choice: there `{"/data": {}}` is not nothing.
const MAPS: [&str; 8] =
    ["Annotations", "ExposedPorts", "Labels", "PortBindings", "StorageOpt", "Sysctls", "Tmpfs", "Volumes"];

/// Compares what inspect shows with what was ordered; the first difference is the error.
pub(crate) fn compare(
    name: &str,
    order: &ContainerCreateBody,
    image: &Image,
    facts: &EngineFacts,
    found: &ContainerInspectResponse,
) -> Result<(), EngineError> {
    one("Name", &format!("/{name}"), found.name.as_ref())?;
    one("Image", &image.id, found.image.as_ref())?;
    one("Path", &PROGRAM.to_owned(), found.path.as_ref())?;
    one("Args", &Vec::<String>::new(), Some(&found.args.clone().unwrap_or_default()))?;
    let profile = if facts.apparmor { "docker-default" } else { "" };
    one("AppArmorProfile", &profile.to_owned(), Some(&found.app_armor_profile.clone().unwrap_or_default()))?;
    one("ExecIDs", &Vec::<String>::new(), Some(&found.exec_ids.clone().unwrap_or_default()))?;
    for (field, label) in [("MountLabel", &found.mount_label), ("ProcessLabel", &found.process_label)] {
        one(field, &String::new(), Some(&label.clone().unwrap_or_default()))?;
    }
    state(found)?;
    host_config(order, facts, found)?;
    config(order, image, found)?;
    mounts(order, found)?;
    networks(found)
}

fn altered(field: impl Into<String>, ordered: &impl Serialize, found: &impl Serialize) -> EngineError {
    EngineError::Altered { field: field.into(), ordered: shown(ordered), found: shown(found) }
}

fn shown(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    match text.char_indices().nth(300) {
        // A seccomp profile is pages long.
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

fn one<T: Serialize + PartialEq>(field: &str, ordered: &T, found: Option<&T>) -> Result<(), EngineError> {
    if found == Some(ordered) { Ok(()) } else { Err(altered(field, ordered, &found)) }
}

fn state(found: &ContainerInspectResponse) -> Result<(), EngineError> {
    let status = found.state.as_ref().and_then(|state| state.status).map(|status| status.to_string());
    one("State.Status", &"created".to_owned(), status.as_ref())
}

fn host_config(
    order: &ContainerCreateBody,
    facts: &EngineFacts,
    found: &ContainerInspectResponse,
) -> Result<(), EngineError> {
    let mut ordered = order.host_config.clone().unwrap_or_default();
    ordered.runtime.get_or_insert_with(|| facts.default_runtime.clone());
    let (mut ordered, mut found) = (object(&ordered), object(&found.host_config));
    if facts.cgroup_version == 1 {
        // Nothing is not the same as 0 here: without the field the host's swappiness holds.
        exactly("HostConfig", "MemorySwappiness", &ordered, &found)?;
    }
    // Left out, engines set the host's own, which is fine and shown as nothing or 0; -1 and none mean "not set".
    if found.get("MemorySwappiness").and_then(Value::as_i64) == Some(-1) {
        found.remove("MemorySwappiness");
    }
    for free in FREE_HOST_CONFIG {
        ordered.remove(free);
        found.remove(free);
    }
    for list in ["Ulimits", "MaskedPaths", "ReadonlyPaths", "CapAdd", "CapDrop", "SecurityOpt", "GroupAdd", "Mounts"] {
        sort(&mut ordered, list);
        sort(&mut found, list);
    }
    for capabilities in ["CapAdd", "CapDrop"] {
        // Newer engines write CAP_KILL for KILL.
        for list in [&mut ordered, &mut found] {
            strip_prefix(list, capabilities, "CAP_");
            sort(list, capabilities);
        }
    }
    same("HostConfig", &ordered, &found)
}

fn config(order: &ContainerCreateBody, image: &Image, found: &ContainerInspectResponse) -> Result<(), EngineError> {
    let (mut ordered, mut found) = (object(order), object(&found.config));
    ordered.remove("HostConfig");
    ordered.remove("NetworkingConfig");
    ordered.remove("Env");
    let variables = found.remove("Env").unwrap_or_default();
    environment(order, image, variables.as_array().map_or(&[], Vec::as_slice))?;
    ordered.insert("Labels".to_owned(), object(&labels(order, image)).into());
    let ports =
        found.get("ExposedPorts").and_then(Value::as_object).map(|ports| ports.keys().cloned().collect::<Vec<_>>());
    if let Some(port) = ports.into_iter().flatten().find(|port| !image.ports.contains(port)) {
        return Err(altered("Config.ExposedPorts", &image.ports, &port));
    }
    // An image's interval and the like stay beside our NONE and mean nothing.
    let checks = order.healthcheck.as_ref().and_then(|check| check.test.clone()).unwrap_or_default();
    let there = found.remove("Healthcheck").and_then(|check| serde_json::from_value(check["Test"].clone()).ok());
    one("Config.Healthcheck.Test", &checks, there.as_ref())?;
    ordered.remove("Healthcheck");
    for free in FREE_CONFIG {
        ordered.remove(free);
        found.remove(free);
    }
    same("Config", &ordered, &found)
}

/// The image's variables and ours; ours win, also by a bare name, which the engine keeps in the list as it is. Of a name
/// that an image has twice engines keep one or both.
fn environment(order: &ContainerCreateBody, image: &Image, found: &[Value]) -> Result<(), EngineError> {
    let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
    let mut ordered = order.env.clone().unwrap_or_default();
    let ours: Vec<String> = ordered.iter().map(|line| name(line)).collect();
    ordered.extend(image.environment.iter().filter(|line| !ours.contains(&name(line))).cloned());
    let found: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
    let known = found.iter().all(|line| ordered.iter().any(|ordered| ordered == line));
    let whole = ordered.iter().all(|line| found.iter().any(|found| name(found) == name(line)));
    let twice = (1..found.len()).any(|n| found[..n].contains(&found[n]));
    if known && whole && !twice { Ok(()) } else { Err(altered("Config.Env", &ordered, &found)) }
}

/// The image's labels and ours; ours win.
fn labels(order: &ContainerCreateBody, image: &Image) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = image.labels.clone().into_iter().collect();
    labels.extend(order.labels.clone().unwrap_or_default());
    debug_assert!([LABEL_TOKEN, LABEL_SESSION, LABEL_IDS].iter().all(|ours| labels.contains_key(*ours)));
    labels
}

/// `Mounts` of inspect is what the engine will really mount, an image's volumes included.
fn mounts(order: &ContainerCreateBody, found: &ContainerInspectResponse) -> Result<(), EngineError> {
    let ordered = order.host_config.iter().flat_map(|config| config.mounts.iter().flatten());
    let mut ordered: Vec<Value> = ordered
        .map(|mount| {
            let text = |value: Option<&String>| Value::from(value.cloned().unwrap_or_default());
            Value::Object(Map::from_iter([
                ("Destination".to_owned(), text(mount.target.as_ref())),
                ("Propagation".to_owned(), "rprivate".into()),
                ("Source".to_owned(), text(mount.source.as_ref())),
                ("Type".to_owned(), "bind".into()),
            ]))
        })
        .collect();
    let mut there = Vec::new();
    for mount in found.mounts.iter().flatten() {
        let mut mount = object(mount);
        let target = mount.get("Destination").and_then(Value::as_str).unwrap_or_default().to_owned();
        // `false` is the safe value and means the same as nothing only for fields that ask for more.
        if mount.remove("RW") != Some(Value::Bool(false)) {
            return Err(altered(format!("Mounts[{target}].RW"), &false, &true));
        }
        mount.retain(|_, value| !is_empty(value));
        there.push(Value::Object(mount));
    }
    ordered.sort_by_key(destination);
    there.sort_by_key(destination);
    for (ordered, there) in ordered.iter().zip(&there) {
        let field = format!("Mounts[{}]", destination(there));
        same(&field, ordered.as_object().unwrap_or(&Map::new()), there.as_object().unwrap_or(&Map::new()))?;
    }
    if ordered.len() == there.len() { Ok(()) } else { Err(altered("Mounts", &ordered, &there)) }
}

fn destination(mount: &Value) -> String {
    mount.get("Destination").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Without a network there is no network to be in. `none` is the name some engines give to that.
fn networks(found: &ContainerInspectResponse) -> Result<(), EngineError> {
    let Some(settings) = &found.network_settings else { return Ok(()) };
    for name in settings.networks.iter().flatten().map(|(name, _)| name) {
        one("NetworkSettings.Networks", &"none".to_owned(), Some(name))?;
    }
    let bound = settings.ports.iter().flatten().find(|(_, bindings)| bindings.as_ref().is_some_and(|b| !b.is_empty()));
    match bound {
        Some((port, _)) => Err(altered("NetworkSettings.Ports", &Value::Null, port)),
        None => Ok(()),
    }
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Nothing, in any of the ways in which engines write it.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Without the empty fields inside, so that `{"Propagation": "rprivate", "NonRecursive": false}` is what was ordered.
fn dense(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), dense(value))).filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(list) => list.iter().map(dense).collect(),
        other => other.clone(),
    }
}

fn exactly(
    prefix: &str,
    field: &str,
    ordered: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Result<(), EngineError> {
    match (ordered.get(field), found.get(field)) {
        (ordered, found) if ordered == found => Ok(()),
        (ordered, found) => Err(altered(format!("{prefix}.{field}"), &ordered, &found)),
    }
}

fn same(prefix: &str, ordered: &Map<String, Value>, found: &Map<String, Value>) -> Result<(), EngineError> {
    let mut fields: Vec<&String> = ordered.keys().chain(found.keys()).collect();
    fields.sort();
    fields.dedup();
    for field in fields {
        let (wanted, there) = (ordered.get(field).unwrap_or(&Value::Null), found.get(field).unwrap_or(&Value::Null));
        let equal = if MAPS.contains(&field.as_str()) {
            wanted == there || (is_empty(wanted) && is_empty(there))
        } else {
            dense(wanted) == dense(there) || (is_empty(&dense(wanted)) && is_empty(&dense(there)))
        };
        if !equal {
            return Err(altered(format!("{prefix}.{field}"), wanted, there));
        }
    }
    Ok(())
}

/// Lists that are sets.
fn sort(fields: &mut Map<String, Value>, field: &str) {
    if let Some(Value::Array(list)) = fields.get_mut(field) {
        list.sort_by_key(|value| dense(value).to_string());
    }
}

fn strip_prefix(fields: &mut Map<String, Value>, field: &str, prefix: &str) {
    if let Some(Value::Array(list)) = fields.get_mut(field) {
        for item in list {
            if let Some(text) = item.as_str().and_then(|text| text.strip_prefix(prefix)) {
                *item = Value::from(text.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests;
