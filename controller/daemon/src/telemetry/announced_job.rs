//! The job that an announcement is, with what it leaves out.
//!
//! Schedulers know the hosts of a job and nothing else. The decision: what is unknown is set to
//! values that rank the job last, and its traffic to a ring over all NICs of its hosts.

use planner::{CollectiveDocument, CollectiveKind, Job, JobDocument, JobsDocument, MAX_CHANNELS};
use topology::{Fabric, Finding};

use super::job_finding;
use super::profile::{UNKNOWN_BYTES, UNKNOWN_FLOP, UNKNOWN_SECONDS};
use crate::store::jobs_document;

/// Whether an announcement has enough to rank the job.
pub(super) fn is_complete(announcement: &JobDocument) -> bool {
    let given = announcement.flop_per_iteration.is_some() && announcement.compute_seconds.is_some();
    given || announcement.profile.is_some()
}

/// The job of an announcement, and its document with every field.
pub(super) fn resolve_announcement(
    announcement: &JobDocument,
    fabric: &Fabric,
) -> Result<(JobDocument, Job), Finding> {
    let name = &announcement.id;
    let mut complete = announcement.clone();
    if complete.flows.as_ref().is_none_or(Vec::is_empty) {
        complete.flows = None;
        complete.collective.get_or_insert_with(|| assumed_ring(announcement, fabric));
    }
    if announcement.profile.is_none() {
        complete.flop_per_iteration.get_or_insert(UNKNOWN_FLOP);
        complete.compute_seconds.get_or_insert(UNKNOWN_SECONDS);
        let collective = complete.collective.iter_mut();
        collective.for_each(|collective| _ = collective.bytes.get_or_insert(UNKNOWN_BYTES));
    }
    let document = JobsDocument { jobs: vec![complete] };
    let resolved = document.resolve_jobs(fabric, "announcement");
    let resolved =
        resolved.map_err(|error| job_finding(name, Finding::error, error.to_string()))?;
    let known = jobs_document(fabric, &resolved.jobs).jobs.pop();
    let known = known.map(|known| JobDocument { pods: announcement.pods.clone(), ..known });
    let both = known.zip(resolved.jobs.into_iter().next());
    both.ok_or_else(|| job_finding(name, Finding::error, "refused: it resolves to nothing"))
}

/// What a job is taken to send that says nothing of it, as schedulers announce jobs: a ring over
/// every NIC of its hosts. Its NICs then have its level from the first packet on, and what they
/// send otherwise is known to be its own.
fn assumed_ring(announcement: &JobDocument, fabric: &Fabric) -> CollectiveDocument {
    let hosts = announcement.gpus.keys().filter_map(|host| fabric.host_named(host));
    let nics = hosts.map(|host| fabric.host(host).nics.len()).max();
    let channels =
        nics.and_then(|nics| u32::try_from(nics).ok()).unwrap_or(1).clamp(1, MAX_CHANNELS);
    CollectiveDocument { kind: CollectiveKind::RingAllReduce, bytes: None, channels }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use planner::FlowDocument;
    use topology::clos::{self, ClosSpec};

    use super::*;

    fn announced(change: impl Fn(&mut JobDocument)) -> Job {
        let spec = ClosSpec { host_links: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("lab", &spec).unwrap();
        let gpus = ["h1", "h2", "h9"].map(|host| (host.to_owned(), 8)).into();
        let mut job = JobDocument { id: "j".to_owned(), gpus, ..JobDocument::default() };
        change(&mut job);
        resolve_announcement(&job, &fabric).unwrap().1
    }

    #[test]
    fn a_job_of_which_only_the_hosts_are_known_has_all_their_nics() {
        for flows in [None, Some(Vec::new())] {
            let job = announced(|job| job.flows = flows.clone());
            assert_eq!(job.flows.len(), 6);
            let senders: BTreeSet<_> = job.flows.iter().map(|flow| flow.src).collect();
            let receivers: BTreeSet<_> = job.flows.iter().map(|flow| flow.dst).collect();
            assert_eq!((senders.len(), receivers.len()), (6, 6), "three hosts of two NICs");
            assert!(job.flows.iter().all(|flow| flow.udp_src_port.is_none() && flow.bytes == 0.0));
        }
    }

    #[test]
    fn a_profile_says_how_much_and_what_is_stated_stays() {
        let profiled = announced(|job| job.profile = Some("gpt-24l/A100".to_owned()));
        assert!(profiled.flows.iter().all(|flow| flow.bytes > 1e8));
        let stated = announced(|job| {
            job.flows = Some(vec![FlowDocument {
                src: "h1".to_owned(),
                dst: "h9".to_owned(),
                ..FlowDocument::default()
            }]);
        });
        assert_eq!(stated.flows.len(), 1);
        // A comment such as crux.collective=all_to_all states no bytes.
        let kind = CollectiveKind::AllToAll;
        let collective = Some(CollectiveDocument { kind, bytes: None, channels: 1 });
        assert_eq!(announced(|job| job.collective = collective.clone()).flows.len(), 6);
    }
}
