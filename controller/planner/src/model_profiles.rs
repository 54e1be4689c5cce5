//! Built-in profiles: computation of one iteration of well-known models, from published figures.
//!
//! `profiles.toml` holds the figures with the source of each and the arithmetic of derived ones;
//! this module only reads it. Nothing here is measured by this project.

use std::sync::LazyLock;

use serde::Deserialize;

/// One iteration of a model on one kind of GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelProfile {
    /// Name in documents, as `bert-large/A100`.
    pub name: String,
    /// The model, for people.
    pub model: String,
    /// FLOP of one iteration on one GPU.
    pub flop_per_gpu: f64,
    /// Seconds of computation in one iteration.
    pub compute_seconds: f64,
    /// Fraction of the computation after which communication may begin.
    pub overlap_from: f64,
    /// Bytes of gradients, the volume of a data-parallel all-reduce.
    pub gradient_bytes: Option<f64>,
    /// Which figures are published, and where.
    pub published: String,
    /// Which figures are derived or assumed, and how.
    pub derived: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileTable {
    profile: Vec<ModelProfile>,
}

/// All built-in profiles, by name.
pub fn builtin_profiles() -> &'static [ModelProfile] {
    static PROFILES: LazyLock<Vec<ModelProfile>> = LazyLock::new(|| {
        let table: ProfileTable = toml::from_str(include_str!("profiles.toml"))
            .expect("the built-in table is valid; a test reads it");
        table.profile
    });
    &PROFILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid_and_plausible() {
        let names: Vec<&str> =
            builtin_profiles().iter().map(|profile| profile.name.as_str()).collect();
        assert!(names.is_sorted());
        for profile in builtin_profiles() {
            let rate = profile.flop_per_gpu / profile.compute_seconds;
            // An A100 has a peak of 312e12 FLOP/s (bf16, dense).
            assert!((20e12..312e12).contains(&rate), "{}: {rate:e} FLOP/s", profile.name);
            assert!((0.0..=1.0).contains(&profile.overlap_from), "{}", profile.name);
            assert!(!profile.published.is_empty() && !profile.derived.is_empty());
        }
    }
}
