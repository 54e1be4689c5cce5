//! Jobs of documents as the wire has them, and what one host sends of such a job.

use api::telemetry as proto;
use planner::{CollectiveDocument, CollectiveKind, FlowDocument, JobDocument, RankTraffic};

/// The announcement of a job.
pub fn announce_job(job: &JobDocument) -> proto::JobAnnouncement {
    proto::JobAnnouncement {
        job: job.id.clone(),
        tenant: job.tenant.clone(),
        model: job.model.clone(),
        gpus: job.gpus.clone().into_iter().collect(),
        hosts: job.gpus.keys().cloned().collect(),
        gpu_indices: job.gpu_indices.iter().map(announce_gpus).collect(),
        flows: job.flows.iter().flatten().map(announce_flow).collect(),
        collective: job.collective.as_ref().map(announce_collective),
        collectives: job.collectives.iter().map(announce_collective).collect(),
        profile: job.profile.clone(),
        flop_per_iteration: job.flop_per_iteration,
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        pods: job.pods.clone(),
        rank_traffic: job.rank_traffic.iter().map(announce_traffic).collect(),
        can_wait: job.can_wait,
    }
}

fn announce_collective(collective: &CollectiveDocument) -> proto::Collective {
    let groups = collective.groups;
    proto::Collective {
        kind: collective_name(collective.kind),
        bytes: collective.bytes.unwrap_or(0.0),
        channels: collective.channels,
        groups: groups.map(|of| proto::RankGroups { size: of.size, stride: of.stride }),
        overlap_from: collective.overlap_from,
    }
}

fn announce_gpus((host, indices): (&String, &Vec<u32>)) -> (String, proto::GpuIndices) {
    (host.clone(), proto::GpuIndices { indices: indices.clone() })
}

fn announce_traffic(sent: &RankTraffic) -> proto::RankTraffic {
    let RankTraffic { src, dst, bytes, overlap_from } = *sent;
    proto::RankTraffic { src, dst, bytes, overlap_from }
}

fn announce_flow(flow: &FlowDocument) -> proto::JobFlow {
    proto::JobFlow {
        src: flow.src.clone(),
        dst: flow.dst.clone(),
        src_nic: flow.src_nic,
        dst_nic: flow.dst_nic,
        udp_src_port: flow.udp_src_port.map(u32::from),
        bytes: flow.bytes,
        src_gpu: flow.src_gpu,
        dst_gpu: flow.dst_gpu,
        overlap_from: flow.overlap_from,
    }
}

/// As documents spell it.
fn collective_name(kind: CollectiveKind) -> String {
    let spelt = serde_json::to_value(kind).ok();
    let spelt = spelt.as_ref().and_then(|value| value.as_str());
    spelt.unwrap_or_default().to_owned()
}

/// The host that reports a job: the first on which the job has GPUs, so that only one reports.
pub fn reporting_host(job: &JobDocument) -> Option<&str> {
    job.gpus.keys().next().map(String::as_str)
}

/// Share of a job's bytes that leaves `host`: of its flows as the document has them, by number if
/// it has no bytes; members of a collective send alike.
pub fn sent_share(job: &JobDocument, host: &str) -> f64 {
    let Some(flows) = &job.flows else {
        let hosts = job.gpus.len().max(1) as f64;
        let of_collective = |collective: &CollectiveDocument| {
            let stages = collective.groups.map_or(hosts, |groups| f64::from(groups.size));
            let share = match collective.kind {
                // Neighbours send to each other in both directions; the reporting host is at one end.
                CollectiveKind::Pipeline if stages > 1.0 => {
                    0.5 / (stages - 1.0) * (stages / hosts).min(1.0)
                }
                _ => 1.0 / hosts,
            };
            (share, collective.bytes.unwrap_or(1.0))
        };
        let shares = job.all_collectives().map(of_collective);
        let (own, all) = shares
            .fold((0.0, 0.0), |(own, all), (share, bytes)| (own + share * bytes, all + bytes));
        return if all > 0.0 { own / all } else { 1.0 / hosts };
    };
    let sum = |weight: fn(&FlowDocument) -> f64| {
        let own = flows.iter().filter(|flow| flow.src == host);
        let own: f64 = own.map(weight).sum();
        (own, flows.iter().map(weight).sum::<f64>())
    };
    match sum(|flow| flow.bytes) {
        (own, all) if all > 0.0 => own / all,
        _ => {
            let (own, all) = sum(|_| 1.0);
            own / all.max(1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use planner::RankGroups;

    use super::*;

    #[test]
    fn a_host_computes_its_share() {
        let flow = |src: &str, bytes| FlowDocument {
            src: src.to_owned(),
            bytes,
            ..FlowDocument::default()
        };
        let mut job = JobDocument {
            gpus: [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into(),
            flows: Some(vec![flow("h1", 3.0), flow("h2", 1.0)]),
            ..JobDocument::default()
        };
        assert_eq!(sent_share(&job, "h1"), 0.75);
        job.flows = Some(vec![flow("h1", 0.0), flow("h2", 0.0)]);
        assert_eq!(sent_share(&job, "h1"), 0.5);
        job.flows = None;
        job.collective = Some(CollectiveDocument::new(CollectiveKind::RingAllReduce));
        assert_eq!(sent_share(&job, "h2"), 0.5);
        let pipeline = CollectiveDocument {
            bytes: Some(1.0),
            groups: Some(RankGroups { size: 4, stride: 8 }),
            ..CollectiveDocument::new(CollectiveKind::Pipeline)
        };
        let hosts = (1..=8).map(|host| (format!("h{host}"), 8));
        let stages = JobDocument {
            gpus: hosts.collect(),
            collectives: vec![pipeline],
            ..JobDocument::default()
        };
        assert_eq!(sent_share(&stages, "h1"), 0.5 / 3.0 / 2.0);
        assert_eq!(announce_job(&stages).collectives[0].groups.map(|of| of.stride), Some(8));
        assert_eq!(reporting_host(&job), Some("h1"));
        let announced = announce_job(&job).collective.expect("it has one");
        assert_eq!(announced.kind, "ring_all_reduce");
    }
}
