//! Findings of a check about a fabric or a plan: data, not errors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a finding matters; orders findings, the worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// It works, perhaps not as meant.
    Warning,
    /// Information; nothing is wrong.
    Info,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// One observation about a fabric or a plan.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, for example `leaf3` or `job bert`.
    pub about: String,
    /// One sentence for people.
    pub text: String,
}

impl Finding {
    /// Something does not work.
    pub fn error(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { severity: Severity::Error, about: about.into(), text: text.into() }
    }

    /// Something works, perhaps not as meant.
    pub fn warning(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, about: about.into(), text: text.into() }
    }

    /// A finding with information.
    pub fn info(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { severity: Severity::Info, about: about.into(), text: text.into() }
    }
}

/// The texts of several findings in one line.
pub fn one_line(findings: &[Finding]) -> String {
    let texts = findings.iter().map(|finding| finding.text.as_str());
    texts.collect::<Vec<_>>().join("; ")
}

/// What libraries call the layer at which a connection failed, in front of the reason.
const LAYERS: [&str; 2] = ["transport error", "tcp connect error"];

/// An error with all its causes, in one line. Layers are left out where a cause says more, and so
/// is what an error repeats of its cause.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let mut texts = vec![error.to_string()];
    for cause in causes {
        let text = cause.to_string();
        texts.retain(|outer| !LAYERS.contains(&outer.as_str()));
        if texts.last().is_none_or(|outer| !outer.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.about, self.text)
    }
}

/// A count with its noun: `1 job`, `2 jobs`, `2 switches`, `2 entries`.
pub fn count_noun<N: Copy + std::fmt::Display + PartialEq + From<u8>>(
    count: N,
    noun: &str,
) -> String {
    match noun.strip_suffix('y') {
        _ if count == N::from(1) => format!("{count} {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        _ if noun.ends_with("ch") => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Names that a text lists before it only counts the rest.
const LISTED_NAMES: usize = 20;

/// The first names, and how many more there are.
pub(crate) fn list_names<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED_NAMES).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(LISTED_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// An error with a text and perhaps a cause.
    #[derive(Debug)]
    struct LayerError(&'static str, Option<Box<LayerError>>);

    impl std::fmt::Display for LayerError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for LayerError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    fn nest(texts: &[&'static str]) -> LayerError {
        let (first, rest) = texts.split_first().expect("an error has a text");
        LayerError(first, (!rest.is_empty()).then(|| Box::new(nest(rest))))
    }

    #[test]
    fn a_chain_says_each_thing_once() {
        let refused = ["cannot connect", "transport error", "tcp connect error", "refused (111)"];
        let cases: [(&[&'static str], &str); 5] = [
            (&refused, "cannot connect: refused (111)"),
            (&["transport error"], "transport error"),
            (&["transport error", "bad certificate"], "bad certificate"),
            (&["cannot read a: no such file", "no such file"], "cannot read a: no such file"),
            (&["a", "b", "c"], "a: b: c"),
        ];
        for (texts, expected) in cases {
            assert_eq!(error_chain(&nest(texts)), expected);
        }
    }
}
