//! Findings about a fabric: what will not work, what may not be meant, what is good to know.
//!
//! A document that reads without error is a fabric; whether it is a good one is said here, as data.
//! Each rule is a function of the fabric alone and rules do not know each other. The fabric is
//! judged as it is now, so that failed and drained parts show in what can no longer be reached.

mod devices;
mod reach;
mod tiers;

use crate::fabric::Fabric;
use crate::finding::Finding;

const RULES: [fn(&Fabric) -> Vec<Finding>; 10] = [
    reach::hosts_without_nics,
    reach::nics_that_are_cut_off,
    reach::leaves_that_cannot_reach_each_other,
    devices::shared_identities,
    devices::ports_that_no_switch_has,
    devices::switches_without_a_server,
    tiers::switches_without_purpose,
    tiers::links_that_no_path_takes,
    tiers::uneven_uplinks,
    tiers::capacity,
];

/// Everything to be said about `fabric`: errors first, then warnings, then the rest.
pub fn check(fabric: &Fabric) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(fabric)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// `first`, `first and second`, `first, second and 3 more`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [one, two] => format!("{one} and {two}"),
        [one, two, rest @ ..] => format!("{one}, {two} and {} more", rest.len()),
    }
}
