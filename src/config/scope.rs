//! Where in the configuration something is wrong, and the list that all faults are put on.

use std::fmt::Display;

use super::{
    ConfigError,
    store_url::redact_user_info,
    written::{Field, Section},
};

/// A key of the configuration, to read what is below it and to report what is wrong with it.
pub(super) struct Scope<'e> {
    path: String,
    errors: &'e mut Vec<ConfigError>,
}

impl<'e> Scope<'e> {
    pub(super) fn root(errors: &'e mut Vec<ConfigError>) -> Self {
        Self {
            path: String::new(),
            errors,
        }
    }

    /// The scope of `key` below this one; an empty key is this one.
    pub(super) fn at(&mut self, key: impl Display) -> Scope<'_> {
        let key = key.to_string();
        let dot = if self.path.is_empty() || key.is_empty() || key.starts_with('[') {
            ""
        } else {
            "."
        };
        Scope {
            path: format!("{}{dot}{key}", self.path),
            errors: self.errors,
        }
    }

    pub(super) fn fault(&mut self, message: impl AsRef<str>) {
        // No message names a secret on purpose; this keeps those out that people put elsewhere.
        self.errors.push(ConfigError {
            path: redact_user_info(&self.path),
            message: redact_user_info(message.as_ref()),
        });
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The value, if it was written and is right.
    pub(super) fn read<T>(&mut self, key: impl Display, field: Option<Field<T>>) -> Option<T> {
        match field? {
            Ok(value) => Some(value),
            Err(message) => {
                self.at(key).fault(message);
                None
            }
        }
    }

    /// The value, which must be written.
    pub(super) fn require<T>(&mut self, key: impl Display, field: Option<Field<T>>) -> Option<T> {
        if field.is_none() {
            self.at(&key).fault("is required");
        }
        self.read(key, field)
    }

    /// The value, or `default` where none is written; `rule` says what `holds` asks for.
    pub(super) fn checked<T>(
        &mut self,
        key: &str,
        field: Option<Field<T>>,
        default: T,
        holds: impl Fn(&T) -> bool,
        rule: &str,
    ) -> T {
        match self.read(key, field) {
            Some(value) if holds(&value) => value,
            Some(_) => {
                self.at(key).fault(rule);
                default
            }
            None => default,
        }
    }

    /// The items of a list, if it was written and all are right; an empty one is a fault.
    pub(super) fn list<T>(
        &mut self,
        key: impl Display,
        field: Option<Field<Vec<Field<T>>>>,
    ) -> Option<Vec<T>> {
        let mut scope = self.at(&key);
        let items = scope.read("", field)?;
        if items.is_empty() {
            scope.fault("must not be empty");
            return None;
        }
        let mut all = Some(Vec::with_capacity(items.len()));
        for (index, item) in items.into_iter().enumerate() {
            let item = scope.read(format_args!("[{index}]"), Some(item));
            all = all.zip(item).map(|(mut all, item)| {
                all.push(item);
                all
            });
        }
        all
    }

    /// The section at `key` (an empty one where it is absent or wrong) and its scope.
    pub(super) fn section<T: Section>(
        &mut self,
        key: &str,
        field: Option<Field<T>>,
    ) -> (T, Scope<'_>) {
        let section = self.read(key, field).unwrap_or_default();
        let mut scope = self.at(key);
        scope.refuse_unknown_keys(&section);
        (section, scope)
    }

    pub(super) fn refuse_unknown_keys<T: Section>(&mut self, section: &T) {
        for key in section.unknown_keys() {
            if !is_plain(key) {
                // A colon forgotten behind `url` makes the URL, and its password, part of the key.
                self.fault("holds a key that is not a name; is a colon or a space missing?");
                continue;
            }
            let nearest = T::KEYS
                .iter()
                .map(|known| (edit_distance(key, known), known))
                .filter(|(distance, known)| *distance <= 2 && *distance < known.len())
                .min();
            let message = match nearest {
                Some((_, known)) => format!("is not a key; is `{known}` meant?"),
                None => format!("is not a key; there are {}", T::KEYS.join(", ")),
            };
            self.at(key).fault(message);
        }
    }
}

/// A key as it is, or in quotes where that could be misread.
pub(super) fn shown_key(key: &str) -> String {
    if is_plain(key) {
        return key.to_owned();
    }
    format!("{:?}", key.chars().take(64).collect::<String>())
}

fn is_plain(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !key.is_empty() && key.len() <= 64 && key.chars().all(plain)
}

/// Levenshtein's, in characters.
fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.chars().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
