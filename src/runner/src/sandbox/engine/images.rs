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
            Err(EngineError::Answer { status: 404, .. }) => Err(self.absent(reference).await),
            Err(other) => Err(of_inspection(reference, other)),
        }
    }

    /// The error for an image that is not there; it names one that was mistyped, if there is one.
    async fn absent(&self, reference: &str) -> EngineError {
        // The engine's list only makes the words better.
        let listed = self.images().await.unwrap_or_default();
        let names = listed.iter().map(|image| untagged(&image.name));
        match nearest(untagged(reference), names.clone().chain([MINIMAL, BASE])) {
            Some(name) => {
                let make = how_to_make(name).filter(|_| names.clone().all(|there| there != name));
                let make = make.map_or_else(String::new, |make| format!(" {make}"));
                let remedy = format!("did you mean {name}?{make}");
                EngineError::NoImage { reference: reference.to_owned(), remedy }
            }
            None => no_image(reference),
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
            Err(EngineError::Answer { status: 404, .. }) => return Err(nothing_to_remove(reference)),
            Err(other) => return Err(of_inspection(reference, other)),
        };
        let users = self.containers_from(&id).await?;
        if !users.is_empty() {
            return Err(EngineError::ImageInUse { reference: reference.to_owned(), users: users.join(", ") });
        }
        let answer = self.docker.remove_image(reference, None::<RemoveImageOptions>, None);
        match Engine::call("remove the image", self.deadlines.act, answer).await {
            Err(EngineError::Answer { status: 404, .. }) => Err(nothing_to_remove(reference)),
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
    let lower = reference.to_lowercase();
    let reason = if lower != reference && is_reference(reference) {
        format!("upper case is not allowed in an image's name; write {lower}")
    } else {
        "it is not an image reference; write name[:tag], like debian:12".to_owned()
    };
    EngineError::ImageRefused { reference: reference.to_owned(), reason }
}

fn no_image(reference: &str) -> EngineError {
    let remedy = how_to_make(untagged(reference))
        .map_or_else(|| format!("fetch it (`docker pull {reference}`), or set local.image to another"), str::to_owned);
    EngineError::NoImage { reference: reference.to_owned(), remedy }
}

fn nothing_to_remove(reference: &str) -> EngineError {
    EngineError::NoImage {
        reference: reference.to_owned(),
        remedy: "`runner image ls` lists those that are".to_owned(),
    }
}

/// How the images that we make are made.
fn how_to_make(name: &str) -> Option<&'static str> {
    match name {
        MINIMAL => Some("make it: `runner image build`"),
        BASE => Some("make it: `sudo runner image build --base debian`"),
        _ => None,
    }
}

fn untagged(reference: &str) -> &str {
    reference.strip_suffix(":latest").unwrap_or(reference)
}

/// The name that a mistyped one was meant to be: two slips away at most. One that is right is no slip.
fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const SLIPS: usize = 2;
    let slips = names.map(|name| (strsim::damerau_levenshtein(given, name), name));
    let (slips, name) = slips.min()?;
    ((1..=SLIPS).contains(&slips) && given.len() > 3 * SLIPS).then_some(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slips_have_a_nearest_name() {
        let nearest = |given| nearest(given, ["debian:12", BASE, MINIMAL].into_iter());
        assert_eq!(nearest("runner/bsae"), Some(BASE));
        assert_eq!(nearest("runner/minimla"), Some(MINIMAL));
        assert_eq!(nearest("debain:12"), Some("debian:12"));
        for given in ["runner/base", "alpine:3", "runner-test/no-such:1", "a"] {
            assert_eq!(nearest(given), None, "{given}");
        }
    }

    #[test]
    fn upper_case_is_called_by_its_name() {
        let said = not_a_reference("RUNNER/x").to_string();
        assert_eq!(said, "image RUNNER/x is refused: upper case is not allowed in an image's name; write runner/x");
        assert!(not_a_reference("Odd Name").to_string().contains("it is not an image reference"));
    }
}
