//! Text to values: the one place that reads TOML, YAML and JSON documents.
//!
//! Fabrics, jobs and policies are plain serde types that refuse unknown fields; this module turns
//! text into them and every mistake into one sentence with file, line, field, what was found and
//! what would be right. What a value means is checked by the module that owns its type.

mod field_line;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::field_line::line_of_field;

/// Size that a document may have, in bytes: ten times the expanded fabric of 12,500 hosts.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// TOML 1.0.
    Toml,
    /// YAML 1.1, one document.
    Yaml,
    /// JSON.
    Json,
}

impl DocumentFormat {
    /// The format for a file's extension; `-`, standard input, is JSON.
    ///
    /// # Errors
    /// The name has another extension or none.
    pub fn from_file_name(file: &str) -> Result<Self, DocumentError> {
        match file.rsplit_once('.').map(|(_, extension)| extension) {
            _ if file == "-" => Ok(Self::Json),
            Some("toml") => Ok(Self::Toml),
            Some("yaml" | "yml") => Ok(Self::Yaml),
            Some("json") => Ok(Self::Json),
            _ => Err(DocumentError::UnknownFormat { file: file.to_owned() }),
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
    #[error("{file}: not a text file (byte {offset} is not valid UTF-8)")]
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
    #[error("{}: {}{problem}", file_and_line(file, *line), field_prefix(field))]
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
pub fn decode_text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, DocumentError> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::TooLarge { file: file.to_owned(), bytes: bytes.len() });
    }
    let not_text = |offset| DocumentError::NotText { file: file.to_owned(), offset };
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(error.valid_up_to()))?;
    text.find('\0').map_or(Ok(text), |offset| Err(not_text(offset)))
}

/// The value that `text` describes; `file` is its name in errors.
///
/// # Errors
/// The text is too large, is empty or no text at all, or does not describe a `T`.
pub fn parse_document<T: DeserializeOwned>(
    text: &str,
    format: DocumentFormat,
    file: &str,
) -> Result<T, DocumentError> {
    let text = self::decode_text(text.as_bytes(), file)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(DocumentError::Empty { file: file.to_owned() });
    }
    let parsed = match format {
        DocumentFormat::Toml => parse_toml(text),
        DocumentFormat::Yaml => parse_yaml(text),
        DocumentFormat::Json => parse_json(text),
    };
    parsed.map_err(|mistake| mistake.into_error(file))
}

/// `value` as text, for people to read.
///
/// # Errors
/// The format cannot express the value, for example a map whose keys are not text.
pub fn print_document<T: Serialize>(
    value: &T,
    format: DocumentFormat,
) -> Result<String, PrintError> {
    let printed = match format {
        DocumentFormat::Toml => toml::to_string_pretty(value).map_err(|error| error.to_string()),
        DocumentFormat::Yaml => serde_yaml_ng::to_string(value).map_err(|error| error.to_string()),
        DocumentFormat::Json => {
            serde_json::to_string_pretty(value).map_err(|error| error.to_string())
        }
    };
    printed.map_err(|reason| PrintError { format, reason })
}

/// A value that cannot be printed in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be printed as {format:?}: {reason}")]
pub struct PrintError {
    format: DocumentFormat,
    reason: String,
}

/// Of `known` the name most like `found`, if any is like enough to be what was meant; the first of
/// several.
pub fn nearest_name<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (found.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|name| (strsim::damerau_levenshtein(found, name), name));
    let near = distances.filter(|&(distance, _)| distance <= allowed);
    near.min_by_key(|&(distance, _)| distance).map(|(_, name)| name)
}

/// An error of a parser, before the name of the file is added.
struct ParseFailure {
    line: Option<usize>,
    field: String,
    message: String,
}

impl ParseFailure {
    fn into_error(self, file: &str) -> DocumentError {
        DocumentError::Invalid {
            file: file.to_owned(),
            line: self.line,
            problem: describe_problem(&self.message),
            field: self.field,
        }
    }

