//! Ends of queue pairs of random numbers are joined to the right flows or to none.

use std::collections::BTreeMap;
use std::net::IpAddr;

use planner::{ComparedInputs, NicOwners, PlannedFlow, PlannedJob};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;
use topology::LinkPath;
use topology::clos::{ClosSpec, build_clos};

use super::*;
use crate::config::{LearningConfig, RawLearning};
use crate::learning::{HostQueuePairs, QueuePairGroup, QueuePairTable};

/// Sixteen hosts of two NICs.
fn fabric() -> Fabric {
    let spec = ClosSpec { leaves: 4, hosts_per_leaf: 4, host_links: 2, ..ClosSpec::default() };
    build_clos("sixteen", &spec).unwrap()
}

fn table() -> QueuePairTable {
    QueuePairTable::new(LearningConfig::try_from(&RawLearning::default()).unwrap())
}

/// A plan of jobs, each with flows between these NICs.
fn plan_of(jobs: &[Vec<(NicId, NicId)>]) -> Plan {
    let job = |index: usize| PlannedJob {
        id: format!("job-{index}").into(),
        number: index as u32 + 1,
        intensity: 1.0,
        bottleneck_seconds: 1.0,
        correction: 1.0,
        priority: 1.0,
        rank: index as u32 + 1,
        level: 0,
        start_shift: None,
        sprayed: false,
    };
    let flow = |job: usize, (src, dst): (NicId, NicId)| PlannedFlow {
        job,
        src,
        dst,
        udp_src_port: None,
        links: LinkPath::EMPTY,
        pinned: false,
    };
    let flows = jobs.iter().enumerate();
    Plan {
        generation: 1,
        levels: 8,
        jobs: (0..jobs.len()).map(job).collect(),
        flows: flows
            .flat_map(|(index, pairs)| pairs.iter().map(move |pair| flow(index, *pair)))
            .collect(),
        rules: Vec::new(),
        compared_inputs: ComparedInputs::default(),
        counted_pairs: Vec::new(),
    }
}

/// As drivers derive it: one port for both ends.
fn port_of(a: u32, b: u32) -> u16 {
    let product = u64::from(a) * u64::from(b);
    0xC000 | (product ^ (product >> 14)) as u16 & 0x3FFF
}

/// Which numbers the queue pairs of a NIC have.
#[derive(Clone, Copy, Debug)]
enum NumberChoice {
    /// Any up to this one, none twice on a NIC.
    Random(u32),
    /// From 1 on, as NICs do after a reboot: each has those of all others.
    InOrder,
}

/// A cluster in which jobs share hosts and NICs, and its true connections.
struct Cluster {
    fabric: Fabric,
    plan: Plan,
    /// Job, both NICs, both numbers.
    connections: Vec<(usize, [NicId; 2], [u32; 2])>,
}

impl Cluster {
    fn random(seed: u64, connections: usize, choice: NumberChoice, follows_plan: bool) -> Self {
        let (fabric, mut random) = (fabric(), ChaCha8Rng::seed_from_u64(seed));
        let nics: Vec<NicId> = (0..fabric.nics().len() as u32).map(NicId).collect();
        let members: Vec<Vec<NicId>> = (0..6)
            .map(|_| {
                let chosen = nics.choose_multiple(&mut random, 8);
                chosen.copied().collect()
            })
            .collect();
        let rings = members.iter().map(|own| {
            let next = own.iter().cycle().skip(1);
            own.iter().copied().zip(next.copied()).collect::<Vec<_>>()
        });
        let rings: Vec<Vec<(NicId, NicId)>> = rings.collect();
        let mut used: BTreeSet<(NicId, u32)> = BTreeSet::new();
        let mut made = Vec::new();
        while made.len() < connections {
            let job = random.random_range(0..members.len());
            let ends = if follows_plan {
                *rings[job].choose(&mut random).unwrap()
            } else {
                (
                    *members[job].choose(&mut random).unwrap(),
                    *members[job].choose(&mut random).unwrap(),
                )
            };
            let ends = [ends.0, ends.1];
            let numbers = ends.map(|nic| match choice {
                NumberChoice::Random(most) => random.random_range(1..=most),
                NumberChoice::InOrder => 1 + used.range((nic, 0)..=(nic, u32::MAX)).count() as u32,
            });
            let keys = [(ends[0], numbers[0]), (ends[1], numbers[1])];
            if ends[0] != ends[1] && keys.iter().all(|key| !used.contains(key)) {
                used.extend(keys);
                made.push((job, ends, numbers));
            }
        }
        let plan = plan_of(&rings);
        Self { fabric, plan, connections: made }
    }

