//! The job that an announcement is, with what it leaves out.
//!
//! Schedulers know the hosts of a job and nothing else. Unknown fields are set to values that rank
//! the job last, its traffic to a ring over all NICs of its hosts, and its GPUs, of which it has a
//! part, to the lowest that no other reported job has.

use std::collections::{BTreeMap, BTreeSet};

use planner::{
    CollectiveDocument, CollectiveKind, FlowDocument, Job, JobDocument, JobsDocument, lowest_gpus,
};
use topology::{Fabric, Finding};

use super::job_finding;
use super::profile::{UNKNOWN_BYTES, UNKNOWN_FLOP, UNKNOWN_SECONDS};
use crate::store::jobs_document;

/// Whether an announcement has enough to rank the job.
pub(super) fn is_complete(announcement: &JobDocument) -> bool {
    let given = announcement.flop_per_iteration.is_some() && announcement.compute_seconds.is_some();
    given || announcement.profile.is_some()
}

/// Which GPUs other reported jobs have, by host.
pub(super) type TakenGpus = BTreeMap<String, BTreeSet<u32>>;

/// The job of an announcement, and its document with every field.
pub(super) fn resolve_announcement(
    announcement: &JobDocument,
    fabric: &Fabric,
    taken: impl FnOnce() -> TakenGpus,
) -> Result<(JobDocument, Job), Finding> {
    let name = &announcement.id;
    let mut complete = announcement.clone();
    if complete.flows.as_ref().is_none_or(Vec::is_empty) {
        if announcement.profile.is_some() && complete.rank_traffic.is_empty() {
            // The profile says how much.
            let kind = CollectiveKind::RingAllReduce;
            let ring = CollectiveDocument::new(kind);
            if complete.collectives.is_empty() {
                complete.collective.get_or_insert(ring);
            }
        }
        let is_collective = complete.all_collectives().next().is_some();
        let is_derived = is_collective || !complete.rank_traffic.is_empty();
        complete.flows = (!is_derived).then(|| assumed_ring(announcement, fabric));
        if is_derived {
            assume_gpus(&mut complete, fabric, taken);
        }
    }
    if announcement.profile.is_none() {
        complete.flop_per_iteration.get_or_insert(UNKNOWN_FLOP);
        complete.compute_seconds.get_or_insert(UNKNOWN_SECONDS);
        let collectives = complete.collective.iter_mut().chain(&mut complete.collectives);
        collectives.for_each(|collective| _ = collective.bytes.get_or_insert(UNKNOWN_BYTES));
    }
    let gpu_indices = complete.gpu_indices.clone();
    let document = JobsDocument { jobs: vec![complete] };
    let resolved = document.resolve_jobs(fabric, "announcement");
    let resolved = resolved.map_err(|error| {
        let field = error.field.trim_start_matches("jobs[0].");
        job_finding(name, Finding::error, format!("refused: {field}: {}", error.problem))
    })?;
    let known = jobs_document(fabric, &resolved.jobs).jobs.pop();
    let pods = announcement.pods.clone();
    let known = known.map(|known| JobDocument { pods, gpu_indices, ..known });
    let both = known.zip(resolved.jobs.into_iter().next());
    both.ok_or_else(|| job_finding(name, Finding::error, "refused: it resolves to nothing"))
}

/// What a job is taken to send that says nothing of it, as schedulers announce jobs: a ring over
/// every NIC of its hosts. Its NICs then have its level from the first packet on, and what they
/// send otherwise is known to be its own.
fn assumed_ring(announcement: &JobDocument, fabric: &Fabric) -> Vec<FlowDocument> {
    let hosts = announcement.gpus.keys().filter_map(|name| {
        let nics = fabric.host(fabric.host_named(name)?).nics.len() as u32;
        Some((name, nics))
    });
    let hosts: Vec<(&String, u32)> = hosts.filter(|(_, nics)| *nics > 0).collect();
    let nics = hosts.iter().map(|(_, nics)| *nics).max().unwrap_or(0);
    if hosts.len() < 2 {
        return Vec::new();
    }
    let hops = hosts.iter().zip(hosts.iter().cycle().skip(1));
    let flows = hops.flat_map(|((src, src_nics), (dst, dst_nics))| {
        (0..nics).map(move |nic| FlowDocument {
            src: (*src).clone(),
            dst: (*dst).clone(),
            src_nic: nic % src_nics,
            dst_nic: nic % dst_nics,
            ..FlowDocument::default()
        })
    });
    flows.collect()
}

/// Names the GPUs of a job on each host of which it has a part and does not say which.
fn assume_gpus(job: &mut JobDocument, fabric: &Fabric, taken: impl FnOnce() -> TakenGpus) {
    let parts = job.gpus.iter().filter_map(|(name, count)| {
        let has = fabric.host(fabric.host_named(name)?).gpus;
        let is_part = *count > 0 && *count < has && !job.gpu_indices.contains_key(name);
        is_part.then(|| (name.clone(), *count, has))
    });
    let parts: Vec<(String, u32, u32)> = parts.collect();
    if parts.is_empty() {
        return;
    }
    let mut taken = taken();
    for (host, count, has) in parts {
        let taken = taken.remove(&host).unwrap_or_default();
        job.gpu_indices.insert(host, lowest_gpus(count, has, &taken));
    }
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::*;

    fn announced(change: impl Fn(&mut JobDocument)) -> Job {
        let spec = ClosSpec { host_links: 2, ..ClosSpec::default() };
        let fabric = clos::build_clos("lab", &spec).unwrap();
        let gpus = ["h1", "h2", "h9"].map(|host| (host.to_owned(), 8)).into();
        let mut job = JobDocument { id: "j".to_owned(), gpus, ..JobDocument::default() };
        change(&mut job);
        resolve_announcement(&job, &fabric, TakenGpus::new).unwrap().1
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
        let collective = Some(CollectiveDocument::new(kind));
        assert_eq!(announced(|job| job.collective = collective.clone()).flows.len(), 12);
    }

    #[test]
    fn a_job_on_a_part_of_a_host_has_the_lowest_gpus_that_are_free_and_their_nics() {
        let spec = ClosSpec { host_links: 8, ..ClosSpec::default() };
        let fabric = clos::build_clos("lab", &spec).unwrap();
        let kind = CollectiveKind::RingAllReduce;
        let half = JobDocument {
            id: "half".to_owned(),
            gpus: ["h9", "h1"].map(|host| (host.to_owned(), 4)).into(),
            collective: Some(CollectiveDocument::new(kind)),
            ..JobDocument::default()
        };
        let nics_of = |job: &Job| -> Vec<(String, u32)> {
            let nic = |flow: &planner::Flow| fabric.nic(flow.src).clone();
            let nics = job.flows.iter().map(nic);
            nics.map(|nic| (fabric.host(nic.host).name.clone(), nic.index)).collect()
        };
        let (document, first) = resolve_announcement(&half, &fabric, TakenGpus::new).unwrap();
        let expected: Vec<(String, u32)> =
            ["h9", "h1"].into_iter().flat_map(|h| (0..4).map(move |i| (h.to_owned(), i))).collect();
        assert_eq!(nics_of(&first), expected);
        let taken = || {
            let taken = document.gpu_indices.iter();
            taken.map(|(host, gpus)| (host.clone(), gpus.iter().copied().collect())).collect()
        };
        let (_, second) = resolve_announcement(&half, &fabric, taken).unwrap();
        let later: Vec<u32> = nics_of(&second).into_iter().map(|(_, nic)| nic).collect();
        assert_eq!(later, [4, 5, 6, 7, 4, 5, 6, 7]);
    }
}