    /// Splits the field's path off a deserializer's error.
    fn at_field<E>(
        error: &serde_path_to_error::Error<E>,
        line_and_message: impl FnOnce(&E) -> (Option<usize>, String),
    ) -> Self {
        let (line, message) = line_and_message(error.inner());
        let path = error.path().to_string();
        let field = if path == "." { String::new() } else { path };
        Self { line, field, message }
    }
}

fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, ParseFailure> {
    let deserializer = toml::Deserializer::parse(text).map_err(|error| {
        let (line, message) = toml_line_and_message(text, &error);
        ParseFailure { line, field: String::new(), message }
    })?;
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| ParseFailure::at_field(&error, |error| toml_line_and_message(text, error)))
}

fn toml_line_and_message(text: &str, error: &toml::de::Error) -> (Option<usize>, String) {
    let line = error.span().map(|span| line_at(text, span.start));
    (line, error.message().to_owned())
}

fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, ParseFailure> {
    let deserializer = serde_yaml_ng::Deserializer::from_str(text);
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| {
            ParseFailure::at_field(&error, |error| {
                let line = error.location().map(|location| location.line());
                (line, without_position(&error.to_string()).to_owned())
            })
        })
        .map_err(ParseFailure::without_path_prefix)
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, ParseFailure> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| ParseFailure::at_field(&error, json_line_and_message))?;
    deserializer.end().map_err(|error| {
        let (line, message) = json_line_and_message(&error);
        ParseFailure { line, field: String::new(), message }
    })?;
    Ok(value)
}

fn json_line_and_message(error: &serde_json::Error) -> (Option<usize>, String) {
    (Some(error.line()), without_position(&error.to_string()).to_owned())
}

impl ParseFailure {
    /// YAML errors repeat the path of the field, or of what it is in, in front of the message.
    fn without_path_prefix(mut self) -> Self {
        if let Some((path, message)) = self.message.split_once(": ")
            && self.field.starts_with(path)
        {
            self.message = message.to_owned();
        }
        self
    }
}

/// Number of the line, from 1, that a byte of `text` is in.
fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// JSON and YAML errors end in the position; this strips it from the message.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message)
}

/// A serde message in one line; for an unknown name, with the name that may have been meant.
fn describe_problem(message: &str) -> String {
    let is_unknown =
        ["unknown field `", "unknown variant `"].iter().any(|p| message.starts_with(p));
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(found) if is_unknown => match nearest_name(found, quoted) {
            Some(meant) => format!("{}; did you mean `{meant}`?", first_clause(message)),
            None => message.to_owned(),
        },
        _ => message.trim_end().replace('\n', "; "),
    }
}

fn first_clause(message: &str) -> &str {
    message.split(", expected").next().unwrap_or(message)
}

