//! Images on the engine.

use bollard::query_parameters::{ImportImageOptions, ListImagesOptions, RemoveImageOptions};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use super::{
    super::image::{BASE, Image, MINIMAL, is_reference},
    Engine, EngineError,
};

/// A name of an image in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageListed {
    /// Its name and tag.
    pub name: String,
    /// The image's id; several names may have the same.
    pub id: String,
    /// Bytes of it on disk, layers that it shares included.
    pub size: u64,
}

impl Engine {
    /// Looks at an image and refuses one that cannot hold a sandbox.
    pub async fn image(&self, reference: &str) -> Result<Image, EngineError> {
        if !is_reference(reference) {
            return Err(not_a_reference(reference));
        }
        let answer = self.docker.inspect_image(reference);
        match Engine::call("inspect the image", self.deadlines.ask, answer).await {
            Ok(inspect) => Image::judge(reference, inspect),
            Err(other) => Err(of_inspection(reference, other)),
        }
    }

    /// When an image was made, as it says itself, and its size in bytes.
    pub(crate) async fn image_age_and_size(&self, reference: &str) -> Result<(Option<String>, u64), EngineError> {
        let answer = self.docker.inspect_image(reference);
        let found = Engine::call("inspect the image", self.deadlines.ask, answer).await?;
        let size = found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
        Ok((found.created, size))
    }

    /// Lists the images that have a name, by name.
    pub async fn images(&self) -> Result<Vec<ImageListed>, EngineError> {
        let answer = self.docker.list_images(Some(ListImagesOptions::default()));
        let all = Engine::call("list its images", self.deadlines.ask, answer).await?;
        let mut listed: Vec<ImageListed> = all
            .into_iter()
            .flat_map(|image| {
                let size = u64::try_from(image.size).unwrap_or_default();
                let named = image.repo_tags.into_iter().filter(|name| !name.contains("<none>"));
                named.map(|name| ImageListed { name, id: image.id.clone(), size }).collect::<Vec<_>>()
            })
            .collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// Removes an image's name, and the image with its last one. Never by force: one that a container is made from stays.
    pub async fn remove_image(&self, reference: &str) -> Result<(), EngineError> {
        if !is_reference(reference) {
            return Err(not_a_reference(reference));
        }
        let inspect = Engine::call("inspect the image", self.deadlines.ask, self.docker.inspect_image(reference)).await;
        let id = match inspect {
            Ok(found) => found.id.unwrap_or_default(),
            Err(other) => return Err(of_inspection(reference, other)),
        };
        let users = self.containers_from(&id).await?;
        if !users.is_empty() {
            return Err(EngineError::ImageInUse { reference: reference.to_owned(), users: users.join(", ") });
        }
        let answer = self.docker.remove_image(reference, None::<RemoveImageOptions>, None);
        match Engine::call("remove the image", self.deadlines.act, answer).await {
            Err(EngineError::Answer { status: 404, .. }) => Err(no_image(reference)),
            other => other.map(drop),
        }
    }

    /// Removes an image that a newer one has taken all names from, unless a container is made from it.
    pub(crate) async fn remove_nameless(&self, id: &str) -> Result<(), EngineError> {
        let answer = self.docker.inspect_image(id);
        let found = match Engine::call("inspect the image", self.deadlines.ask, answer).await {
            Err(EngineError::Answer { status: 404, .. }) => return Ok(()),
            other => other?,
        };
        if found.repo_tags.is_some_and(|names| !names.is_empty()) {
            return Ok(());
        }
        let answer = self.docker.remove_image(id, None::<RemoveImageOptions>, None);
        match Engine::call("remove the image", self.deadlines.act, answer).await {
            Err(EngineError::Answer { status: 404 | 409, .. }) => Ok(()),
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

/// What it means for a reference that its image could not be inspected. The engine's rules are finer than ours: with an
/// upper-case letter in a repository's name it answers 400.
fn of_inspection(reference: &str, error: EngineError) -> EngineError {
    match error {
        EngineError::Answer { status: 404, .. } => no_image(reference),
        EngineError::Answer { status: 400, .. } => not_a_reference(reference),
        other => other,
    }
}

fn not_a_reference(reference: &str) -> EngineError {
    let reason = "it is not an image reference; write name[:tag], like debian:12".to_owned();
    EngineError::ImageRefused { reference: reference.to_owned(), reason }
}

fn no_image(reference: &str) -> EngineError {
    let remedy = match reference.strip_suffix(":latest").unwrap_or(reference) {
        MINIMAL => "make it: `runner image build`".to_owned(),
        BASE => "make it: `sudo runner image build --base debian`".to_owned(),
        _ => format!("fetch it (`docker pull {reference}`), or set local.image to another"),
    };
    EngineError::NoImage { reference: reference.to_owned(), remedy }
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
