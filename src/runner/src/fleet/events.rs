//! Events from outside: what they look like to a filter, and whom they wake.
//!
//! Each provider's payload is normalised to the same fields, as far as it has them: `source`, `provider`, `event`,
//! `action`, `repo`, `org`, `number`, `title`, `url`, `author`, `assignee`, `labels`, `branch`, `sender` and a few more.
//! What is not among them is found in the payload itself.

use serde_json::{Map, Value, json};

use super::index::WaitIndex;
use crate::crash;
use crate::project::{WebhookProvider, WebhookSource};
use crate::store::{NewInboxEvent, Store, StoreError};

/// The source of what the inbox tells of schedules; it wakes nobody.
pub const SCHEDULE: &str = "schedule";

/// An event of a project's source, ready to be kept.
pub fn incoming(project: &str, source: &WebhookSource, event: &str, raw: Value) -> NewInboxEvent {
    NewInboxEvent {
        project: project.to_owned(),
        source: source.name.clone(),
        event: event.to_owned(),
        fields: fields(source, event, &raw),
        raw,
    }
}

/// Matches every event of a project that nobody has matched yet, and wakes whom it concerns (S-WAIT-9); returns the ids
/// of the sessions that were woken.
///
/// Any number of processes may do this at once: which of them wakes a session is decided in the store.
pub async fn deliver(store: &dyn Store, project: &str, index: &mut WaitIndex) -> Result<Vec<String>, StoreError> {
    let events = store.unmatched(project.to_owned()).await?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    // Now, and not before the events were read: a wait that began in between has to be found.
    index.refresh(store, project).await?;
    let mut woken = Vec::new();
    for event in events {
        // What the inbox tells of schedules is for people.
        let waits = match event.source.as_str() {
            SCHEDULE => Vec::new(),
            _ => index.matching(&event),
        };
        crash::point("events.matched");
        let sessions = store.wake(event.id, waits).await?;
        for session in &sessions {
            index.remove(session);
        }
        woken.extend(sessions);
    }
    Ok(woken)
}

/// The normalised fields of a payload.
fn fields(source: &WebhookSource, event: &str, raw: &Value) -> Value {
    let mut fields = Fields(Map::new());
    fields.put("source", &json!(source.name));
    fields.put("provider", &json!(source.provider.as_str()));
    fields.put("event", &json!(event));
    match source.provider {
        WebhookProvider::Github => github(&mut fields, raw),
        WebhookProvider::Sentry => sentry(&mut fields, raw),
        WebhookProvider::Linear => linear(&mut fields, raw),
        WebhookProvider::Mintlify | WebhookProvider::Generic => plain(&mut fields, raw),
    }
    Value::Object(fields.0)
}

struct Fields(Map<String, Value>);

impl Fields {
    /// Sets a field unless the value is null or the field has one.
    fn put(&mut self, name: &str, value: &Value) {
        if !value.is_null() && !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), value.clone());
        }
    }

    /// Sets a field to the first of these places that has a scalar.
    fn first(&mut self, name: &str, raw: &Value, places: &[&str]) {
        let found = places.iter().filter_map(|place| raw.pointer(place));
        let is_scalar = |value: &&Value| value.is_string() || value.is_number() || value.is_boolean();
        if let Some(value) = found.into_iter().find(is_scalar) {
            self.put(name, value);
        }
    }

    /// Sets `labels` to a list of objects with a `name`, whatever else labels have there.
    fn labels(&mut self, labels: Option<&Value>) {
        let Some(Value::Array(labels)) = labels else { return };
        let name = |label: &Value| if label.is_string() { label.clone() } else { label["name"].clone() };
        let labels: Vec<Value> = labels.iter().map(|label| json!({"name": name(label)})).collect();
        self.put("labels", &Value::Array(labels));
    }
}

