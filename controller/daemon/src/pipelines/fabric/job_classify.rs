//! `job_classify`: the job of flows without a pin: those left to ECMP, those that stay on their
//! leaf, and those that no job announced.
//!
//! The table is small (ternary), so each row covers as much as possible: one for a NIC that sends
//! for a single job, else one for each pair of NICs, and one for each flow only where jobs share
//! the pair. An adoption rule has a row for each pair of NICs that it names, at a lower priority
//! than all others; where it could match a job's flows as well, rows with their ports come first.

pub(crate) mod adoption_rules;

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU16, NonZeroU32};

use p4::entry::TableEntry;
use p4::fabric::{self, IpVersion, JobMatch};
use topology::NicId;

use super::switch_context::{SentFlow, SwitchContext};

/// UDP destination port of RoCEv2.
const ROCE: u16 = 4791;

/// A row that matches more fields has a higher priority; below are rules, the first one on top.
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
    announced.chain(adopted.into_iter().map(|row| row.entry)).collect()
}

fn rows_of_nic(site: &SwitchContext<'_>, nic: NicId) -> Vec<TableEntry> {
    let unpinned: Vec<SentFlow> =
        site.sent_from(nic).iter().filter(|sent| !sent.pinned).copied().collect();
    let rules = &site.shared.plan.rules;
    let address = site.shared.fabric.nic(nic).ip;
    let from_nic = JobMatch {
        version: IpVersion::of(address),
        src: Some(address.into()),
        dport: Some(ROCE),
        ..JobMatch::default()
    };
    // A row without ports would also match what a rule adopts, and hide the rule's row.
    let is_adopted = rules.iter().any(|rule| adoption_rules::takes_from(rule, nic));
    if let Some(job) = only_job(&unpinned).filter(|_| !is_adopted) {
        return fabric::job_classify(&from_nic, OF_NIC, job).into_iter().collect();
    }
    let mut pairs: BTreeMap<NicId, Vec<SentFlow>> = BTreeMap::new();
    for sent in unpinned {
        pairs.entry(sent.to).or_default().push(sent);
    }
    let rows = pairs.into_iter().flat_map(|(to, sent)| {
        let dst = Some(site.shared.fabric.nic(to).ip.into());
        let pair = JobMatch { dst, ..from_nic };
        let is_adopted = rules.iter().any(|rule| adoption_rules::takes_between(rule, nic, to));
        match only_job(&sent).filter(|_| !is_adopted) {
            Some(job) => fabric::job_classify(&pair, OF_PAIR, job).into_iter().collect(),
            None => rows_of_flows(pair, &sent),
        }
    });
    rows.collect()
}

/// A row for each flow between two NICs, with its port.
fn rows_of_flows(pair: JobMatch, sent: &[SentFlow]) -> Vec<TableEntry> {
    let rows = sent.iter().filter_map(|sent| {
        let sport = Some(sent.udp_src_port);
        fabric::job_classify(&JobMatch { sport, ..pair }, OF_FLOW, sent.job)
    });
    rows.collect()
}

/// The job of all these flows, if they have the same.
fn only_job(sent: &[SentFlow]) -> Option<NonZeroU32> {
    let jobs: BTreeSet<NonZeroU32> = sent.iter().map(|sent| sent.job).collect();
    jobs.first().copied().filter(|_| jobs.len() == 1)
}
