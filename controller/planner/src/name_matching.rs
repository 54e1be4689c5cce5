//! Names and fields in documents: errors in them, the nearest known name, and globs.

use topology::document::{self, DocumentFormat};

/// A document that parses but makes no sense: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {field}: {problem}")]
pub struct DocumentFieldError {
    /// Name of the document, as the caller gave it.
    pub file: String,
    /// Path of the field, as `jobs[0].flows[2].bytes`.
    pub field: String,
    /// What was found and what would be right.
    pub problem: String,
}

impl DocumentFieldError {
    /// Adds the line of the field in the document's text to the file name, if it can be found.
    #[must_use]
    pub fn with_line_in(self, text: &str, format: DocumentFormat) -> Self {
        let line = document::line_of_field(text, format, &self.field);
        let file = match line {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file,
        };
        Self { file, ..self }
    }
}

/// `` ; did you mean `x`? `` for the name nearest to `found`, or nothing where none is near.
pub(crate) fn suggestion<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = document::nearest_name(found, known);
    nearest.map_or_else(String::new, |right| format!("; did you mean `{right}`?"))
}

/// Whether `text` matches `pattern`: `*` is any text, `?` any one character.
pub(crate) fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (to_chars(pattern), to_chars(text));
    let (mut p, mut t) = (0, 0);
    // The last star seen and where its text ends; on a mismatch the star takes one more character.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

fn to_chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, expect) in [
            ("gpt*", "gpt-1", true),
            ("gpt*", "bert", false),
            ("*-?", "gpt-1", true),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xaybz", false),
            ("", "", true),
            ("?", "", false),
            ("**", "", true),
        ] {
            assert_eq!(glob_matches(pattern, text), expect, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hint_is_given_only_when_a_name_is_near() {
        let switches = ["leaf1", "spine1"];
        assert_eq!(suggestion("leaf2", switches.into_iter()), "; did you mean `leaf1`?");
        assert_eq!(suggestion("something", switches.into_iter()), "");
    }
}
