//! `${…}` in a script: values of earlier results and of the prompt, put into text.
//!
//! `${name.path}` is replaced; `$${` stands for a literal `${`; everything else is as it is. A path goes by `.key`,
//! `[3]` or `["any key"]`.

use serde_json::Value;

/// Text with references, parsed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Reference(Reference),
}

/// One reference: a name and a path below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) path: Vec<Step>,
    /// As it was written, without the braces.
    pub(super) written: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            // `$${` escapes; only the `$` right before counts.
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at]);
                plain.push('{');
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let end = end_of_reference(&rest[at + 2..])
                .ok_or_else(|| format!("`${{` without `}}` in {:?} (write `$${{` for a literal `${{`)", short(text)))?;
            let written = &rest[at + 2..at + 2 + end];
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Reference(Reference::parse(written)?));
            rest = &rest[at + 2 + end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    pub(super) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Reference(reference) => Some(reference),
            Piece::Text(_) => None,
        })
    }

    /// The text with every reference replaced by what `value_of` knows.
    pub(super) fn render(&self, value_of: &dyn Fn(&Reference) -> Result<Value, String>) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Reference(reference) => text.push_str(&as_text(&value_of(reference)?)),
            }
        }
        Ok(text)
    }
}

/// Where the closing brace is; braces inside quotes do not count.
fn end_of_reference(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

impl Reference {
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`${{{}}}`: {why} (write `$${{` for a literal `${{`)", short(written));
        let name_end = written.find(['.', '[']).unwrap_or(written.len());
        let name = written[..name_end].to_owned();
        if !is_id(&name) {
            return Err(wrong("a reference begins with a call's id, `task`, `trigger` or `params`"));
        }
        let mut path = Vec::new();
        let mut rest = &written[name_end..];
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(wrong("a key is empty"));
                }
                path.push(Step::Key(after[..end].to_owned()));
                rest = &after[end..];
            } else if let Some(after) = rest.strip_prefix("[\"") {
                // The quoted key is a JSON string; its end is the first quote that no backslash precedes.
                let mut keys = serde_json::Deserializer::from_str(&rest[1..]).into_iter::<String>();
                let Some(Ok(key)) = keys.next() else { return Err(wrong("a quoted key is broken")) };
                let end = 1 + keys.byte_offset();
                debug_assert!(end <= after.len() + 2);
                path.push(Step::Key(key));
                rest = rest[end..].strip_prefix(']').ok_or_else(|| wrong("`]` is missing"))?;
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = after.find(']').ok_or_else(|| wrong("`]` is missing"))?;
                path.push(Step::Index(after[..end].parse().map_err(|_| wrong("an index is not a number"))?));
                rest = &after[end + 1..];
            } else {
                return Err(wrong("after `]` comes `.`, `[` or the end"));
            }
        }
        Ok(Self { name, path, written: written.to_owned() })
    }
}

/// The value below `root` at `path`; a number as a key also counts items.
pub(super) fn walk<'a>(root: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, step| match (step, value) {
        (Step::Key(key), Value::Object(members)) => members.get(key),
        (Step::Key(key), Value::Array(items)) => items.get(key.parse::<usize>().ok()?),
        (Step::Index(index), Value::Array(items)) => items.get(*index),
        _ => None,
    })
}

