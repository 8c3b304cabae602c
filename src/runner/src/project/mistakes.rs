//! All that is wrong with what people wrote, and not only the first of it.

use std::cell::RefCell;

use super::error::ProjectError;

/// Mistakes, in the order in which they were met. A reader that was given one goes on as if the wrong thing had not been
/// written; a reader without stops at the first.
#[derive(Debug, Default)]
pub(super) struct Mistakes(RefCell<Vec<ProjectError>>);

impl Mistakes {
    /// Puts an error among the mistakes, or gives it back where nobody collects them.
    pub(super) fn note(mistakes: Option<&Self>, error: ProjectError) -> Result<(), ProjectError> {
        match mistakes {
            Some(mistakes) => mistakes.0.borrow_mut().push(error),
            None => return Err(error),
        }
        Ok(())
    }

    /// The value, or none when its error was put among the mistakes.
    pub(super) fn keep<T>(mistakes: Option<&Self>, read: Result<T, ProjectError>) -> Result<Option<T>, ProjectError> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) => Self::note(mistakes, error).map(|()| None),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// All of them, by file and by their place in it.
    pub(super) fn into_list(self) -> Vec<ProjectError> {
        let mut list = self.0.into_inner();
        list.sort_by_key(|error| error.place().map(|place| (place.file, place.position)));
        list
    }
}