    /// The reports of all hosts; processes of every second job are known by their NICs alone.
    fn reports(&self) -> Vec<HostQueuePairs> {
        let mut groups: BTreeMap<(NicId, usize), Vec<ReportedQueuePair>> = BTreeMap::new();
        for (job, ends, numbers) in &self.connections {
            for (own, other) in [(0, 1), (1, 0)] {
                let (local, remote) = (numbers[own], numbers[other]);
                let udp_src_port = Some(port_of(local, remote));
                let pair = ReportedQueuePair { local, remote, udp_src_port };
                groups.entry((ends[own], *job)).or_default().push(pair);
            }
        }
        let hosts = self
            .fabric
            .hosts()
            .iter()
            .map(|host| HostQueuePairs { host: host.name.clone(), groups: Vec::new() });
        let mut reports: Vec<HostQueuePairs> = hosts.collect();
        for ((nic, job), queue_pairs) in groups {
            let host = self.fabric.nic(nic).host;
            let job = Some(self.plan.jobs[job].id.clone());
            let addresses: Vec<IpAddr> = vec![self.fabric.nic(nic).ip];
            let group = QueuePairGroup { addresses, job, queue_pairs };
            reports[host.index()].groups.push(group);
        }
        reports
    }

    fn ends(&self, reports: Vec<HostQueuePairs>) -> Vec<QueuePairEnd> {
        let mut table = table();
        let now = Instant::now();
        reports.into_iter().for_each(|report| table.replace_host(report, now));
        table.resolve_ends(&self.fabric, &NicOwners::new(&self.fabric, &self.plan))
    }

    fn join(&self, ends: &[QueuePairEnd]) -> (Vec<JoinedFlow>, QueuePairCounts) {
        let all = (0..self.fabric.hosts().len() as u32).map(HostId).collect();
        join_queue_pairs(ends, &JobPlaces::new(&self.fabric, &self.plan), &all)
    }

    /// The jobs that truly send a five-tuple.
    fn true_owners(&self) -> BTreeMap<(NicId, NicId, u16), BTreeSet<usize>> {
        let mut owners: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for (job, ends, numbers) in &self.connections {
            let port = port_of(numbers[0], numbers[1]);
            for [src, dst] in [[ends[0], ends[1]], [ends[1], ends[0]]] {
                owners.entry((src, dst, port)).or_default().insert(*job);
            }
        }
        owners
    }
}

proptest! {
    /// Jobs share NICs, and numbers repeat between NICs: of 1,000 flows that are joined or that
    /// leaves report, none has the job of another.
    #[test]
    fn no_flow_of_a_thousand_has_a_wrong_owner(
        seed in any::<u64>(),
        number_count in 150_u32..4_000,
        in_order in any::<bool>(),
        follows_plan in any::<bool>(),
    ) {
        let numbers = if in_order {
NumberChoice::InOrder
} else {
NumberChoice::Random(number_count)
};
        let cluster = Cluster::random(seed, 500, numbers, follows_plan);
        let ends = cluster.ends(cluster.reports());
        prop_assert_eq!(ends.len(), 1_000);
        let (joined, counts) = cluster.join(&ends);
        prop_assert_eq!(counts.reported, 1_000);
        let owners = cluster.true_owners();
        for flow in &joined {
            let key = (flow.src, flow.dst, flow.udp_src_port);
            let own = owners.get(&key).is_none_or(|jobs| *jobs == [flow.job].into());
            prop_assert!(own, "{:?}", flow);
            // Where jobs connect the NICs that they announce, every joined flow exists.
            prop_assert!(!follows_plan || owners.contains_key(&key), "{:?}", flow);
        }
        let stated = StatedJobs::new(&ends, &cluster.plan);
        for (job, ends, numbers) in &cluster.connections {
            let name = &cluster.plan.jobs[*job].id;
            prop_assert_eq!(stated.find_job(ends[0], ends[1], numbers[1]), Some(name));
            prop_assert_eq!(stated.find_job(ends[1], ends[0], numbers[0]), Some(name));
        }
    }

    /// A host that lies about its queue pairs claims no five-tuple of a job that it does not have,
    /// and joins none of two other hosts.
    #[test]
    fn an_agent_that_lies_claims_nothing_of_others(seed in any::<u64>()) {
        let cluster = Cluster::random(seed, 200, NumberChoice::Random(400), true);
        let mut reports = cluster.reports();
        let liar = HostId((seed % 16) as u32);
        // It claims the other ends of everything that the others report, in every job, on its own
        // NICs and on theirs.
        let claims: Vec<QueuePairGroup> = reports.iter().flat_map(|report| &report.groups)
            .flat_map(|group| {
                let mirrored = group.queue_pairs.iter().map(|pair| ReportedQueuePair {
                    local: pair.remote, remote: pair.local, ..*pair
                });
                let queue_pairs: Vec<ReportedQueuePair> = mirrored.collect();
                let own = cluster.fabric.host(liar).nics.iter();
                let own = own.map(|nic| vec![cluster.fabric.nic(*nic).ip]);
                own.chain([group.addresses.clone()]).map(move |addresses| QueuePairGroup {
                    addresses, job: group.job.clone(), queue_pairs: queue_pairs.clone(),
                }).collect::<Vec<_>>()
            }).collect();
        reports[liar.index()].groups = claims;
        let ends = cluster.ends(reports);
        let owners = NicOwners::new(&cluster.fabric, &cluster.plan);
        let (joined, _) = cluster.join(&ends);
        let truth = cluster.true_owners();
        for flow in joined {
            let hosts = [flow.src, flow.dst].map(|nic| cluster.fabric.nic(nic).host);
            let id = &cluster.plan.jobs[flow.job].id;
            let has_both = [flow.src, flow.dst]
                .iter().all(|nic| owners.job_at(&cluster.fabric, *nic, Some(id)).is_some());
            prop_assert!(has_both, "{:?}", flow);
            let key = (flow.src, flow.dst, flow.udp_src_port);
            let is_true = truth.get(&key) == Some(&[flow.job].into());
            prop_assert!(is_true || hosts.contains(&liar), "{:?} of honest hosts", flow);
        }
    }
}

