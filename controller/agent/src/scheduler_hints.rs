//! What users tell of their jobs through a scheduler: words in the comment of a job of Slurm,
//! annotations of a pod.
//!
//! A scheduler knows the hosts of a job, but neither its work nor its traffic. The keys are
//! `profile`, `model`, `flop`, `collective` and `bytes`; each scheduler has its own prefix.

use planner::{CollectiveDocument, CollectiveKind, JobDocument};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

/// A hint that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}={value}`: {problem}")]
pub struct HintError {
    /// Its key, without prefix.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What is expected.
    pub problem: &'static str,
}

/// Adds hints, keys without prefix and values, to a job.
///
/// # Errors
/// The first one that cannot be read; those before it are added.
pub fn apply_hints<'a>(
    hints: impl IntoIterator<Item = (&'a str, &'a str)>,
    job: &mut JobDocument,
) -> Result<(), HintError> {
    let (mut kind, mut bytes) = (None, None);
    for (key, value) in hints {
        let invalid = |problem| HintError { key: key.to_owned(), value: value.to_owned(), problem };
        let number = || {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            number.filter(|number| *number >= 0.0).ok_or(invalid("expected a number >= 0"))
        };
        match key {
            "profile" => job.profile = Some(value.to_owned()),
            "model" => job.model = Some(value.to_owned()),
            "flop" => job.flop_per_iteration = Some(number()?),
            "bytes" => bytes = Some(number()?),
            "collective" => {
                kind = Some(collective_kind(value).ok_or(invalid("no such collective"))?);
            }
            _ => return Err(invalid("expected profile, model, flop, collective or bytes")),
        }
    }
    if kind.is_some() || bytes.is_some() {
        let kind = kind.unwrap_or(CollectiveKind::RingAllReduce);
        job.collective = Some(CollectiveDocument { kind, bytes, channels: 1 });
    }
    Ok(())
}

/// As documents spell it.
fn collective_kind(name: &str) -> Option<CollectiveKind> {
    let text: StrDeserializer<'_, ValueError> = StrDeserializer::new(name);
    CollectiveKind::deserialize(text).ok()
}
