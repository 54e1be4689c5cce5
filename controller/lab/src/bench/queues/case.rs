//! The cases: topologies of hosts with NICs of 100 Gb/s, and who sends to whom.

use std::collections::BTreeMap;

use planner::{Flow, Job, JobOverride, MeasuredSlowdown};
use topology::clos::{self, ClosSpec};
use topology::{Fabric, HostId, NicId};

use command_io::CommandError;

/// How much the cases send, and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseSize {
    /// Bytes through the bottleneck.
    pub(super) bytes: f64,
    /// Rate of NICs.
    pub(super) nic_gbps: f64,
}

/// Who sends to whom, in one message each.
#[derive(Debug)]
pub(super) struct QueueCase {
    pub(super) name: String,
    pub(super) about: &'static str,
    pub(super) fabric: Fabric,
    pub(super) jobs: Vec<Job>,
    /// Levels of the plan.
    pub(super) levels: u8,
    /// The share that each level but the highest gets at least, if it is not that of the flags.
    pub(super) lower_share: Option<f64>,
}

impl QueueCase {
    /// Each job on a level of its own, the first on the highest, where there is more than one: a
    /// plan that gains nothing by levels would put all on one.
    pub(super) fn fixed_levels(&self) -> Vec<JobOverride> {
        let levels = (0..self.levels).rev().filter(|_| self.levels > 1);
        let jobs = self.jobs.iter().zip(levels);
        jobs.map(|(job, level)| JobOverride::fixing_level(job.id.as_str(), Some(level))).collect()
    }
}

/// Host, host and bytes of a flow.
type HostFlow = (u32, u32, f64);

/// Leaves and hosts of each leaf under one spine, and the rate of a leaf's uplink in those of NICs.
#[derive(Clone, Copy)]
struct LeafShape {
    leaves: u32,
    hosts: u32,
    uplink_nics: f64,
}

/// A job of flows that start together; of two, the one with more operations is more intense.
fn job(id: &str, flops: f64, flows: &[HostFlow]) -> Job {
    let flow = |(src, dst, bytes): HostFlow, port: u16| Flow {
        src: NicId(src),
        dst: NicId(dst),
        bytes,
        udp_src_port: Some(port),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    };
    let hosts = flows.iter().flat_map(|(src, dst, _)| [*src, *dst]);
    Job {
        id: id.into(),
        tenant: None,
        model: None,
        gpus: hosts.map(|host| (HostId(host), 1)).collect::<BTreeMap<_, _>>(),
        flop_per_iteration: flops,
        compute_seconds: 1e-6,
        overlap_from: 0.0,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: (0xC000..).zip(flows).map(|(port, what)| flow(*what, port)).collect(),
    }
}

/// Jobs of one flow each.
fn single_flows(flows: &[HostFlow]) -> Vec<Job> {
    let jobs = flows.iter().enumerate();
    jobs.map(|(index, flow)| job(&format!("flow-{}", index + 1), 1e9, &[*flow])).collect()
}

fn build_case(
    name: &str,
    about: &'static str,
    nic_gbps: f64,
    shape: LeafShape,
    jobs: Vec<Job>,
) -> Result<QueueCase, CommandError> {
    let spec = ClosSpec {
        leaves: shape.leaves,
        spines: 1,
        hosts_per_leaf: shape.hosts,
        gpus_per_host: 64,
        host_gbps: nic_gbps,
        uplink_gbps: nic_gbps * shape.uplink_nics,
        host_links: 1,
        ..ClosSpec::default()
    };
    let fabric = clos::build_clos(name, &spec).map_err(CommandError::document)?;
    Ok(QueueCase { name: name.to_owned(), about, fabric, jobs, levels: 1, lower_share: None })
}

