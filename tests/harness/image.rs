//! Images that differ from `runner/minimal` in what a test is about.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::engine::{engine, engine_with, request};

/// An image of this test's own, removed with it.
pub(crate) struct Variant {
    name: String,
}

impl Variant {
    /// `runner/minimal` after this command ran in it as root, with these changes (`ENV A=b`) of its settings.
    pub(crate) fn new(name: &str, command: &[&str], changes: &[&str]) -> Self {
        let repository = format!("runner-test-{name}-{}", std::process::id());
        let order = json!({"Image": "runner/minimal", "Cmd": command, "HostConfig": {"NetworkMode": "none"}});
        let (status, made) = engine_with("POST", "/containers/create", &order);
        assert_eq!(status, 201, "{made}");
        let container = made["Id"].as_str().expect("a container has an id").to_owned();
        engine("POST", &format!("/containers/{container}/start"));
        let (_, ended) = engine("POST", &format!("/containers/{container}/wait"));
        let changes = changes.iter().fold(String::new(), |all, one| format!("{all}&changes={}", encoded(one)));
        let (status, image) = engine("POST", &format!("/commit?container={container}&repo={repository}{changes}"));
        engine("DELETE", &format!("/containers/{container}?force=1"));
        assert!(status == 201 && ended["StatusCode"] == 0, "{ended} {image}");
        Self { name: repository }
    }

    /// An image for an architecture with these entries: a path, and what it links to, or nothing for an empty folder.
    pub(crate) fn bare(topic: &str, architecture: &str, entries: &[(&str, Option<&str>)]) -> Self {
        let image = Self { name: format!("runner-test-{topic}-{}:latest", std::process::id()) };
        let mut layer = tar::Builder::new(Vec::new());
        for (path, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_size(0);
            if let Some(target) = link {
                header.set_entry_type(tar::EntryType::Symlink);
                layer.append_link(&mut header, path, target).expect("it goes to memory");
            } else {
                header.set_entry_type(tar::EntryType::Directory);
                layer.append_data(&mut header, path, std::io::empty()).expect("it goes to memory");
            }
        }
        let layer = layer.into_inner().expect("it goes to memory");
        let digest = hex::encode(Sha256::digest(&layer));
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]}
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [image.name], "Layers": ["layer.tar"]}]);
        let mut archive = tar::Builder::new(Vec::new());
        let (config, manifest) = (config.to_string(), manifest.to_string());
        let files = [("config.json", config.as_bytes()), ("manifest.json", manifest.as_bytes()), ("layer.tar", &layer)];
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content).expect("it goes to memory");
        }
        let archive = archive.into_inner().expect("it goes to memory");
        let (status, said) = request("POST", "/images/load?quiet=1", "application/x-tar", &archive);
        let made = engine("GET", &format!("/images/{}/json", image.name)).1;
        assert_eq!((status, made["Architecture"].as_str()), (200, Some(architecture)), "{said} {made}");
        image
    }

    /// Its reference.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Variant {
    fn drop(&mut self) {
        engine("DELETE", &format!("/images/{}", self.name));
    }
}

/// An image as an engine lists it.
pub(crate) fn listed_image(id: &str, tags: &[&str]) -> Value {
    json!({
        "Containers": -1, "Created": 0, "Id": id, "Labels": null, "ParentId": "", "RepoDigests": [], "RepoTags": tags,
        "SharedSize": -1, "Size": 4_300_000, "VirtualSize": 4_300_000,
    })
}

/// Text for a query, every byte of it encoded.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}"))
}
