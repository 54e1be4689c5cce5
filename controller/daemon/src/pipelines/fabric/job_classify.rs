//! `job_classify`: the job of flows without a pin, left to ECMP or staying on their leaf, or
//! announced by nobody.
//!
//! The table is small (ternary), so a row says as much as it can: one for a NIC that sends for a
//! single job, else one for each pair of NICs, and one for each flow only where jobs share the
//! pair. A rule of adoption has a row for each pair of NICs that it names, asked after all others;
//! what it could match besides a job's flows is told from these by their ports.

pub(crate) mod adoption_rules;

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU16, NonZeroU32};

use p4::entry::TableEntry;
use p4::fabric::{self, JobMatch};
use planner::PlannedRule;
use topology::NicId;

use super::switch_context::{SentFlow, SwitchContext};

/// UDP destination port of RoCEv2.
const ROCE: u16 = 4791;

/// The more a row says, the earlier it is asked; below are rules, the first of them on top.
const OF_NIC: NonZeroU16 = adoption_rules::FIRST.saturating_add(1);
const OF_PAIR: NonZeroU16 = OF_NIC.saturating_add(1);
const OF_FLOW: NonZeroU16 = OF_PAIR.saturating_add(1);

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let announced = site.nics().flat_map(|nic| rows_of_nic(site, nic));
    let adopted = adoption_rules::adoption_rows(
        site.shared.fabric,
        site.shared.plan,
        &site.nics().collect::<Vec<_>>(),
    );
    let adopted = adopted.into_iter().map(|row| row.entry);
    announced.chain(adopted).collect()
}

fn rows_of_nic(site: &SwitchContext<'_>, nic: NicId) -> Vec<TableEntry> {
    let unpinned = site.sent_from(nic).iter().filter(|sent| !sent.pinned);
    let unpinned: Vec<SentFlow> = unpinned.copied().collect();
    let rules = &site.shared.plan.rules;
    let from_nic = JobMatch {
        src: Some(site.shared.fabric.nic(nic).ip.into()),
        dport: Some(ROCE),
        ..JobMatch::default()
    };
    let is_adopted = |rule: &PlannedRule| adoption_rules::takes_from(rule, nic);
    if let Some(job) = only_job(&unpinned).filter(|_| !rules.iter().any(is_adopted)) {
        return vec![fabric::job_classify(&from_nic, OF_NIC, job)];
    }
    let mut pairs: BTreeMap<NicId, Vec<SentFlow>> = BTreeMap::new();
    for sent in unpinned {
        pairs.entry(sent.to).or_default().push(sent);
    }
    let rows = pairs.into_iter().flat_map(|(to, sent)| {
        let dst = Some(site.shared.fabric.nic(to).ip.into());
        let pair = JobMatch { dst, ..from_nic };
        let is_adopted = |rule: &PlannedRule| adoption_rules::takes_between(rule, nic, to);
        match only_job(&sent).filter(|_| !rules.iter().any(is_adopted)) {
            Some(job) => vec![fabric::job_classify(&pair, OF_PAIR, job)],
            None => rows_of_flows(pair, &sent),
        }
    });
    rows.collect()
}

/// The flows between two NICs, by their ports.
fn rows_of_flows(pair: JobMatch, sent: &[SentFlow]) -> Vec<TableEntry> {
    let row = |sent: &SentFlow| {
        let sport = Some(sent.udp_src_port);
        fabric::job_classify(&JobMatch { sport, ..pair }, OF_FLOW, sent.job)
    };
    sent.iter().map(row).collect()
}

/// The job of all of this, if it is one.
fn only_job(sent: &[SentFlow]) -> Option<NonZeroU32> {
    let jobs: BTreeSet<NonZeroU32> = sent.iter().map(|sent| sent.job).collect();
    jobs.first().copied().filter(|_| jobs.len() == 1)
}