/// All cases.
pub(super) fn all_cases(size: CaseSize) -> Result<Vec<QueueCase>, CommandError> {
    let CaseSize { bytes, nic_gbps } = size;
    let star = |hosts| LeafShape { leaves: 1, hosts, uplink_nics: 4.0 };
    let mut cases = vec![build_case(
        "bottleneck",
        "Two flows into one NIC.",
        nic_gbps,
        star(3),
        single_flows(&[(0, 2, bytes / 2.0), (1, 2, bytes / 2.0)]),
    )?];
    for senders in [2, 4, 8, 16, 32] {
        let flows: Vec<HostFlow> =
            (0..senders).map(|from| (from, senders, bytes / f64::from(senders))).collect();
        let about = "As many flows at once into one NIC.";
        let name = format!("incast-{senders}");
        cases.push(build_case(&name, about, nic_gbps, star(senders + 1), single_flows(&flows))?);
    }
    cases.push(parking_lot(size)?);
    cases.push(victim(size)?);
    cases.push(two_classes(size)?);
    let strict = two_classes(size)?;
    cases.push(QueueCase {
        name: "shared-classes".to_owned(),
        about: "Two jobs share a cable on two levels, of which the lower gets half.",
        lower_share: Some(0.5),
        ..strict
    });
    cases.push(rings(size)?);
    Ok(cases)
}

/// Three leaves whose cables are as fast as NICs: the long flow meets another one on its way up and
/// a third on its way down.
fn parking_lot(CaseSize { bytes, nic_gbps }: CaseSize) -> Result<QueueCase, CommandError> {
    let shape = LeafShape { leaves: 3, hosts: 2, uplink_nics: 1.0 };
    let half = bytes / 2.0;
    let flows = [(0, 4, half), (1, 2, half), (3, 5, half)];
    let about = "The first flow crosses two bottlenecks, each shared with one other flow.";
    build_case("parking-lot", about, nic_gbps, shape, single_flows(&flows))
}

/// Four flows from one leaf into one NIC of another, and a fifth between the same leaves to an idle
/// NIC, which pauses of the cable between them hold up.
fn victim(CaseSize { bytes, nic_gbps }: CaseSize) -> Result<QueueCase, CommandError> {
    let shape = LeafShape { leaves: 2, hosts: 6, uplink_nics: 4.0 };
    let mut flows: Vec<HostFlow> = (0..4).map(|from| (from, 6, bytes / 4.0)).collect();
    flows.push((4, 7, bytes / 4.0));
    let about = "The fifth flow ends at an idle NIC and shares a cable with an incast of four.";
    build_case("victim", about, nic_gbps, shape, single_flows(&flows))
}

/// Two jobs on one cable, one of them far more intense.
fn two_classes(CaseSize { bytes, nic_gbps }: CaseSize) -> Result<QueueCase, CommandError> {
    let shape = LeafShape { leaves: 2, hosts: 2, uplink_nics: 1.0 };
    let half = bytes / 2.0;
    let jobs = vec![job("high", 1e12, &[(0, 2, half)]), job("low", 1e9, &[(1, 3, half)])];
    let about = "Two jobs share a cable on two levels.";
    Ok(QueueCase { levels: 2, ..build_case("two-classes", about, nic_gbps, shape, jobs)? })
}

/// Two rings of four hosts on two leaves, which share the cable each way.
fn rings(CaseSize { bytes, nic_gbps }: CaseSize) -> Result<QueueCase, CommandError> {
    let shape = LeafShape { leaves: 2, hosts: 4, uplink_nics: 1.0 };
    let half = bytes / 2.0;
    let ring = |hosts: [u32; 4]| [0, 1, 2, 3].map(|at| (hosts[at], hosts[(at + 1) % 4], half));
    let jobs =
        vec![job("ring-1", 1e9, &ring([0, 1, 4, 5])), job("ring-2", 1e9, &ring([2, 3, 6, 7]))];
    let about = "Two all-reduce rings meet on the cable between two leaves.";
    build_case("rings", about, nic_gbps, shape, jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_names_hosts_that_it_has() {
        let cases = all_cases(CaseSize { bytes: 1e6, nic_gbps: 100.0 }).unwrap();
        assert_eq!(cases.len(), 11);
        for case in cases {
            let hosts = case.fabric.hosts().len() as u32;
            let flows = case.jobs.iter().flat_map(|job| &job.flows);
            for flow in flows {
                assert!(flow.src.0 < hosts && flow.dst.0 < hosts && flow.src != flow.dst);
            }
        }
    }
}
