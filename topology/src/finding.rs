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

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.about, self.text)
    }
}
