//! The front matter of an agent's SKILL.md and the instructions below it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::error::{Place, ProjectError};
use super::near::near;

const KEYS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// What SKILL.md says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Skill {
    /// `name`, when given; checked against the folder's name.
    pub name: Option<String>,
    /// `description`, when given.
    pub description: Option<String>,
    /// `metadata`: free keys.
    pub metadata: BTreeMap<String, Value>,
    /// The text below the front matter: the agent's instructions.
    pub body: String,
}

/// Key and value pairs with their places, in the order written.
struct Pairs(Vec<(Spanned<String>, Spanned<Value>)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of keys to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Reads the text of the file at `path`. A file without front matter is all instructions.
pub(super) fn parse(path: &Path, text: &str) -> Result<Skill, ProjectError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some((yaml, body)) = split(path, text)? else {
        return Ok(Skill { body: text.trim().to_owned(), ..Skill::default() });
    };
    let mut skill = Skill { body: body.trim().to_owned(), ..Skill::default() };
    if yaml.trim().is_empty() {
        return Ok(skill);
    }
    // The `---` line comes first, so the YAML begins on line 2.
    let place = |line: u64, column: u64| Place {
        file: path.to_owned(),
        position: Some((usize::try_from(line).unwrap_or(0) + 1, usize::try_from(column).unwrap_or(1))),
    };
    let Pairs(pairs) = serde_saphyr::from_str_with_options(yaml, limits()).map_err(|error| {
        let place = error.location().map_or_else(|| Place::file(path), |at| place(at.line(), at.column()));
        // The parser's own position counts from the front matter's beginning, and some messages name its options.
        let words = error.without_snippet().to_string();
        let words = words.lines().next().unwrap_or("broken YAML");
        let words = words.split(" at line ").next().unwrap_or(words);
        let words = words.split(", set DuplicateKeyPolicy").next().unwrap_or(words);
        ProjectError::content(place, format!("front matter: {words}"))
    })?;
    for (key, value) in pairs {
        let at = place(key.referenced.line(), key.referenced.column());
        let wrong = |expected: &str| {
            ProjectError::content(
                place(value.referenced.line(), value.referenced.column()),
                format!("`{}` must be {expected}", key.value),
            )
        };
        match (key.value.as_str(), value.value.clone()) {
            ("name", Value::String(text)) => skill.name = Some(text),
            ("description", Value::String(text)) => skill.description = Some(text),
            // They inform readers; every tool of ours is allowed, so nothing follows from `allowed-tools`.
            ("license" | "compatibility" | "allowed-tools", Value::String(_)) => {}
            ("metadata", Value::Object(map)) => skill.metadata = map.into_iter().collect(),
            ("metadata", _) => return Err(wrong("a mapping")),
            (known, _) if KEYS.contains(&known) => return Err(wrong("a string")),
            (unknown, _) => {
                let hint = match near(unknown, KEYS).first() {
                    Some(best) => format!("did you mean `{best}`?"),
                    None => format!("known here: {}; settings go to the agent's config.toml", KEYS.join(", ")),
                };
                let what = format!("unknown front matter key `{unknown}`");
                return Err(ProjectError::Content { place: at, what, hint: Some(hint) });
            }
        }
    }
    Ok(skill)
}

/// Cuts the text into front matter and body; `None` when it does not begin with a `---` line.
fn split<'a>(path: &Path, text: &'a str) -> Result<Option<(&'a str, &'a str)>, ProjectError> {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return Ok(None) };
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            return Ok(Some((&text[first.len()..at], &text[at + line.len()..])));
        }
        at += line.len();
    }
    Err(ProjectError::Content {
        place: Place { file: path.to_owned(), position: Some((1, 1)) },
        what: "the front matter has no end".to_owned(),
        hint: Some("close it with a line that is only `---`".to_owned()),
    })
}

/// Front matter is small and flat; a file that needs more than this is a bomb.
fn limits() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 10_000,
            max_nodes: 5_000,
            max_aliases: 64,
            max_anchors: 64,
            max_depth: 32,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Skill, ProjectError> {
        parse(Path::new("SKILL.md"), text)
    }

    fn error(text: &str) -> String {
        let error = read(text).unwrap_err();
        format!("{error} ({})", error.hint().unwrap_or_default())
    }

    #[test]
    fn front_matter_and_body() {
        let text =
            "---\nname: hello\ndescription: >\n  Says\n  hello.\nmetadata: {author: me, n: 3}\n---\n\n# Hi\n\nDo it.\n";
        assert_eq!(
            read(text).unwrap(),
            Skill {
                name: Some("hello".to_owned()),
                description: Some("Says hello.\n".to_owned()),
                metadata: [("author".to_owned(), Value::from("me")), ("n".to_owned(), Value::from(3))].into(),
                body: "# Hi\n\nDo it.".to_owned(),
            }
        );
        assert_eq!(read("just text\n").unwrap(), Skill { body: "just text".to_owned(), ..Skill::default() });
        assert_eq!(read("---\r\n---\r\nbody").unwrap(), Skill { body: "body".to_owned(), ..Skill::default() });
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        insta::assert_snapshot!(error("---\nname: a\ndescripton: b\n---\n"), @"SKILL.md:3:1: unknown front matter key `descripton` (did you mean `description`?)");
        insta::assert_snapshot!(error("---\nmodels: [a]\n---\n"), @"SKILL.md:2:1: unknown front matter key `models` (known here: name, description, license, compatibility, metadata, allowed-tools; settings go to the agent's config.toml)");
        insta::assert_snapshot!(error("---\nname: [1]\n---\n"), @"SKILL.md:2:7: `name` must be a string ()");
        insta::assert_snapshot!(error("---\nname: a\nname: b\n---\n"), @"SKILL.md:3:1: front matter: duplicate mapping key: name ()");
        insta::assert_snapshot!(error("---\nname: 'a\n---\n"), @"SKILL.md:2:7: front matter: unclosed quote ()");
        insta::assert_snapshot!(error("---\nname: a\n"), @"SKILL.md:1:1: the front matter has no end (close it with a line that is only `---`)");
        insta::assert_snapshot!(error("---\n- a\n---\n"), @"SKILL.md:2:1: front matter: expected mapping start ()");
    }

    #[test]
    fn yaml_bombs_are_refused() {
        let mut bomb = String::from("---\nmetadata:\n  a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let uses = format!("*a{}", level - 1);
            let line = format!("  a{level}: &a{level} [{}]\n", [uses.as_str(); 9].join(","));
            bomb.push_str(&line);
        }
        bomb.push_str("---\n");
        let begun = std::time::Instant::now();
        assert!(error(&bomb).contains("front matter: "), "{}", error(&bomb));
        assert!(begun.elapsed() < std::time::Duration::from_secs(3));
        let deep = format!("---\nmetadata: {}{}\n---\n", "[".repeat(10_000), "]".repeat(10_000));
        assert!(error(&deep).contains("front matter: "), "{}", error(&deep));
    }
}