/// A value inside text: strings as they are, everything else as JSON.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// True for a call's id: letters, digits, `_` and `-`.
pub(super) fn is_id(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Text that a template renders to exactly `text`.
pub(crate) fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// A value whose strings, as templates, render to exactly `value`; keys are no templates.
pub(crate) fn literal_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(literal(text)),
        Value::Array(items) => items.iter().map(literal_value).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), literal_value(value))).collect(),
        other => other.clone(),
    }
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn render(text: &str) -> Result<String, String> {
        let values = json!({"a": {"n": 3, "list": ["x", {"k.k": true}], "s": "it's"}, "task": "do <it>"});
        Template::parse(text)?.render(&|reference| {
            values
                .get(&reference.name)
                .and_then(|value| walk(value, &reference.path))
                .cloned()
                .ok_or_else(|| format!("no {}", reference.written))
        })
    }

    #[test]
    fn references_are_replaced() {
        assert_eq!(render("echo ${task} ${a.n}!"), Ok("echo do <it> 3!".to_owned()));
        assert_eq!(render("${a.list[0]}${a.list.0}${a.list[1][\"k.k\"]}"), Ok("xxtrue".to_owned()));
        assert_eq!(render("${a.list}"), Ok(r#"["x",{"k.k":true}]"#.to_owned()));
        assert_eq!(render("$HOME $${HOME} $5 ${a.s}"), Ok("$HOME ${HOME} $5 it's".to_owned()));
        assert_eq!(render("${a.missing}"), Err("no a.missing".to_owned()));
    }

    #[test]
    fn broken_references_say_what_is_wrong() {
        insta::assert_snapshot!(render("x ${a").unwrap_err(), @r#"`${` without `}` in "x ${a" (write `$${` for a literal `${`)"#);
        insta::assert_snapshot!(render("${}").unwrap_err(), @"`${}`: a reference begins with a call's id, `task`, `trigger` or `params` (write `$${` for a literal `${`)");
        insta::assert_snapshot!(render("${a..b}").unwrap_err(), @"`${a..b}`: a key is empty (write `$${` for a literal `${`)");
        insta::assert_snapshot!(render("${a[x]}").unwrap_err(), @"`${a[x]}`: an index is not a number (write `$${` for a literal `${`)");
        insta::assert_snapshot!(render("${a[0]b}").unwrap_err(), @"`${a[0]b}`: after `]` comes `.`, `[` or the end (write `$${` for a literal `${`)");
        insta::assert_snapshot!(render("${a[\"x}\"}").unwrap_err(), @r#"`${a["x}"}`: `]` is missing (write `$${` for a literal `${`)"#);
        insta::assert_snapshot!(render("echo ${VAR:-1}").unwrap_err(), @"`${VAR:-1}`: a reference begins with a call's id, `task`, `trigger` or `params` (write `$${` for a literal `${`)");
    }

    /// A JSON value and the way to one of its leaves.
    fn value_and_path() -> impl Strategy<Value = (Value, Vec<Step>, Value)> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::from), ".{0,12}".prop_map(Value::from)];
        leaf.prop_map(|leaf| (leaf.clone(), Vec::new(), leaf)).prop_recursive(5, 40, 3, |inner| {
            prop_oneof![
                (".{0,8}", inner.clone()).prop_map(|(key, (value, mut path, leaf))| {
                    path.insert(0, Step::Key(key.clone()));
                    (json!({key: value, "~other~": null}), path, leaf)
                }),
                (0usize..4, inner).prop_map(|(index, (value, mut path, leaf))| {
                    path.insert(0, Step::Index(index));
                    let mut items = vec![Value::Null; index];
                    items.push(value);
                    (Value::Array(items), path, leaf)
                }),
            ]
        })
    }

    proptest! {
        /// Any text survives being quoted, whatever stands in it.
        #[test]
        fn literal_text_renders_to_itself(text in "[ab${}\\[\\].\"]{0,40}|.{0,40}") {
            prop_assert_eq!(render(&literal(&text)), Ok(text));
        }

        /// Every leaf of every JSON value can be reached, between any texts.
        #[test]
        fn every_value_can_be_reached(
            (value, path, leaf) in value_and_path(), before in ".{0,20}", after in ".{0,20}",
        ) {
            let mut written = String::from("r");
            for step in &path {
                match step {
                    Step::Key(key) => written.extend(["[", &json!(key).to_string(), "]"]),
                    Step::Index(index) => written.extend(["[", &index.to_string(), "]"]),
                }
            }
            // A `$` right before would escape the reference: that is the documented meaning.
            prop_assume!(!before.ends_with('$'));
            let text = format!("{}${{{written}}}{}", literal(&before), literal(&after));
            let rendered = Template::parse(&text).unwrap().render(&|reference| {
                walk(&value, &reference.path).cloned().ok_or_else(String::new)
            });
            prop_assert_eq!(rendered, Ok(format!("{before}{}{after}", as_text(&leaf))));
        }

        /// No text makes the parser panic.
        #[test]
        fn any_text_parses_or_is_refused(text in "[a$\\{\\}\\[\\].\"\\\\0]{0,30}|.{0,60}") {
            let _ = Template::parse(&text);
        }
    }
}