#[test]
fn all_flows_are_joined_where_no_number_repeats_within_a_job() {
    let cluster = Cluster::random(7, 500, NumberChoice::Random(1 << 20), false);
    let ends = cluster.ends(cluster.reports());
    let (joined, counts) = cluster.join(&ends);
    let flows: BTreeSet<_> = joined.iter().map(|flow| (flow.src, flow.dst, flow.dest_qp)).collect();
    println!("no number repeats: {} of 1,000 flows joined; {counts:?}", flows.len());
    for numbers in [NumberChoice::Random(200), NumberChoice::InOrder] {
        let cluster = Cluster::random(7, 500, numbers, true);
        let (_, counts) = cluster.join(&cluster.ends(cluster.reports()));
        println!("{numbers:?}: {counts:?}");
    }
    // The others share a port of their NIC with another job.
    let owners = sending_jobs(&ends);
    let shared =
        ends.iter().filter(|end| owners[&(end.nic, end.numbers.udp_src_port.unwrap())].len() > 1);
    assert_eq!(joined.len() + shared.count(), 1_000);
    assert!(joined.len() > 950 && counts.ambiguous == 0);
}

#[test]
fn nothing_is_joined_before_all_hosts_of_a_job_report() {
    let cluster = Cluster::random(7, 100, NumberChoice::Random(1 << 20), true);
    let ends = cluster.ends(cluster.reports());
    let places = JobPlaces::new(&cluster.fabric, &cluster.plan);
    let some: BTreeSet<HostId> = (1..16).map(HostId).collect();
    let (joined, _) = join_queue_pairs(&ends, &places, &some);
    let on_the_other = |job: usize| places.hosts[&job].contains(&HostId(0));
    assert!(joined.iter().all(|flow| !on_the_other(flow.job)));
    assert!(ends.iter().any(|end| on_the_other(end.job)), "the seed has such a job");
}

#[test]
fn the_host_with_the_most_queue_pairs_makes_room() {
    let raw =
        RawLearning { host_queue_pairs_max: 80, queue_pairs_max: 100, ..RawLearning::default() };
    let mut table = QueuePairTable::new(LearningConfig::try_from(&raw).unwrap());
    let report = |host: &str, count: u32| HostQueuePairs {
        host: host.to_owned(),
        groups: vec![QueuePairGroup {
            queue_pairs: (0..count)
                .map(|local| ReportedQueuePair { local, ..ReportedQueuePair::default() })
                .collect(),
            ..QueuePairGroup::default()
        }],
    };
    let now = Instant::now();
    for (host, count) in [("h1", 80), ("h2", 81), ("h3", 20), ("h4", 30), ("h5", 60)] {
        table.replace_host(report(host, count), now);
    }
    // h2 has too many, h1 made room for h4, and for h5 nobody has more than it asks for.
    assert_eq!(table.reporting_hosts().collect::<Vec<_>>(), ["h3", "h4"]);
    assert_eq!(table.refused(), 3);
    table.expire_hosts(now + std::time::Duration::from_secs(60));
    assert_eq!(table.reporting_hosts().count(), 0);
}