/// GitHub: <https://docs.github.com/en/webhooks/webhook-events-and-payloads>.
fn github(fields: &mut Fields, raw: &Value) {
    fields.first("action", raw, &["/action"]);
    fields.first("repo", raw, &["/repository/full_name"]);
    fields.first("org", raw, &["/organization/login", "/repository/owner/login"]);
    fields.first("sender", raw, &["/sender/login"]);
    // What the event is about: of a comment on a pull request the issue.
    let about = ["pull_request", "issue", "discussion", "release", "workflow_run", "check_run", "check_suite"];
    let subject = about.iter().map(|name| &raw[*name]).find(|subject| subject.is_object()).unwrap_or(&Value::Null);
    fields.first("number", subject, &["/number", "/run_number"]);
    fields.first("number", raw, &["/number"]);
    fields.first("title", subject, &["/title", "/name", "/display_title"]);
    fields.first("url", raw, &["/comment/html_url", "/review/html_url"]);
    fields.first("url", subject, &["/html_url"]);
    fields.first("url", raw, &["/compare"]);
    fields.first("author", raw, &["/comment/user/login", "/review/user/login"]);
    fields.first("author", subject, &["/user/login", "/author/login", "/actor/login"]);
    fields.first("author", raw, &["/pusher/name"]);
    fields.first("assignee", raw, &["/assignee/login"]);
    fields.first("assignee", subject, &["/assignee/login"]);
    fields.labels(subject.get("labels"));
    fields.first("label", raw, &["/label/name"]);
    fields.first("state", subject, &["/state", "/status"]);
    fields.first("merged", subject, &["/merged"]);
    fields.first("conclusion", subject, &["/conclusion"]);
    fields.first("branch", subject, &["/head/ref", "/head_branch", "/target_commitish"]);
    fields.first("base", subject, &["/base/ref"]);
    if let Some(name) = raw["ref"].as_str() {
        fields.put("branch", &json!(name.strip_prefix("refs/heads/").unwrap_or(name)));
    }
    fields.first("commit", subject, &["/head/sha", "/head_sha"]);
    fields.first("commit", raw, &["/after"]);
}

/// Sentry: <https://docs.sentry.io/organization/integrations/integration-platform/webhooks/>.
fn sentry(fields: &mut Fields, raw: &Value) {
    fields.first("action", raw, &["/action"]);
    fields.first("sender", raw, &["/actor/name"]);
    let data = &raw["data"];
    let about = ["issue", "event", "error", "metric_alert"];
    let subject = about.iter().map(|name| &data[*name]).find(|subject| subject.is_object()).unwrap_or(data);
    fields.first("repo", subject, &["/project/slug", "/project_slug", "/project"]);
    fields.first("number", subject, &["/shortId", "/issue_id", "/id"]);
    fields.first("title", subject, &["/title", "/message"]);
    fields.first("title", data, &["/description_title"]);
    fields.first("url", subject, &["/web_url", "/permalink", "/url"]);
    fields.first("level", subject, &["/level"]);
    fields.first("state", subject, &["/status"]);
    fields.first("assignee", subject, &["/assignedTo/email", "/assignedTo/name"]);
    fields.first("author", data, &["/comment/author", "/user/name"]);
}

/// Linear: <https://linear.app/developers/webhooks>.
fn linear(fields: &mut Fields, raw: &Value) {
    fields.first("action", raw, &["/action"]);
    fields.first("org", raw, &["/organizationId"]);
    fields.first("sender", raw, &["/actor/email", "/actor/name"]);
    fields.first("url", raw, &["/url", "/data/url"]);
    let data = &raw["data"];
    fields.first("repo", data, &["/team/key", "/issue/team/key"]);
    fields.first("number", data, &["/identifier", "/issue/identifier", "/number"]);
    fields.first("title", data, &["/title", "/issue/title", "/name"]);
    fields.first("author", data, &["/creator/email", "/user/email", "/creator/name", "/user/name"]);
    fields.first("assignee", data, &["/assignee/email", "/assignee/name"]);
    fields.first("state", data, &["/state/name"]);
    fields.first("branch", data, &["/branchName"]);
    fields.labels(data.get("labels"));
}

