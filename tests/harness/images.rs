//! Images of a test's own, made without a registry and removed with the test.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::engine::{engine, request};

/// An image that is removed when it is dropped.
pub(crate) struct OwnImage {
    /// Its name and tag.
    pub(crate) reference: String,
}

impl OwnImage {
    fn named(topic: &str) -> Self {
        Self { reference: format!("runner-test/{topic}-{}:1", std::process::id()) }
    }

    /// The base image with other settings, in the words of a Dockerfile.
    pub(crate) fn changed(topic: &str, changes: &[&str]) -> Self {
        let image = Self::named(topic);
        let body = json!({"Image": "runner/minimal", "Cmd": ["/bin/true"]}).to_string();
        let (status, made) = request("POST", "/containers/create", "application/json", body.as_bytes());
        assert_eq!(status, 201, "{made}");
        let id = made["Id"].as_str().expect("an id");
        let (repository, tag) = image.reference.split_once(':').expect("a tag");
        let changes: String = changes.iter().map(|change| format!("&changes={}", encoded(change))).collect();
        let (status, said) = engine("POST", &format!("/commit?container={id}&repo={repository}&tag={tag}{changes}"));
        engine("DELETE", &format!("/containers/{id}?force=1&v=1"));
        assert_eq!(status, 201, "{said}");
        image
    }

    /// An image for an architecture with these entries: a path, and what it links to, or nothing for an empty folder.
    pub(crate) fn of(topic: &str, architecture: &str, entries: &[(&str, Option<&str>)]) -> Self {
        let image = Self::named(topic);
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
        let manifest = json!([{"Config": "config.json", "RepoTags": [image.reference], "Layers": ["layer.tar"]}]);
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
        assert_eq!((status, image.inspect()["Architecture"].as_str()), (200, Some(architecture)), "{said}");
        image
    }

    /// What the engine says of it.
    pub(crate) fn inspect(&self) -> Value {
        engine("GET", &format!("/images/{}/json", self.reference)).1
    }
}

impl Drop for OwnImage {
    fn drop(&mut self) {
        engine("DELETE", &format!("/images/{}?force=1", self.reference));
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
