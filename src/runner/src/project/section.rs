//! One table of a TOML file, read key by key, with an error for whatever nobody reads.
//!
//! serde's `deny_unknown_fields` cannot name the nearest key or tell a wrong key from one that is documented and not
//! built yet; this can, and every value keeps its place for checks across files.

use std::ops::{Deref, RangeInclusive};
use std::path::Path;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, ProjectError};
use super::mistakes::Mistakes;
use super::near::near;

/// What happens to a documented key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It is read.
    Read,
    /// Its feature is not built yet: it is refused by name.
    Later,
    /// It never stands here: whoever reads the table refuses it and says why.
    Never,
}

/// The documented keys of one table.
pub(super) type Keys = &'static [(&'static str, Known)];

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found<T> {
    /// What was written.
    pub(super) value: T,
    /// Where.
    pub(super) place: Place,
}

/// A TOML file.
pub(super) struct Document<'a> {
    path: &'a Path,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
    mistakes: Option<&'a Mistakes>,
}

impl<'a> Document<'a> {
    /// With `mistakes`, whatever is wrong with single keys goes there, and they count as not written.
    pub(super) fn parse(path: &'a Path, text: &'a str, mistakes: Option<&'a Mistakes>) -> Result<Self, ProjectError> {
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().map_or_else(|| Place::file(path), |span| Place::at(path, text, span.start));
            let what = error.message().trim_end().replace('\n', ", ");
            ProjectError::Content { place, what, hint: two_kinds_of_models(text) }
        })?;
        Ok(Self { path, text, table, mistakes })
    }

    /// The table of the whole file.
    pub(super) fn root(&self, keys: Keys) -> Result<Section<'_>, ProjectError> {
        Section::new(self.path, self.text, self.table.get_ref(), String::new(), keys, &[], self.mistakes)
    }
}

/// One table of a file.
pub(super) struct Section<'a> {
    path: &'a Path,
    text: &'a str,
    table: &'a DeTable<'a>,
    prefix: String,
    keys: Keys,
    mistakes: Option<&'a Mistakes>,
}

impl<'a> Section<'a> {
    fn new(
        path: &'a Path,
        text: &'a str,
        table: &'a DeTable<'a>,
        prefix: String,
        keys: Keys,
        outer: Keys,
        mistakes: Option<&'a Mistakes>,
    ) -> Result<Self, ProjectError> {
        let section = Self { path, text, table, prefix, keys, mistakes };
        for key in table.keys() {
            let name: &str = key.get_ref();
            let place = section.place(key.span().start);
            let full = section.full(name);
            match keys.iter().find(|(known, _)| *known == name) {
                Some((_, Known::Read | Known::Never)) => {}
                Some((_, Known::Later)) => {
                    let what = format!("`{full}` is not supported yet");
                    let hint = Some("remove it; a key is never ignored silently".to_owned());
                    Mistakes::note(mistakes, ProjectError::Content { place, what, hint })?;
                }
                None => {
                    let is_outer = outer.contains(&(name, Known::Read));
                    let hint = match section.nearest(name) {
                        _ if is_outer => format!("`{name}` belongs above the first [section]"),
                        Some(best) => format!("did you mean `{}`?", section.full(&best)),
                        None => format!("known here: {}", section.read_keys().collect::<Vec<_>>().join(", ")),
                    };
                    let what = format!("unknown key `{full}`");
                    Mistakes::note(mistakes, ProjectError::Content { place, what, hint: Some(hint) })?;
                }
            }
        }
        Ok(section)
    }