/// Others: what is called like a field is that field.
fn plain(fields: &mut Fields, raw: &Value) {
    for name in ["action", "number", "title", "url", "author", "assignee", "branch", "sender", "state", "org"] {
        fields.first(name, raw, &[&format!("/{name}")]);
    }
    fields.first("action", raw, &["/status"]);
    fields.first("repo", raw, &["/repo", "/repository", "/project"]);
    fields.labels(raw.get("labels"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::Filter;

    fn normalised(provider: WebhookProvider, event: &str, raw: &Value) -> Value {
        fields(&WebhookSource { name: "ours".to_owned(), provider }, event, raw)
    }

    /// S-WAIT-3: the fields of a pull request.
    #[test]
    fn a_pull_request_of_github() {
        let raw = json!({
            "action": "closed",
            "number": 7,
            "pull_request": {
                "number": 7, "title": "Mend it", "html_url": "https://github.com/acme/app/pull/7", "state": "closed",
                "merged": true, "user": {"login": "ann"}, "labels": [{"id": 1, "name": "bug"}],
                "head": {"ref": "mend", "sha": "abc"}, "base": {"ref": "main"}, "assignee": null,
            },
            "repository": {"full_name": "acme/app", "owner": {"login": "acme"}},
            "sender": {"login": "bob"},
        });
        let fields = normalised(WebhookProvider::Github, "pull_request", &raw);
        let expected = json!({
            "source": "ours", "provider": "github", "event": "pull_request", "action": "closed", "repo": "acme/app",
            "org": "acme", "sender": "bob", "number": 7, "title": "Mend it",
            "url": "https://github.com/acme/app/pull/7", "author": "ann", "labels": [{"name": "bug"}],
            "state": "closed", "merged": true, "branch": "mend", "base": "main", "commit": "abc",
        });
        assert_eq!(fields, expected);
        let wanted =
            json!({"repo": "acme/app", "number": "7", "labels.0.name": "bug", "pull_request.user.login": "ann"});
        assert!(Filter::parse(&wanted).unwrap().matches(&fields, &raw));
    }

    #[test]
    fn other_events_of_github() {
        let push = json!({
            "ref": "refs/heads/main", "after": "abc", "compare": "https://x", "pusher": {"name": "ann"},
            "repository": {"full_name": "acme/app"},
        });
        let expected = json!({
            "source": "ours", "provider": "github", "event": "push", "repo": "acme/app", "url": "https://x",
            "author": "ann", "branch": "main", "commit": "abc",
        });
        assert_eq!(normalised(WebhookProvider::Github, "push", &push), expected);
        let comment = json!({
            "action": "created", "issue": {"number": 3, "title": "Broken", "user": {"login": "ann"}, "labels": []},
            "comment": {"user": {"login": "bob"}, "html_url": "https://c"},
        });
        let expected = json!({
            "source": "ours", "provider": "github", "event": "issue_comment", "action": "created", "number": 3,
            "title": "Broken", "url": "https://c", "author": "bob", "labels": [],
        });
        assert_eq!(normalised(WebhookProvider::Github, "issue_comment", &comment), expected);
        let run = json!({"action": "completed", "workflow_run": {"name": "CI", "head_branch": "main", "conclusion": "failure"}});
        let fields = normalised(WebhookProvider::Github, "workflow_run", &run);
        assert_eq!((&fields["conclusion"], &fields["branch"]), (&json!("failure"), &json!("main")));
    }

    #[test]
    fn events_of_other_providers() {
        let issue = json!({"action": "created", "actor": {"name": "sentry"}, "data": {"issue": {
            "id": "1", "shortId": "APP-1", "title": "Boom", "level": "error", "status": "unresolved",
            "web_url": "https://s", "project": {"slug": "app"},
        }}});
        let expected = json!({
            "source": "ours", "provider": "sentry", "event": "issue", "action": "created", "sender": "sentry",
            "repo": "app", "number": "APP-1", "title": "Boom", "url": "https://s", "level": "error",
            "state": "unresolved",
        });
        assert_eq!(normalised(WebhookProvider::Sentry, "issue", &issue), expected);
        let issue = json!({"action": "update", "type": "Issue", "url": "https://l", "actor": {"name": "Ann"}, "data": {
            "identifier": "ENG-5", "title": "Do it", "team": {"key": "ENG"}, "state": {"name": "Done"},
            "assignee": {"name": "Bob"}, "labels": [{"name": "bug", "color": "red"}],
        }});
        let expected = json!({
            "source": "ours", "provider": "linear", "event": "Issue", "action": "update", "sender": "Ann",
            "url": "https://l", "repo": "ENG", "number": "ENG-5", "title": "Do it", "assignee": "Bob", "state": "Done",
            "labels": [{"name": "bug"}],
        });
        assert_eq!(normalised(WebhookProvider::Linear, "Issue", &issue), expected);
        let own = json!({"repo": "a/b", "number": 5, "labels": ["x"], "branch": ["no scalar"], "more": {"n": 1}});
        let expected = json!({
            "source": "ours", "provider": "generic", "event": "deploy", "number": 5, "repo": "a/b",
            "labels": [{"name": "x"}],
        });
        assert_eq!(normalised(WebhookProvider::Generic, "deploy", &own), expected);
    }

    /// A payload of any form leaves what the event is told apart by.
    #[test]
    fn a_payload_cannot_pretend_to_come_from_elsewhere() {
        for provider in WebhookProvider::ALL {
            for raw in [json!({"source": "x", "event": "y", "provider": "z"}), json!([1]), json!(null), json!("text")] {
                let expected = json!({"source": "ours", "provider": provider.as_str(), "event": "push"});
                assert_eq!(normalised(provider, "push", &raw), expected);
            }
        }
    }
}
