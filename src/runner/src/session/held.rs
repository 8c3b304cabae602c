//! The lock that a session believes it holds, so that it is told when it holds it no longer (S-LOCK-6).

use std::cell::RefCell;

use serde_json::{Value, json};

use crate::store::{Store, StoreError};
use crate::tools::ToolResult;

/// The member that says which lost lock the model was told of: of a result in JSON, and of every result's details.
const TOLD: &str = "lost_lock";

/// A lock by what results in the journal say of it.
#[derive(Debug, Default)]
pub(crate) struct Held(RefCell<Option<(String, i64)>>);

impl Held {
    /// Learns from a result: a lock was granted or released, or the model was told that it is lost.
    pub(crate) fn note(&self, details: &Value) {
        let lock = &details["lock"];
        if let (Some(resource), Some(expires_at)) = (lock["resource_key"].as_str(), lock["expires_at"].as_i64()) {
            *self.0.borrow_mut() = Some((resource.to_owned(), expires_at));
            return;
        }
        let gone = details["released"].as_str().or(details[TOLD].as_str());
        self.0.borrow_mut().take_if(|(held, _)| Some(held.as_str()) == gone);
    }

    /// The lock that has expired since the model last heard of it; the next to ask is not told again.
    pub(crate) async fn lost(&self, store: &dyn Store) -> Result<Option<String>, StoreError> {
        if self.0.borrow().is_none() {
            return Ok(None);
        }
        let now = store.now().await?;
        Ok(self.0.borrow_mut().take_if(|(_, expires_at)| *expires_at <= now).map(|(resource, _)| resource))
    }
}

/// A result that also says that this lock is lost: in words before a text, as a member of an `object` in JSON.
pub(crate) fn telling(mut result: ToolResult, lost: Option<&str>, object: bool) -> ToolResult {
    let Some(resource) = lost else { return result };
    let members = Some(&result.text).filter(|_| object).and_then(|text| serde_json::from_str(text).ok());
    if let Some(Value::Object(mut members)) = members {
        members.insert(TOLD.to_owned(), resource.into());
        result.text = Value::Object(members).to_string();
    } else {
        let words = "[your lock of {} has expired: somebody else may hold it now]".replace("{}", resource);
        result.text = format!("{words}\n{}", result.text);
    }
    mark(&mut result.details, resource);
    result
}

/// Notes in a result's details that the model was told of a lost lock.
pub(crate) fn mark(details: &mut Value, resource: &str) {
    match details {
        Value::Object(members) => {
            members.insert(TOLD.to_owned(), resource.into());
        }
        other => *other = json!({TOLD: resource}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SqliteStore;

    fn granted(expires_at: i64) -> Value {
        json!({"lock": {"resource_key": "lock://a", "fencing_token": 1, "expires_at": expires_at}})
    }

    /// S-LOCK-6: who lost a lock is told, once; who released it or still has it is not.
    #[tokio::test]
    async fn a_lost_lock_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path()).unwrap();
        let held = Held::default();
        assert_eq!(held.lost(&store).await.unwrap(), None);
        held.note(&granted(i64::MAX));
        assert_eq!(held.lost(&store).await.unwrap(), None);
        held.note(&granted(1));
        assert_eq!(held.lost(&store).await.unwrap().as_deref(), Some("lock://a"));
        assert_eq!(held.lost(&store).await.unwrap(), None);
        for gone in [json!({"released": "lock://a"}), json!({"lost_lock": "lock://a"})] {
            held.note(&granted(1));
            held.note(&json!({"released": "lock://b"}));
            held.note(&gone);
            assert_eq!(held.lost(&store).await.unwrap(), None);
        }
    }

    /// A scheduler tool's result stays JSON; what a command printed is its own.
    #[test]
    fn a_result_in_json_stays_so() {
        let result = |text: &str| ToolResult { text: text.to_owned(), ..ToolResult::default() };
        let told = |text: &str, object| telling(result(text), Some("lock://a"), object);
        assert_eq!(told(r#"{"released":false}"#, true).text, r#"{"released":false,"lost_lock":"lock://a"}"#);
        assert_eq!(told(r#"{"released":false}"#, true).details, json!({"lost_lock": "lock://a"}));
        for (text, object) in [(r#"{"released":false}"#, false), ("no JSON", true), ("[1]", true)] {
            let words = "[your lock of lock://a has expired: somebody else may hold it now]";
            assert_eq!(told(text, object).text, format!("{words}\n{text}"));
        }
    }

    #[test]
    fn a_result_says_so_in_words_and_in_its_details() {
        let result = ToolResult { text: "x".to_owned(), details: json!({"kept": "/tmp/a"}), ..ToolResult::default() };
        assert_eq!(telling(result.clone(), None, false), result);
        let told = telling(result, Some("lock://a"), false);
        assert_eq!(told.text, "[your lock of lock://a has expired: somebody else may hold it now]\nx");
        assert_eq!(told.details, json!({"kept": "/tmp/a", "lost_lock": "lock://a"}));
        assert_eq!(telling(ToolResult::default(), Some("a"), false).details, json!({"lost_lock": "a"}));
    }
}