    /// The keys that can be written here.
    fn read_keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter(|(_, known)| *known == Known::Read).map(|(key, _)| *key)
    }

    /// The key that somebody meant who wrote `name`.
    fn nearest(&self, name: &str) -> Option<String> {
        near(name, self.read_keys()).into_iter().next()
    }

    /// True when `key` stands here or was meant by one that is not known, so that it is wrong and not missing.
    pub(super) fn was_meant(&self, key: &str) -> bool {
        let unknown = |name: &str| self.keys.iter().all(|(known, _)| *known != name);
        let mut names = self.table.keys().map(|name| name.get_ref().as_ref());
        names.any(|name: &str| name == key || unknown(name) && self.nearest(name).is_some_and(|best| best == key))
    }

    /// Where the key itself stands, if it does.
    pub(super) fn place_of_key(&self, key: &str) -> Option<Place> {
        self.table.keys().find(|name| name.get_ref() == key).map(|name| self.place(name.span().start))
    }

    /// Puts an error among the mistakes, or gives it back where nobody collects them.
    pub(super) fn note(&self, error: ProjectError) -> Result<(), ProjectError> {
        Mistakes::note(self.mistakes, error)
    }

    /// The value, or none when its error was put among the mistakes.
    pub(super) fn keep<T>(&self, read: Result<T, ProjectError>) -> Result<Option<T>, ProjectError> {
        Mistakes::keep(self.mistakes, read)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn place(&self, offset: usize) -> Place {
        Place::at(self.path, self.text, offset)
    }

    fn get(&self, key: &str) -> Option<(&'a DeValue<'a>, Place)> {
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.place(value.span().start)))
    }

    /// An error about the value of `key`.
    fn wrong(&self, key: &str, place: Place, expected: &str, value: &DeValue<'_>) -> ProjectError {
        ProjectError::content(place, format!("`{}` must be {expected}, not {}", self.full(key), shown(value)))
    }

    /// That error, or nothing read where mistakes are collected.
    fn refuse<T>(
        &self,
        key: &str,
        place: Place,
        expected: &str,
        value: &DeValue<'_>,
    ) -> Result<Option<T>, ProjectError> {
        Mistakes::note(self.mistakes, self.wrong(key, place, expected, value)).map(|()| None)
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<Found<String>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        match value {
            DeValue::String(text) => Ok(Some(Found { value: text.deref().to_owned(), place })),
            other => self.refuse(key, place, "a string", other),
        }
    }

    /// Where the value of `key` stands, whatever it is.
    pub(super) fn place_of(&self, key: &str) -> Option<Place> {
        self.get(key).map(|(_, place)| place)
    }

    /// A list of strings.
    pub(super) fn strings(&self, key: &str) -> Result<Option<Found<Vec<Found<String>>>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        let DeValue::Array(items) = value else { return self.refuse(key, place, "a list of strings", value) };
        let mut texts = Vec::new();
        for item in items {
            let place = self.place(item.span().start);
            match item.get_ref() {
                DeValue::String(text) => texts.push(Found { value: text.deref().to_owned(), place }),
                other => return self.refuse(key, place, "a list of strings", other),
            }
        }
        Ok(Some(Found { value: texts, place }))
    }

    /// A whole number in `range`; `unit` is a word for messages, such as `seconds`, or empty.
    pub(super) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        unit: &str,
    ) -> Result<Option<Found<u64>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
        let expected = if *range.end() == u64::MAX {
            format!("a whole number{of} from {} up", range.start())
        } else {
            format!("a whole number{of} in {}–{}", range.start(), range.end())
        };
        let number = match value {
            DeValue::Integer(integer) => i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok(),
            _ => None,
        };
        match number.and_then(|number| u64::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(Found { value: number, place })),
            None => self.refuse(key, place, &expected, value),
        }
    }

    /// Any number, whole or not; whoever reads it checks the range.
    pub(super) fn number(&self, key: &str) -> Result<Option<Found<f64>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        let number: Option<f64> = match value {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().replace('_', "").parse().ok(),
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => Ok(Some(Found { value: number, place })),
            None => self.refuse(key, place, "a number", value),
        }
    }

    /// Any whole number of 64 bits, larger ones as the largest; whoever reads it checks the range.
    pub(super) fn whole(&self, key: &str) -> Result<Option<Found<i64>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        match value {
            DeValue::Integer(integer) => {
                let digits = integer.as_str().replace('_', "");
                let largest = if digits.starts_with('-') { i64::MIN } else { i64::MAX };
                let number = i64::from_str_radix(&digits, integer.radix()).unwrap_or(largest);
                Ok(Some(Found { value: number, place }))
            }
            _ => self.refuse(key, place, "a whole number", value),
        }
    }

    /// A size such as `"512m"`, or a whole number of bytes, as text; whoever reads it checks it.
    pub(super) fn size(&self, key: &str) -> Result<Option<Found<String>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        match value {
            DeValue::String(text) => Ok(Some(Found { value: text.deref().to_owned(), place })),
            DeValue::Integer(integer) if integer.radix() == 10 => {
                Ok(Some(Found { value: integer.as_str().replace('_', ""), place }))
            }
            _ => self.refuse(key, place, "a size such as \"512m\"", value),
        }
    }

    /// A string, or a whole number from 0 up as its digits.
    pub(super) fn text_or_whole(&self, key: &str) -> Result<Option<Found<String>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        match value {
            DeValue::String(text) => Ok(Some(Found { value: text.deref().to_owned(), place })),
            DeValue::Integer(integer) if integer.radix() == 10 => {
                Ok(Some(Found { value: integer.as_str().replace('_', ""), place }))
            }
            _ => self.refuse(key, place, "a string or a whole number", value),
        }
    }

    /// A table below this one.
    pub(super) fn table(&self, key: &str, keys: Keys) -> Result<Option<Section<'a>>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        let DeValue::Table(table) = value else { return self.refuse(key, place, "a table", value) };
        Section::new(self.path, self.text, table, format!("{}.", self.full(key)), keys, self.keys, self.mistakes)
            .map(Some)
    }

    /// The tables of a table of tables, by name, in the order of their names.
    pub(super) fn tables(&self, key: &str, keys: Keys) -> Result<Vec<(Found<String>, Section<'a>)>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(Vec::new()) };
        let DeValue::Table(all) = value else {
            return self.refuse(key, place, "a table", value).map(Option::unwrap_or_default);
        };
        let mut sections = Vec::new();
        for (name, value) in all {
            let place = self.place(name.span().start);
            let text: &str = name.get_ref();
            let full = format!("{}.{text}", self.full(key));
            let DeValue::Table(table) = value.get_ref() else {
                Mistakes::note(self.mistakes, ProjectError::content(place, format!("`{full}` must be a table")))?;
                continue;
            };
            let section =
                Section::new(self.path, self.text, table, format!("{full}."), keys, self.keys, self.mistakes)?;
            sections.push((Found { value: text.to_owned(), place }, section));
        }
        Ok(sections)
    }

    /// A table whose keys are free, as JSON.
    pub(super) fn free_table(&self, key: &str) -> Result<Option<Value>, ProjectError> {
        let Some((value, place)) = self.get(key) else { return Ok(None) };
        match value {
            DeValue::Table(_) => Mistakes::keep(self.mistakes, self.json(key, value, &place)),
            other => self.refuse(key, place, "a table", other),
        }
    }

    fn json(&self, key: &str, value: &DeValue<'_>, place: &Place) -> Result<Value, ProjectError> {
        Ok(match value {
            DeValue::String(text) => Value::String(text.deref().to_owned()),
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Integer(integer) => i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix())
                .map(Value::from)
                .map_err(|_| self.wrong(key, place.clone(), "within 64 bits everywhere", value))?,
            DeValue::Float(float) => float
                .as_str()
                .replace('_', "")
                .parse::<f64>()
                .ok()
                .and_then(serde_json::Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| self.wrong(key, place.clone(), "without infinite numbers", value))?,
            DeValue::Array(items) => {
                items.iter().map(|item| self.json(key, item.get_ref(), place)).collect::<Result<_, _>>()?
            }
            DeValue::Table(table) => table
                .iter()
                .map(|(name, value)| Ok((name.get_ref().to_string(), self.json(key, value.get_ref(), place)?)))
                .collect::<Result<_, ProjectError>>()?,
        })
    }
}

/// What to do about a list of models in the file that has the models themselves: the parser's words for it are about its
/// own types.
fn two_kinds_of_models(text: &str) -> Option<String> {
    let lines = || text.lines().map(str::trim_start);
    let is_list = |line: &str| {
        let value = line.strip_prefix("models").and_then(|rest| rest.trim_start().strip_prefix('='));
        value.is_some_and(|value| value.trim_start().starts_with(['[', '"']))
    };
    let both = lines().any(is_list) && lines().any(|line| line.starts_with("[models."));
    both.then(|| "a list `models = […]` belongs into an agent's config.toml; here are the models themselves".to_owned())
}

/// A value for an error message, short.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            let short: String = text.chars().take(60).collect();
            format!("{short:?}{}", if short.len() < text.len() { "…" } else { "" })
        }
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
