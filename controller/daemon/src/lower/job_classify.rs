//! `job_classify`: the job of what jobs send without a pin: flows left to ECMP, flows that stay on
//! their leaf, and the acknowledgments of flows in the other direction, which would starve below
//! the very traffic they let go on.
//!
//! The table is small (ternary), so a row says as much as it can: one for a NIC that serves a
//! single job, else one for each pair of NICs, and one for each flow only where jobs share the
//! pair.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU16, NonZeroU32};

use p4::entry::TableEntry;
use p4::fabric::{self, JobMatch};
use topology::NicId;

use super::site::{Sent, SentKind, Site};

/// UDP destination port of RoCEv2.
const ROCE: u16 = 4791;

/// The more a row says, the earlier it is asked.
const OF_NIC: NonZeroU16 = NonZeroU16::MIN;
const OF_PAIR: NonZeroU16 = OF_NIC.saturating_add(1);
const OF_FLOW: NonZeroU16 = OF_PAIR.saturating_add(1);

pub(super) fn entries(site: &Site<'_>) -> Vec<TableEntry> {
    site.nics().flat_map(|nic| rows_of_nic(site, nic)).collect()
}

fn rows_of_nic(site: &Site<'_>, nic: NicId) -> Vec<TableEntry> {
    let sent = site.sent_from(nic);
    let from_nic = JobMatch {
        src: Some(site.all.fabric.nic(nic).ip.into()),
        dport: Some(ROCE),
        ..JobMatch::default()
    };
    if sent.iter().all(|sent| sent.kind == SentKind::Pinned) {
        return Vec::new();
    }
    if let Some(job) = only_job(sent) {
        return vec![fabric::job_classify(&from_nic, OF_NIC, job)];
    }
    let mut pairs: BTreeMap<NicId, Vec<Sent>> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.kind != SentKind::Pinned) {
        pairs.entry(sent.to).or_default().push(*sent);
    }
    let rows = pairs.into_iter().flat_map(|(to, sent)| {
        let dst = Some(site.all.fabric.nic(to).ip.into());
        rows_of_pair(site, JobMatch { dst, ..from_nic }, &sent)
    });
    rows.collect()
}

/// What one NIC sends another: its flows by their ports if they are of several jobs, and everything
/// else as the job of the highest level among them, which a few acknowledgments do not disturb.
fn rows_of_pair(site: &Site<'_>, pair: JobMatch, sent: &[Sent]) -> Vec<TableEntry> {
    let flow = |sent: &Sent| match sent.kind {
        SentKind::Unpinned(port) => {
            let sport = Some(port);
            let row = JobMatch { sport, ..pair };
            Some(fabric::job_classify(&row, OF_FLOW, sent.job))
        }
        SentKind::Pinned | SentKind::Replies => None,
    };
    let is_shared = only_job(sent).is_none();
    let flows = sent.iter().filter(|_| is_shared).filter_map(flow);
    let rest = most_urgent(site, sent).map(|job| fabric::job_classify(&pair, OF_PAIR, job));
    flows.chain(rest).collect()
}

/// The job of all of this, if it is one.
fn only_job(sent: &[Sent]) -> Option<NonZeroU32> {
    let jobs: BTreeSet<NonZeroU32> = sent.iter().map(|sent| sent.job).collect();
    jobs.first().copied().filter(|_| jobs.len() == 1)
}

/// The job of the highest level; of equals, the one with the lowest number.
fn most_urgent(site: &Site<'_>, sent: &[Sent]) -> Option<NonZeroU32> {
    let level = |job: NonZeroU32| {
        let mut jobs = site.all.plan.jobs.iter();
        jobs.find(|planned| planned.number == job.get())
            .map(|planned| planned.level)
    };
    let jobs = sent.iter().map(|sent| sent.job);
    jobs.max_by_key(|job| (level(*job), std::cmp::Reverse(*job)))
}
