//! Fabrics and jobs to plan: small builders that say only what a test is about.

use planner::{Flow, Job, JobId, MeasuredSlowdown, PlanInput};
use topology::clos::{ClosSpec, build_clos};
use topology::{Fabric, LinkId, Tier};

/// A two-tier fabric of 400 Gb/s uplinks and 8-GPU hosts with one 200 Gb/s NIC.
pub(crate) fn clos(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Fabric {
    let spec = ClosSpec { leaves, spines, hosts_per_leaf, ..ClosSpec::default() };
    build_clos("test", &spec).unwrap()
}

/// A ring over whole hosts, by position: each sends `bytes` to the next.
pub(crate) fn ring(fabric: &Fabric, id: &str, hosts: &[u32], bytes: f64) -> Job {
    let nic = |host: u32| fabric.hosts()[host as usize].nics[0];
    let next = hosts.iter().cycle().skip(1);
    let flows = hosts.iter().zip(next).enumerate().map(|(index, (src, dst))| Flow {
        src: nic(*src),
        dst: nic(*dst),
        bytes,
        udp_src_port: Some(port(id, index)),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    });
    Job {
        id: JobId::from(id),
        tenant: None,
        model: None,
        gpus: hosts.iter().map(|host| (topology::HostId(*host), 8)).collect(),
        flop_per_iteration: 1e15,
        compute_seconds: 1.0,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: flows.filter(|flow| flow.src != flow.dst).collect(),
    }
}

/// A port for the flow of a job; jobs of these tests differ in their last character.
fn port(id: &str, index: usize) -> u16 {
    let job = u16::from(id.bytes().last().unwrap_or(0));
    0xC000 + job * 64 + u16::try_from(index).unwrap()
}

pub(crate) fn input(fabric: &Fabric, jobs: &[Job]) -> PlanInput {
    PlanInput { fabric: fabric.clone(), jobs: jobs.to_vec() }
}

/// The cable between two switches by name.
pub(crate) fn cable(fabric: &Fabric, a: &str, b: &str) -> LinkId {
    let (a, b) = (fabric.switch_named(a).unwrap(), fabric.switch_named(b).unwrap());
    let mut links = fabric.switch(a).ports.values();
    *links.find(|link| fabric.link(**link).to.node.switch() == Some(b)).unwrap()
}

/// Names of the spines that the planned flows of a job cross, by flow.
pub(crate) fn spines(fabric: &Fabric, plan: &planner::Plan, id: &str) -> Vec<String> {
    let (job, _) = plan.job(&JobId::from(id)).unwrap();
    let spine = |link: &LinkId| {
        let switch = fabric.link(*link).to.node.switch()?;
        (fabric.switch(switch).tier == Tier::Spine).then(|| fabric.switch(switch).name.clone())
    };
    plan.flows_of(job).filter_map(|flow| flow.links.iter().find_map(spine)).collect()
}
