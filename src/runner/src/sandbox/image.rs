//! Images: which ones can hold a sandbox, and the two that we make ourselves.

mod apt;
pub(crate) mod archive;
pub(crate) mod debian;
pub(crate) mod layer;
mod rootfs;
mod step;

use std::collections::HashMap;

use bollard::models::ImageInspect;

use super::engine::EngineError;

pub use archive::{BuildError, MINIMAL, Programs};
pub use debian::{BASE, Debian, DebianError, Progress};

/// Most bytes of variables that an image may set; they all pass through the link's first frame.
const MAX_ENVIRONMENT: usize = 32 << 10;

/// An image that the engine has and that can hold a sandbox.
///
/// What inspect cannot show (a missing shell, /tmp or /proc as links) PID 1 finds out and says in its hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What was asked for.
    pub reference: String,
    /// Its content's id: containers are made from this, because a tag may mean another image in a moment.
    pub id: String,
    /// Its variables, `NAME=value`.
    pub environment: Vec<String>,
    /// Its labels.
    pub labels: HashMap<String, String>,
    /// Ports it names; without a network they mean nothing.
    pub(crate) ports: Vec<String>,
}

impl Image {
    /// Judges an image by what inspect shows.
    pub(crate) fn judge(reference: &str, inspect: ImageInspect) -> Result<Image, EngineError> {
        let refused = |reason: String| Err(EngineError::ImageRefused { reference: reference.to_owned(), reason });
        let (os, architecture) = (inspect.os.unwrap_or_default(), inspect.architecture.unwrap_or_default());
        if os != "linux" || architecture != "amd64" {
            return refused(format!("it is for {os}/{architecture}; take one for linux/amd64"));
        }
        let config = inspect.config.unwrap_or_default();
        let volumes = config.volumes.unwrap_or_default();
        if !volumes.is_empty() {
            return refused(format!(
                "it declares VOLUME {}, which would give the sandbox a writable folder of the host; build one without",
                volumes.join(" ")
            ));
        }
        let environment = config.env.unwrap_or_default();
        if environment.iter().map(String::len).sum::<usize>() > MAX_ENVIRONMENT {
            return refused(format!("its ENV is larger than {} KiB; build one with less", MAX_ENVIRONMENT >> 10));
        }
        let Some(id) = inspect.id.filter(|id| is_id(id)) else {
            return Err(EngineError::Garbled { step: "inspect the image", message: "it has no id".to_owned() });
        };
        Ok(Image {
            reference: reference.to_owned(),
            id,
            environment,
            labels: config.labels.unwrap_or_default(),
            ports: config.exposed_ports.unwrap_or_default(),
        })
    }
}

fn is_id(id: &str) -> bool {
    id.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Checks the form of a reference: `[host[:port]/]path[:tag][@digest]`. It becomes a part of a path of the engine's API,
/// so `..` and the like must not get through; whether the image exists is the engine's to say.
pub(crate) fn is_reference(reference: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b':' | b'@' | b'+');
    !reference.is_empty()
        && reference.len() <= 512
        && reference.bytes().all(allowed)
        && reference.split('/').all(|part| part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    fn inspect() -> ImageInspect {
        ImageInspect {
            id: Some(format!("sha256:{}", "a".repeat(64))),
            os: Some("linux".to_owned()),
            architecture: Some("amd64".to_owned()),
            config: Some(ImageConfig { env: Some(vec!["A=1".to_owned()]), ..ImageConfig::default() }),
            ..ImageInspect::default()
        }
    }

    fn with(change: impl FnOnce(&mut ImageInspect)) -> String {
        let mut changed = inspect();
        change(&mut changed);
        Image::judge("some/image:1", changed).unwrap_err().to_string()
    }

    #[test]
    fn refusals_name_the_image_and_the_reason() {
        assert_eq!(Image::judge("x", inspect()).unwrap().environment, ["A=1"]);
        let big = vec![format!("A={}", "x".repeat(40_000))];
        let cases = [
            (with(|i| i.architecture = Some("arm64".to_owned())), "linux/arm64"),
            (with(|i| i.os = Some("windows".to_owned())), "windows/amd64"),
            (with(|i| i.config.as_mut().unwrap().volumes = Some(vec!["/data".to_owned()])), "VOLUME /data"),
            (with(|i| i.config.as_mut().unwrap().env = Some(big)), "32 KiB"),
        ];
        for (message, word) in cases {
            assert!(message.contains("some/image:1") && message.contains(word), "{message:?} lacks {word:?}");
        }
        assert!(with(|i| i.id = Some("../x".to_owned())).contains("no id"));
    }

    #[test]
    fn references_cannot_leave_their_place() {
        for good in ["runner/minimal", "debian:12", "localhost:5000/a/b:c", "a@sha256:00ff", "sha256:abcd", "a_b.c-d"] {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "../x", "a/../b", "/a", "a//b", "a b", "a?b", "a#b", "a%2e", "a\nb", ".", "-a"] {
            assert!(!is_reference(bad), "{bad:?}");
        }
    }
}