fn file_and_line(file: &str, line: Option<usize>) -> String {
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

fn field_prefix(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Rack {
        name: String,
        shelves: Vec<Shelf>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shelf {
        height: u32,
        kind: Kind,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Metal,
        Wood,
    }

    const FORMATS: [DocumentFormat; 3] =
        [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json];

    /// The error of a text, as people see it.
    fn refused(format: DocumentFormat, text: &str) -> String {
        parse_document::<Rack>(text, format, "rack").unwrap_err().to_string()
    }

    #[test]
    fn values_round_trip_in_every_format() {
        let rack = Rack { name: "r".into(), shelves: vec![Shelf { height: 2, kind: Kind::Wood }] };
        for format in FORMATS {
            let text = print_document(&rack, format).unwrap();
            assert_eq!(parse_document::<Rack>(&text, format, "rack").as_ref(), Ok(&rack), "{text}");
        }
    }

    #[test]
    fn errors_have_line_field_and_the_intended_name() {
        let cases = [
            (
                DocumentFormat::Toml,
                "name = 'r'\n\n[[shelves]]\nheigt = 2\nkind = 'wood'\n",
                "rack:4: shelves[0].heigt: unknown field `heigt`; did you mean `height`?",
            ),
            (
                DocumentFormat::Json,
                "{\"name\": \"r\",\n \"shelves\": [\n  {\"heigt\": 2}]}",
                "rack:3: shelves[0].heigt: unknown field `heigt`; did you mean `height`?",
            ),
            (
                DocumentFormat::Yaml,
                "name: r\nshelves:\n- heigt: 2\n",
                "rack:3: shelves[0].heigt: unknown field `heigt`; did you mean `height`?",
            ),
            (
                DocumentFormat::Toml,
                "name = 'r'\n[[shelves]]\nheight = 2\nkind = 'wodo'\n",
                "rack:4: shelves[0].kind: unknown variant `wodo`; did you mean `wood`?",
            ),
            (
                DocumentFormat::Json,
                "{\"name\": \"r\", \"shelves\": [{\"height\": -2, \"kind\": \"wood\"}]}",
                "rack:1: shelves[0].height: invalid value: integer `-2`, expected u32",
            ),
            (
                DocumentFormat::Yaml,
                "name: r\nshelves:\n- height: tall\n  kind: wood\n",
                "rack:3: shelves[0].height: invalid type: string \"tall\", expected u32",
            ),
            (DocumentFormat::Toml, "name = 'r'\n", "rack:1: missing field `shelves`"),
            (
                DocumentFormat::Toml,
                "name = 'r'\nzzz = 1\n",
                "rack:2: zzz: unknown field `zzz`, expected `name` or `shelves`",
            ),
        ];
        for (format, text, expected) in cases {
            assert_eq!(refused(format, text), expected, "{format:?}");
        }
    }

    #[test]
    fn syntax_errors_have_their_line() {
        assert_eq!(
            refused(DocumentFormat::Json, "{\"name\":\n oops}"),
            "rack:2: name: expected value"
        );
        let trailing = "{\"name\": \"r\", \"shelves\": []}\n more";
        assert_eq!(refused(DocumentFormat::Json, trailing), "rack:2: trailing characters");
        assert!(refused(DocumentFormat::Toml, "name = \n").starts_with("rack:1: "));
        assert!(refused(DocumentFormat::Yaml, "a: [\n").starts_with("rack:"));
    }

    #[test]
    fn files_that_are_no_documents_are_refused() {
        for format in FORMATS {
            assert_eq!(refused(format, " \n"), "rack: the file is empty");
            let junk = refused(format, "\u{7f}ELF\0\u{1}");
            assert_eq!(junk, "rack: not a text file (byte 4 is not valid UTF-8)");
        }
        let junk = decode_text(&[b'a', 0xff], "rack").unwrap_err();
        assert_eq!(junk.to_string(), "rack: not a text file (byte 1 is not valid UTF-8)");
        let large = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        let large = decode_text(&large, "rack").unwrap_err().to_string();
        assert_eq!(large, "rack: 67108865 bytes; a document has at most 67108864");
    }

    #[test]
    fn deeply_nested_text_is_an_error_and_no_crash() {
        for format in FORMATS {
            let deep = format!("name = {}", "[".repeat(100_000));
            let text =
                if format == DocumentFormat::Toml { &deep } else { &deep["name = ".len()..] };
            assert!(parse_document::<Rack>(text, format, "rack").is_err());
        }
    }

    #[test]
    fn the_extension_selects_the_format() {
        let formats =
            ["a.toml", "b.yml", "c.d.yaml", "e.json", "-"].map(DocumentFormat::from_file_name);
        let [toml, yml, yaml, json, stdin] = formats.map(Result::unwrap);
        assert_eq!(
            [toml, yml, yaml, json, stdin],
            [
                DocumentFormat::Toml,
                DocumentFormat::Yaml,
                DocumentFormat::Yaml,
                DocumentFormat::Json,
                DocumentFormat::Json
            ]
        );
        assert!(DocumentFormat::from_file_name("fabric").is_err());
        assert!(DocumentFormat::from_file_name("fabric.csv").is_err());
    }

    #[test]
    fn the_nearest_name_is_near() {
        let known = || ["leaves", "spines", "pods"];
        assert_eq!(nearest_name("leavs", known()), Some("leaves"));
        assert_eq!(nearest_name("spiens", known()), Some("spines"));
        assert_eq!(nearest_name("gpus_per_host", known()), None);
    }
}
