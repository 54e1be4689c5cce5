//! The rows by which adoption rules of the policy assign flows that no job announced.
//!
//! `counters` uses the same rows to attribute what they count. The decision: a row's priority is
//! the position of its rule in the policy, so that a rule added at the end changes no other row;
//! rows of one rule never match the same packet.

use std::collections::BTreeSet;
use std::num::{NonZeroU16, NonZeroU32};

use p4::entry::TableEntry;
use p4::fabric::{self, IpVersion, JobMatch, PairedPackets};
use planner::{MAX_RULES, Plan, PlannedRule};
use topology::{Fabric, NicId};

use super::ROCE;

/// The priority of the first rule.
pub(super) const FIRST: NonZeroU16 = NonZeroU16::new(MAX_RULES as u16).expect("there may be rules");

/// A row of an adoption rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdoptionRow {
    /// Index of the job in the plan.
    pub(crate) job: usize,
    /// The NIC that receives its flows; none for any.
    pub(crate) to: Option<NicId>,
    /// The row, not signed.
    pub(crate) entry: TableEntry,
}

/// The rows at the leaf that has these NICs.
pub(crate) fn adoption_rows(fabric: &Fabric, plan: &Plan, nics: &[NicId]) -> Vec<AdoptionRow> {
    let rules = plan.rules.iter().zip((1..=FIRST.get()).rev());
    let rows = rules.flat_map(|(rule, priority)| {
        let priority = NonZeroU16::new(priority).unwrap_or(NonZeroU16::MIN);
        rows_of_rule(fabric, plan, nics, rule, priority)
    });
    rows.collect()
}

fn rows_of_rule(
    fabric: &Fabric,
    plan: &Plan,
    nics: &[NicId],
    rule: &PlannedRule,
    priority: NonZeroU16,
) -> Vec<AdoptionRow> {
    // The planner gives no job the number 0.
    let number = plan.jobs.get(rule.job).map_or(0, |job| job.number);
    let Some(job) = NonZeroU32::new(number).filter(|_| is_rule_at(fabric, rule, nics)) else {
        return Vec::new();
    };
    let present = nics.iter().filter(|nic| sends_from(fabric, rule, **nic));
    let present: BTreeSet<NicId> = present.map(|port| fabric.first_port(*port)).collect();
    let receivers = any_or(&rule.receivers, rule.receivers.iter().copied());
    let versions = ip_versions(fabric, nics);
    let mut rows = Vec::new();
    for src in any_or(&rule.senders, present.iter().copied()) {
        for &to in &receivers {
            let [src, dst] = [src, to].map(|nic| nic.map(|nic| fabric.nic(nic).ip.into()));
            for &version in &versions {
                let (sport, dport) = (rule.sport, rule.dport);
                let pairs = PairedPackets::LeftOut;
                let matches = JobMatch { version, src, dst, sport, dport, pairs };
                // None where the addresses are of another version.
                let entry = fabric::job_classify(&matches, priority, job);
                rows.extend(entry.map(|entry| AdoptionRow { job: rule.job, to, entry }));
            }
        }
    }
    rows
}

/// The versions of the addresses of `nics`.
fn ip_versions(fabric: &Fabric, nics: &[NicId]) -> BTreeSet<IpVersion> {
    nics.iter().map(|nic| IpVersion::of(fabric.nic(*nic).ip)).collect()
}

/// Each of `nics`, or one `None` for any where the rule names none.
fn any_or(named: &[NicId], nics: impl Iterator<Item = NicId>) -> Vec<Option<NicId>> {
    if named.is_empty() { vec![None] } else { nics.map(Some).collect() }
}

/// Whether a rule has rows at the leaf that has these NICs.
pub(in crate::pipelines::fabric) fn is_rule_at(
    fabric: &Fabric,
    rule: &PlannedRule,
    nics: &[NicId],
) -> bool {
    nics.iter().any(|nic| sends_from(fabric, rule, *nic))
}

/// Whether a rule adopts RoCEv2 flows from a NIC to another.
pub(in crate::pipelines::fabric) fn takes_between(
    fabric: &Fabric,
    rule: &PlannedRule,
    nic: NicId,
    to: NicId,
) -> bool {
    let reaches = rule.receivers.is_empty() || rule.receivers.binary_search(&to).is_ok();
    sends_from(fabric, rule, nic) && rule.dport.is_none_or(|port| port == ROCE) && reaches
}

/// Whether a rule is about what comes from a NIC, or from a port of it.
fn sends_from(fabric: &Fabric, rule: &PlannedRule, nic: NicId) -> bool {
    let nic = fabric.first_port(nic);
    rule.senders.is_empty() || rule.senders.binary_search(&nic).is_ok()
}
