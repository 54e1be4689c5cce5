//! Text to values: the one place that reads TOML, YAML and JSON documents.
//!
//! Fabrics, jobs and policies are plain serde types that refuse unknown fields; this module turns
//! text into them and every mistake into one sentence with file, line, field, what was found and
//! what would be right. What a value means is checked by the module that owns its type.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Size that a document may have, in bytes: ten times the expanded fabric of 12,500 hosts.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// YAML 1.1, one document.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// The format that a file's extension tells; `-`, standard input, is JSON.
    ///
    /// # Errors
    /// The name has another extension or none.
    pub fn of_file(file: &str) -> Result<Self, DocumentError> {
        match file.rsplit_once('.').map(|(_, extension)| extension) {
            _ if file == "-" => Ok(Self::Json),
            Some("toml") => Ok(Self::Toml),
            Some("yaml" | "yml") => Ok(Self::Yaml),
            Some("json") => Ok(Self::Json),
            _ => Err(DocumentError::UnknownFormat {
                file: file.to_owned(),
            }),
        }
    }
}

/// Why a file is not a document of the kind wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The extension names no format.
    #[error("{file}: unknown kind of file; its name must end in .toml, .yaml, .yml or .json")]
    UnknownFormat {
        /// Name of the file.
        file: String,
    },
    /// More than [`MAX_DOCUMENT_BYTES`].
    #[error("{file}: {bytes} bytes; a document has at most {MAX_DOCUMENT_BYTES}")]
    TooLarge {
        /// Name of the file.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// Not UTF-8, or with zero bytes.
    #[error("{file}: not a text file (byte {offset} is no UTF-8 text)")]
    NotText {
        /// Name of the file.
        file: String,
        /// Position of the first byte that is no text, from 0.
        offset: usize,
    },
    /// Nothing but white space.
    #[error("{file}: the file is empty")]
    Empty {
        /// Name of the file.
        file: String,
    },
    /// Broken syntax, or a field that is missing, unknown or of the wrong type.
    #[error("{}: {}{problem}", place(file, *line), prefix(field))]
    Invalid {
        /// Name of the file.
        file: String,
        /// Line, from 1, where the parser could tell it.
        line: Option<usize>,
        /// Path of the field, for example `links[3].b`; empty for the document itself.
        field: String,
        /// What was found and what would be right.
        problem: String,
    },
}

/// The text in a file's bytes.
///
/// # Errors
/// The file is too large or is not text.
pub fn text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, DocumentError> {
    let file = || file.to_owned();
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::TooLarge {
            file: file(),
            bytes: bytes.len(),
        });
    }
    let not_text = |offset| DocumentError::NotText {
        file: file(),
        offset,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(error.valid_up_to()))?;
    text.find('\0')
        .map_or(Ok(text), |offset| Err(not_text(offset)))
}

/// The value that `text` describes; `file` is its name in errors.
///
/// # Errors
/// The text is too large, is empty or no text at all, or does not describe a `T`.
pub fn parse<T: DeserializeOwned>(
    text: &str,
    format: Format,
    file: &str,
) -> Result<T, DocumentError> {
    let text = self::text(text.as_bytes(), file)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(DocumentError::Empty {
            file: file.to_owned(),
        });
    }
    let parsed = match format {
        Format::Toml => parse_toml(text),
        Format::Yaml => parse_yaml(text),
        Format::Json => parse_json(text),
    };
    parsed.map_err(|mistake| mistake.in_file(file))
}

/// `value` as text, for people to read.
///
/// # Errors
/// The value cannot be said in the format, for example a map whose keys are not text.
pub fn print<T: Serialize>(value: &T, format: Format) -> Result<String, PrintError> {
    let printed = match format {
        Format::Toml => toml::to_string_pretty(value).map_err(|error| error.to_string()),
        Format::Yaml => serde_yaml_ng::to_string(value).map_err(|error| error.to_string()),
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| error.to_string()),
    };
    printed.map_err(|reason| PrintError { format, reason })
}

/// A value that cannot be printed in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be printed as {format:?}: {reason}")]
pub struct PrintError {
    format: Format,
    reason: String,
}

/// Of `known` the name most like `found`, if any is like enough to be what was meant; the first of
/// several.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (found.chars().count() / 3).max(1);
    let distances = known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(found, name), name));
    let near = distances.filter(|&(distance, _)| distance <= allowed);
    near.min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// What a parser says, before the file is known.
struct Mistake {
    line: Option<usize>,
    field: String,
    message: String,
}

impl Mistake {
    fn in_file(self, file: &str) -> DocumentError {
        DocumentError::Invalid {
            file: file.to_owned(),
            line: self.line,
            problem: problem(&self.message),
            field: self.field,
        }
    }

    /// Splits the field's path off a deserializer's error.
    fn at_field<E>(
        error: serde_path_to_error::Error<E>,
        line_and_message: impl FnOnce(&E) -> (Option<usize>, String),
    ) -> Self {
        let (line, message) = line_and_message(error.inner());
        let path = error.path().to_string();
        let field = if path == "." { String::new() } else { path };
        Self {
            line,
            field,
            message,
        }
    }
}

fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let line_and_message = |error: &toml::de::Error| {
        let line = error.span().map(|span| line_at(text, span.start));
        (line, error.message().to_owned())
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| {
        let (line, message) = line_and_message(&error);
        Mistake {
            line,
            field: String::new(),
            message,
        }
    })?;
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| Mistake::at_field(error, line_and_message))
}

fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let line_and_message = |error: &serde_yaml_ng::Error| {
        let line = error.location().map(|location| location.line());
        (line, without_position(&error.to_string()).to_owned())
    };
    let deserializer = serde_yaml_ng::Deserializer::from_str(text);
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| Mistake::at_field(error, line_and_message))
        .map_err(Mistake::without_own_path)
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    let line_and_message = |error: &serde_json::Error| {
        (
            Some(error.line()),
            without_position(&error.to_string()).to_owned(),
        )
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| Mistake::at_field(error, line_and_message))?;
    deserializer.end().map_err(|error| {
        let (line, message) = line_and_message(&error);
        Mistake {
            line,
            field: String::new(),
            message,
        }
    })?;
    Ok(value)
}

impl Mistake {
    /// YAML errors repeat the field's path in front of the message.
    fn without_own_path(mut self) -> Self {
        let own = format!("{}: ", self.field);
        if let Some(message) = self.message.strip_prefix(&own) {
            self.message = message.to_owned();
        }
        self
    }
}

/// Number of the line, from 1, that a byte of `text` is in.
fn line_at(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
}

/// JSON and YAML errors end in the position, which is told apart from the message here.
fn without_position(message: &str) -> &str {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(message, _)| message)
}

/// A serde message in one line; for an unknown name, with the name that may have been meant.
fn problem(message: &str) -> String {
    let is_unknown = ["unknown field `", "unknown variant `"]
        .iter()
        .any(|p| message.starts_with(p));
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(found) if is_unknown => match nearest(found, quoted) {
            Some(meant) => format!("{}; did you mean `{meant}`?", first_clause(message)),
            None => message.to_owned(),
        },
        _ => message.trim_end().replace('\n', "; "),
    }
}

fn first_clause(message: &str) -> &str {
    message.split(", expected").next().unwrap_or(message)
}

fn place(file: &str, line: Option<usize>) -> String {
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

fn prefix(field: &str) -> String {
    if field.is_empty() {
        String::new()
    } else {
        format!("{field}: ")
    }
}
