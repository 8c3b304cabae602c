//! What tests of this room share: a real engine, an image, a state directory, and the promise to leave nothing.

use std::{path::PathBuf, sync::Arc};

use serde::Serialize;

use super::{
    engine::{Engine, EngineError},
    folder::SessionFolder,
    image::{Image, MINIMAL, Programs, archive::pack, layer},
    launch::{Launch, LaunchError, Launched},
    limits::{Limits, Wanted},
};
use crate::state::{State, random_hex};

/// A PID 1 that does nothing.
const IDLE: &[u8] = b"#!/bin/sh\nexec /bin/sleep 1000\n";

/// A place for one container of a real engine. Dropping it ends the container and removes the image it may have made.
pub(crate) struct Trial {
    pub(crate) engine: Engine,
    pub(crate) state: State,
    pub(crate) image: Image,
    pub(crate) limits: Limits,
    pub(crate) name: String,
    pub(crate) folder: SessionFolder,
    made_image: Option<String>,
    _base: Arc<tempfile::TempDir>,
}

impl Trial {
    /// With the minimal image.
    pub(crate) async fn new() -> Trial {
        let engine = Engine::connect(None).await.expect("these tests need a Docker engine");
        let image = match engine.image(MINIMAL).await {
            Ok(image) => image,
            Err(_) => engine.build_minimal(&Programs::find().unwrap()).await.unwrap(),
        };
        Trial::with_image(engine, image, None, IDLE)
    }

    /// With an image of these settings (the `config` of an image's JSON).
    pub(crate) async fn with_settings(settings: &impl Serialize) -> Trial {
        let engine = Engine::connect(None).await.expect("these tests need a Docker engine");
        let tag = format!("runner-trial-{}:latest", random_hex());
        engine.load_image(small_image(&tag, settings)).await.unwrap();
        match engine.image(&tag).await {
            Ok(image) => Trial::with_image(engine, image, Some(tag), IDLE),
            Err(error) => {
                engine.remove_image(&tag).await.unwrap();
                panic!("{error}");
            }
        }
    }

    fn with_image(engine: Engine, image: Image, made_image: Option<String>, program: &[u8]) -> Trial {
        let base = tempfile::tempdir().unwrap();
        let state = State::open_at(&base.path().join("state")).unwrap();
        let toolbox = state.place_toolbox(program, "aa").unwrap();
        let folder = SessionFolder::create(&state.session_folder("trial"), &toolbox).unwrap();
        let wanted = Wanted { memory: Some("128m".to_owned()), pids: Some(64), ..Wanted::default() };
        let limits = Limits::resolve(&wanted, engine.facts().ncpu).unwrap();
        let name = random_hex();
        Trial { engine, state, image, limits, name, folder, made_image, _base: Arc::new(base) }
    }

    /// Replaces PID 1 by another script.
    pub(crate) fn program(&self, script: &str) {
        let path: PathBuf = self.folder.path().join("toolbox");
        std::fs::remove_file(&path).unwrap();
        super::folder::make_file(&path, script.as_bytes(), 0o555).unwrap();
    }

    pub(crate) fn order(&self) -> Launch<'_> {
        Launch {
            session: "trial",
            name: &self.name,
            token: self.state.token(),
            image: &self.image,
            limits: self.limits,
            runtime: None,
            folder: &self.folder,
            socket_gid: nix::unistd::getegid().as_raw(),
        }
    }

    pub(crate) async fn launch(&self) -> Result<Launched, LaunchError> {
        self.order().run(&self.engine).await
    }
}

/// An image of busybox and nothing else, for settings that a test makes up.
pub(crate) fn small_image(tag: &str, settings: &impl Serialize) -> Vec<u8> {
    let busybox = std::fs::read(Programs::find().unwrap().busybox).unwrap();
    pack(tag, settings, &layer::assemble(b"", &busybox, &["sh", "sleep", "cat"].map(str::to_owned)))
}

impl Drop for Trial {
    fn drop(&mut self) {
        let (engine, token, name, image) =
            (self.engine.clone(), self.state.token().to_owned(), self.name.clone(), self.made_image.take());
        // A test may be panicking inside a runtime; another one cannot be entered in the same thread.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                engine.end_ours(&token, &name).await?;
                match image {
                    Some(image) => engine.remove_image(&image).await,
                    None => Ok::<(), EngineError>(()),
                }
            })
        });
        let ended = ended.join().unwrap();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}
