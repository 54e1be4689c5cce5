//! A learned flow as a row of names and numbers, with its owner.

use std::cmp::Reverse;
use std::net::IpAddr;

use planner::{ConnectionOwner, NicOwners};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, Finding};

use super::controller_view::{ControllerView, job_names};
use crate::clock::Clock;
use crate::learning::LearnedFlow;
use crate::state::PlanRollout;

/// The UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// A RoCEv2 flow that no job has announced, as the leaf of its sender reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedFlowRow {
    /// The leaf by which it enters the fabric.
    pub leaf: String,
    /// The port of that leaf.
    pub port: u16,
    /// The NIC that sends it, as `h1:0`; absent if the fabric has none of this address.
    pub src_nic: Option<String>,
    /// The sender's address.
    pub src: IpAddr,
    /// The NIC that receives it; absent if the fabric has none of this address.
    pub dst_nic: Option<String>,
    /// The receiver's address.
    pub dst: IpAddr,
    /// The sender's UDP port.
    pub udp_src_port: u16,
    /// The receiver's UDP port.
    pub udp_dst_port: u16,
    /// The receiver's queue pair; 0 if the flow was learned before the controller started.
    pub dest_qp: u32,
    /// When it was first reported, in milliseconds of Unix time.
    pub first_seen_ms: u64,
    /// When it was last reported, in milliseconds of Unix time. A flow that goes on is reported
    /// once in each `learning.refresh_ms`.
    pub last_seen_ms: u64,
    /// The job that its hosts state, that alone has both NICs, or to which a rule of the policy
    /// gives it; absent if there is no such job.
    #[serde(default)]
    pub job: Option<String>,
    /// Whether a rule of the policy gives it to its job.
    #[serde(default)]
    pub adopted: bool,
    /// The jobs that have both NICs, where there are several: nobody can say whose it is.
    #[serde(default)]
    pub candidates: Vec<String>,
    /// Whether it has a pin, on a path of its job.
    #[serde(default)]
    pub pinned: bool,
    /// Bytes that its pin has counted; absent without one.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Bytes that switches have counted of all flows of no job between its NICs, for a flow of no
    /// job; absent where they do not count them.
    #[serde(default)]
    pub pair_bytes: Option<u64>,
}

/// The rows of learned flows: first those of nobody, for they need a person; the NICs that send the
/// most first, then the longest known.
pub(super) fn learned_flow_rows(
    flows: &[LearnedFlow],
    rollout: &PlanRollout,
    clock: &Clock,
) -> Vec<LearnedFlowRow> {
    let owners = NicOwners::new(&rollout.fabric, &rollout.plan);
    let rows = flows.iter().filter_map(|flow| build_row(flow, rollout, &owners, clock));
    let mut rows: Vec<LearnedFlowRow> = rows.collect();
    rows.sort_by_key(|row| (row.job.is_some(), Reverse(row.pair_bytes), row.first_seen_ms));
    rows
}

/// The row of a flow; `None` if its switch is not in the fabric any more.
fn build_row(
    flow: &LearnedFlow,
    rollout: &PlanRollout,
    owners: &NicOwners,
    clock: &Clock,
) -> Option<LearnedFlowRow> {
    let fabric = &rollout.fabric;
    let owner = flow_owner(flow, fabric, owners);
    let adopter = adopting_job(flow, rollout, &owner);
    let (job, candidates) = match owner {
        ConnectionOwner::Job(job) => (Some(job), Vec::new()),
        ConnectionOwner::Ambiguous(jobs) if adopter.is_none() => (None, job_names(rollout, &jobs)),
        ConnectionOwner::Ambiguous(_) | ConnectionOwner::Unknown => (adopter, Vec::new()),
    };
    let job = job.map(|job| rollout.plan.jobs[job].id.to_string());
    Some(LearnedFlowRow {
        leaf: fabric.switches().get(flow.at.switch.index())?.name.clone(),
        port: flow.at.port,
        src_nic: nic_name(fabric, flow.tuple.src),
        src: flow.tuple.src,
        dst_nic: nic_name(fabric, flow.tuple.dst),
        dst: flow.tuple.dst,
        udp_src_port: flow.tuple.udp_src_port,
        udp_dst_port: ROCE_PORT,
        dest_qp: flow.tuple.dest_qp,
        first_seen_ms: clock.unix_time(flow.first_seen),
        last_seen_ms: clock.unix_time(flow.last_seen),
        pinned: job.is_some() && flow.bytes.is_some(),
        pair_bytes: flow.pair_bytes.filter(|_| job.is_none()),
        job,
        adopted: adopter.is_some(),
        candidates,
        bytes: flow.bytes,
    })
}

fn flow_owner(flow: &LearnedFlow, fabric: &Fabric, owners: &NicOwners) -> ConnectionOwner {
    let [src, dst] = [flow.tuple.src, flow.tuple.dst].map(|ip| fabric.nic_with_ip(ip));
    match src.zip(dst) {
        Some((src, dst)) => owners.find_stated_owner(fabric, [src, dst], flow.stated_job.as_ref()),
        None => ConnectionOwner::Unknown,
    }
}

/// The job of the first rule of the policy that gives it a flow without an owner.
fn adopting_job(
    flow: &LearnedFlow,
    rollout: &PlanRollout,
    owner: &ConnectionOwner,
) -> Option<usize> {
    let [src, dst] = [flow.tuple.src, flow.tuple.dst].map(|ip| rollout.fabric.nic_with_ip(ip));
    let (ends, sport) = ([src?, dst?], flow.tuple.udp_src_port);
    let mut rules = rollout.plan.rules.iter();
    let rule = rules.find(|rule| rule.adopts(ends, sport, ROCE_PORT))?;
    (!matches!(owner, ConnectionOwner::Job(_))).then_some(rule.job)
}

impl ControllerView {
    /// How many learned flows belong to nobody, and what to do about them.
    pub(super) fn unowned_finding(&self) -> Option<Finding> {
        let PlanRollout { fabric, plan, .. } = &self.rollout;
        let owners = NicOwners::new(fabric, plan);
        let unowned = self.learned.flows.iter().filter(|flow| {
            let owner = flow_owner(flow, fabric, &owners);
            let is_owned = matches!(owner, ConnectionOwner::Job(_));
            !is_owned && adopting_job(flow, &self.rollout, &owner).is_none()
        });
        let count = unowned.count();
        let text = format!(
            "{count} RoCEv2 flows belong to no job; crux flows lists them, those that send most \
             first, and crux flows adopt gives them to a job"
        );
        (count > 0).then(|| Finding::info("learned flows", text))
    }
}

fn nic_name(fabric: &Fabric, address: IpAddr) -> Option<String> {
    let nic = fabric.nic(fabric.nic_with_ip(address)?);
    Some(fabric.endpoint_name(fabric.link(nic.uplink).from))
}
