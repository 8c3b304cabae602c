//! Images that differ from `runner/minimal` in what a test is about.

use serde_json::json;

use super::engine::{engine, engine_with};

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
        let encode = |change: &&str| change.replace(' ', "%20").replace('=', "%3D");
        let changes = std::iter::once(String::new()).chain(changes.iter().map(encode)).collect::<Vec<_>>();
        let changes = changes.join("&changes=");
        let (status, image) = engine("POST", &format!("/commit?container={container}&repo={repository}{changes}"));
        engine("DELETE", &format!("/containers/{container}?force=1"));
        assert!(status == 201 && ended["StatusCode"] == 0, "{ended} {image}");
        Self { name: repository }
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
