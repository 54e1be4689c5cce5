//! How far the drains of the policy have come.

use std::collections::BTreeSet;

use topology::Finding;

/// Drains of the policy in force, by the names that it has for switches and cables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainProgress {
    /// Parts to which a table of some switch may still lead, as far as this controller sees.
    pub under_way: BTreeSet<String>,
    /// Whether they take longer than the configuration allows.
    pub is_late: bool,
    /// Parts to which no table of any switch leads any more.
    pub complete: BTreeSet<String>,
    /// Whether that has been so for long enough that nothing is on its way there.
    pub is_settled: bool,
}

impl DrainProgress {
    /// The finding about a late drain, if one is late.
    pub fn late_finding(&self) -> Option<Finding> {
        let text = "not complete within deadlines.drain_ms: some switch does not hold the tables \
                    for it";
        let about = format!("drain of {}", join_names(&self.under_way));
        self.is_late.then(|| Finding::warning(about, text))
    }
}

/// The names, separated by commas.
pub(crate) fn join_names(parts: &BTreeSet<String>) -> String {
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    names.join(", ")
}
