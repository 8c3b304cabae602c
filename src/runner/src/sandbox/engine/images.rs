//! Images on the engine.

use bollard::query_parameters::ImportImageOptions;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use super::{
    super::image::{BASE, Image, MINIMAL, is_reference},
    Engine, EngineError,
};

impl Engine {
    /// Looks at an image and refuses one that cannot hold a sandbox.
    pub async fn image(&self, reference: &str) -> Result<Image, EngineError> {
        if !is_reference(reference) {
            let reason = "it is not an image reference; write name[:tag], like debian:12".to_owned();
            return Err(EngineError::ImageRefused { reference: reference.to_owned(), reason });
        }
        let answer = self.docker.inspect_image(reference);
        match Engine::call("inspect the image", self.deadlines.ask, answer).await {
            Ok(inspect) => Image::judge(reference, inspect),
            Err(EngineError::Answer { status: 404, .. }) => {
                let remedy = match reference.strip_suffix(":latest").unwrap_or(reference) {
                    MINIMAL => "make it: `runner image build`".to_owned(),
                    BASE => "make it: `sudo runner image build --base debian`".to_owned(),
                    _ => format!("fetch it (`docker pull {reference}`), or set local.image to another"),
                };
                Err(EngineError::NoImage { reference: reference.to_owned(), remedy })
            }
            Err(other) => Err(other),
        }
    }

    /// When an image was made, as it says itself, and its size in bytes.
    pub(crate) async fn image_age_and_size(&self, reference: &str) -> Result<(Option<String>, u64), EngineError> {
        let answer = self.docker.inspect_image(reference);
        let found = Engine::call("inspect the image", self.deadlines.ask, answer).await?;
        let size = found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
        Ok((found.created, size))
    }

    /// Removes an image's name, and the image with its last one; one that is not there is fine.
    #[cfg(test)]
    pub(crate) async fn remove_image(&self, reference: &str) -> Result<(), EngineError> {
        let answer = self.docker.remove_image(reference, None::<bollard::query_parameters::RemoveImageOptions>, None);
        match Engine::call("remove the image", self.deadlines.act, answer).await {
            Err(EngineError::Answer { status: 404, .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Loads a docker archive.
    pub(crate) async fn load_image(&self, archive: Vec<u8>) -> Result<(), EngineError> {
        let options = ImportImageOptions { quiet: true, ..ImportImageOptions::default() };
        let answer = self.docker.import_image(options, bollard::body_full(archive.into()), None);
        Engine::call("load the image", self.deadlines.load, drained(answer)).await
    }

    /// Loads a large docker archive as it comes.
    pub(crate) async fn load_image_stream(
        &self,
        archive: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), EngineError> {
        let options = ImportImageOptions { quiet: true, ..ImportImageOptions::default() };
        let answer = self.docker.import_image(options, bollard::body_try_stream(archive), None);
        Engine::call("load the image", self.deadlines.stream, drained(answer)).await
    }
}

/// Reads an answer to its end.
async fn drained<T>(
    mut answer: impl Stream<Item = Result<T, bollard::errors::Error>> + Unpin,
) -> Result<(), bollard::errors::Error> {
    while let Some(line) = answer.next().await {
        line?;
    }
    Ok(())
}
