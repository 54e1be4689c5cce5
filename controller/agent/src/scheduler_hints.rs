//! What users tell of their jobs through a scheduler: words in the comment of a job of Slurm,
//! annotations of a pod.
//!
//! A scheduler knows the hosts of a job, but neither its work nor its traffic. The keys are
//! `profile`, `model`, `flop`, `collective` and `bytes`; each scheduler has its own prefix. The
//! decision: people write hints by hand, so a hint that cannot be read costs itself alone, never
//! the job or another hint.

use planner::{CollectiveDocument, CollectiveKind, JobDocument, builtin_profiles};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

/// Hints of one call that are reported as wrong. A comment may be any text.
const MAX_PROBLEMS: usize = 16;
/// Characters of a key or a value that are repeated in a message.
const MAX_SHOWN: usize = 80;

/// A hint that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{key}={value}: {problem}")]
pub struct HintError {
    /// Its key, without prefix.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What is expected.
    pub problem: String,
}

/// Adds hints, keys without prefix and values, to a job. Returns those that cannot be read, at most
/// 16; the job is as if they were not there.
pub fn apply_hints<'a>(
    hints: impl IntoIterator<Item = (&'a str, &'a str)>,
    job: &mut JobDocument,
) -> Vec<HintError> {
    let mut problems = Vec::new();
    for (key, value) in hints {
        if let Err(problem) = apply_hint(key, value, job) {
            let shown = |text: &str| text.chars().take(MAX_SHOWN).collect();
            problems.push(HintError { key: shown(key), value: shown(value), problem });
        }
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn apply_hint(key: &str, value: &str, job: &mut JobDocument) -> Result<(), String> {
    let collective = || {
        let kind = CollectiveKind::RingAllReduce;
        CollectiveDocument::new(kind)
    };
    match key {
        "profile" => job.profile = Some(find_profile(value)?.to_owned()),
        "model" if value.is_empty() => return Err("expected a name".to_owned()),
        "model" => job.model = Some(value.to_owned()),
        "flop" => job.flop_per_iteration = Some(parse_flop(value)?),
        "bytes" => job.collective.get_or_insert_with(collective).bytes = Some(parse_bytes(value)?),
        "collective" => {
            job.collective.get_or_insert_with(collective).kind = parse_collective(value)?;
        }
        _ => return Err("expected profile, model, flop, collective or bytes".to_owned()),
    }
    Ok(())
}

/// The name of a built-in profile, also by its part before the `/` where that names one only.
fn find_profile(name: &str) -> Result<&'static str, String> {
    let names = || builtin_profiles().iter().map(|profile| profile.name.as_str());
    let of_model = || names().filter(|known| known.split('/').next() == Some(name));
    let only = of_model().next().filter(|_| of_model().count() == 1);
    names().find(|known| *known == name).or(only).ok_or_else(|| {
        format!("no such profile; there are {}", names().collect::<Vec<_>>().join(", "))
    })
}

fn parse_flop(text: &str) -> Result<f64, String> {
    parse_number(text).ok_or_else(|| "expected a number >= 0 of FLOP, such as 1.2e15".to_owned())
}

/// A number of bytes, with a unit or without: `6.5e9`, `6.5GB`, `512MiB`; `G` and `Gi` as
/// Kubernetes writes quantities. Bits (`Gb`) are no bytes.
fn parse_bytes(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_alphabetic()).len());
    let scale = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => Some(1.0),
        "k" | "K" => Some(1e3),
        "M" => Some(1e6),
        "G" => Some(1e9),
        "T" => Some(1e12),
        "P" => Some(1e15),
        "Ki" => Some(f64::from(1_u32 << 10)),
        "Mi" => Some(f64::from(1_u32 << 20)),
        "Gi" => Some(f64::from(1_u32 << 30)),
        "Ti" => Some(2_f64.powi(40)),
        "Pi" => Some(2_f64.powi(50)),
        _ => None,
    };
    let bytes = scale.and_then(|scale| Some(scale * parse_number(number.trim_end())?));
    bytes
        .filter(|bytes| bytes.is_finite())
        .ok_or_else(|| "expected a number >= 0 of bytes, such as 6.5e9, 6.5GB or 512MiB".to_owned())
}

fn parse_number(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok();
    number.filter(|number| number.is_finite() && *number >= 0.0)
}

/// As documents spell it.
fn parse_collective(name: &str) -> Result<CollectiveKind, String> {
    let text: StrDeserializer<'_, ValueError> = StrDeserializer::new(name);
    CollectiveKind::deserialize(text).map_err(|_| {
        "no such collective; there are ring_all_reduce, tree_all_reduce, all_gather, \
         reduce_scatter, all_to_all and pipeline"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(hints: &[(&str, &str)]) -> (JobDocument, Vec<HintError>) {
        let mut job = JobDocument::default();
        let problems = apply_hints(hints.iter().copied(), &mut job);
        (job, problems)
    }

    #[test]
    fn bytes_have_units_of_bytes() {
        let cases = [
            ("6.5e9", 6.5e9),
            ("6.5GB", 6.5e9),
            ("7 GB", 7e9),
            ("250kB", 250e3),
            ("3M", 3e6),
            ("1e3B", 1e3),
            ("512MiB", 536_870_912.0),
            ("2Gi", 2_147_483_648.0),
            ("1.5TiB", 1_649_267_441_664.0),
            ("0", 0.0),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-1GB", "6.5Gb", "4XB", "1e400", "1e308PB", "inf", "nan", "1GBB"] {
            assert!(parse_bytes(text).unwrap_err().contains("512MiB"), "{text}");
        }
    }

    #[test]
    fn a_wrong_hint_costs_itself_alone() {
        let (job, problems) = read(&[
            ("profile", "gpt-24l/A100"),
            ("flop", "many"),
            ("collective", "gossip"),
            ("bytes", "64MiB"),
            ("colour", "red"),
        ]);
        assert_eq!(job.profile.as_deref(), Some("gpt-24l/A100"));
        assert_eq!(job.flop_per_iteration, None);
        let collective = job.collective.unwrap();
        assert_eq!(collective.kind, CollectiveKind::RingAllReduce);
        assert_eq!(collective.bytes, Some(67_108_864.0));
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["flop", "collective", "colour"]);
        let (job, problems) = read(&[("bytes", "much"), ("model", "")]);
        assert_eq!((job, problems.len()), (JobDocument::default(), 2));
    }

    #[test]
    fn profiles_are_found_by_model_and_unknown_ones_list_what_there_is() {
        let profile = |name| read(&[("profile", name)]).0.profile;
        assert_eq!(profile("resnet50").as_deref(), Some("resnet50/A100"));
        assert_eq!(profile("resnet"), None);
        let (_, problems) = read(&[("profile", "gtp-24l")]);
        assert!(problems[0].to_string().contains("gpt-24l/A100"), "{problems:?}");
    }

    #[test]
    fn messages_are_bounded() {
        let long = "x".repeat(10_000);
        let (_, problems) = read(&vec![(long.as_str(), long.as_str()); 1_000]);
        assert_eq!(problems.len(), MAX_PROBLEMS);
        assert!(problems.iter().all(|problem| problem.to_string().len() < 300));
    }
}
