//! What the controllers of a testbed are given: a fabric, jobs, and short timeouts.

use std::collections::BTreeMap;

use controller::{Config, RawConfig};
use planner::{Flow, Job, MeasuredSlowdown};
use topology::clos::{self, ClosSpec};
use topology::{Fabric, HostId, NicId};

use super::fault_schedule::LeadershipMode;
use super::fault_testbed::SLOTS;

/// Two leaves, two spines, two hosts on each leaf; a switch's address is its number.
pub(super) fn build_fabric() -> Result<Fabric, String> {
    let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    let fabric = clos::build_clos("world", &spec).map_err(|error| error.to_string())?;
    let mut parts = fabric.parts().clone();
    for (number, switch) in parts.switches.iter_mut().enumerate() {
        switch.p4runtime = Some(number.to_string());
    }
    Ok(Fabric::new(parts))
}

/// The configuration of a controller with short timeouts, multiples of the slots of its switches.
pub(super) fn controller_config(
    controller: u32,
    term: u64,
    led: LeadershipMode,
) -> Result<Config, String> {
    let mut raw = RawConfig::default();
    if led == LeadershipMode::Etcd {
        raw.etcd.endpoints = vec!["etcd".to_owned()];
        raw.etcd.lease_s = 2;
        raw.etcd.deadline_ms = 16 * SLOTS;
    }
    raw.northbound.limits.planning_queue = 2;
    raw.election.controller = controller;
    raw.election.term = term;
    raw.election.grace_ms = 8 * SLOTS;
    raw.deadlines.rpc_ms = 16 * SLOTS;
    raw.deadlines.connect_ms = 16 * SLOTS;
    raw.reconcile.interval_ms = 32 * SLOTS;
    raw.reconcile.retry_first_ms = SLOTS;
    raw.reconcile.retry_longest_ms = 8 * SLOTS;
    raw.reconcile.batch = 5;
    raw.deadlines.drain_ms = 64 * SLOTS;
    raw.deadlines.verify_ms = 64 * SLOTS;
    raw.deadlines.quiet_ms = 64 * SLOTS;
    raw.liveness.hold_down_ms = 4 * SLOTS;
    raw.liveness.hold_down_longest_ms = 32 * SLOTS;
    raw.liveness.switch_silence_ms = 32 * SLOTS;
    raw.liveness.return_ms = 32 * SLOTS;
    Config::try_from(raw).map_err(|error| error.to_string())
}

/// A job with a flow between the leaves.
pub(super) fn build_job(number: u32) -> Job {
    let flow = Flow {
        src: NicId(number % 2),
        dst: NicId(2 + number / 2 % 2),
        bytes: 1e9,
        udp_src_port: Some(50_000 + number as u16),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    };
    Job {
        id: format!("job{number}").as_str().into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(0), 1), (HostId(2), 1)]),
        flop_per_iteration: 1e15 * f64::from(number + 1),
        compute_seconds: 1.0,
        overlap_from: 1.0,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: vec![flow],
    }
}
