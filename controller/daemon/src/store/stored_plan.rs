//! The plan in force, as the next run of the controller continues from it.
//!
//! Tables follow from more than the plan: connections that switches reported, the room for pins,
//! and failed parts. A run that started without them would move flows and write entries although
//! nothing has changed. The decision: all of it is one document of names, written together, so a
//! run never continues from parts of two plans.

use planner::{ComparedInputs, JobId, LearnedConnection, Plan, PlanDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{AvailabilityChange, Fabric, Finding, NicId, SwitchId};

/// What the tables of switches follow from, beside jobs and policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanBasis {
    /// Connections that switches have reported.
    pub connections: Vec<LearnedConnection>,
    /// The least room for pins of any switch, once one was full.
    pub pin_room: Option<(SwitchId, usize)>,
}

/// The plan in force and what its tables follow from, by names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredPlan {
    /// The decisions.
    pub plan: PlanDocument,
    /// Digests of the regions that were compared with their alternatives.
    compared_regions: Vec<u64>,
    /// Connections that switches have reported.
    connections: Vec<StoredConnection>,
    /// A switch and the pins for which it has room.
    pin_room: Option<(String, usize)>,
    /// Cables out of order, each by the name of one direction.
    failed_cables: Vec<String>,
    /// Switches out of order.
    failed_switches: Vec<String>,
}

/// A connection: host and NIC index of both ends (those of second ports after all NICs), UDP source port (none where only bytes of no job
/// are counted), ordinal, and the job that its hosts state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct StoredConnection([(String, u32); 2], Option<u16>, u32, Option<String>);

impl StoredPlan {
    /// The document of a plan on `fabric` with its failed parts.
    pub fn new(fabric: &Fabric, plan: &Plan, basis: &PlanBasis) -> Self {
        let known = |seen: &&LearnedConnection| {
            [seen.src, seen.dst].iter().all(|nic| nic.index() < fabric.nics().len())
        };
        let seen = basis.connections.iter().filter(known);
        let cables = fabric.cables().filter(|cable| !fabric.is_cable_up(*cable));
        let switches = fabric.switch_ids().filter(|switch| !fabric.is_switch_up(*switch));
        let switch_name = |switch: SwitchId| fabric.switch(switch).name.clone();
        Self {
            plan: PlanDocument::from_decisions(fabric, plan),
            compared_regions: plan.compared_inputs.0.iter().copied().collect(),
            connections: seen.map(|seen| StoredConnection::new(fabric, seen)).collect(),
            pin_room: basis.pin_room.map(|(switch, pins)| (switch_name(switch), pins)),
            failed_cables: cables.map(|cable| fabric.link_name(cable)).collect(),
            failed_switches: switches.map(switch_name).collect(),
        }
    }

    /// The failures of parts that `fabric` has.
    pub fn failures_on(&self, fabric: &Fabric) -> Vec<AvailabilityChange> {
        let cables = self.failed_cables.iter().filter_map(|name| fabric.link_named(name));
        let switches = self.failed_switches.iter().filter_map(|name| fabric.switch_named(name));
        let cables = cables.map(AvailabilityChange::LinkDown);
        cables.chain(switches.map(AvailabilityChange::SwitchDown)).collect()
    }

    /// The plan and its basis in the ids of `fabric`, and findings about what it no longer has.
    pub fn restore_on(&self, fabric: &Fabric) -> (Plan, PlanBasis, Vec<Finding>) {
        let (plan, findings) = self.plan.restore_plan(fabric);
        let compared_inputs = ComparedInputs(self.compared_regions.iter().copied().collect());
        let room = self.pin_room.as_ref();
        let basis = PlanBasis {
            connections: self.connections.iter().filter_map(|seen| seen.resolve(fabric)).collect(),
            pin_room: room.and_then(|(switch, pins)| Some((fabric.switch_named(switch)?, *pins))),
        };
        (Plan { compared_inputs, ..plan }, basis, findings)
    }
}

impl StoredConnection {
    fn new(fabric: &Fabric, seen: &LearnedConnection) -> Self {
        let ends = [seen.src, seen.dst].map(|nic| {
            let host = fabric.host(fabric.nic(nic).host).name.clone();
            (host, fabric.host_port_number(nic))
        });
        let job = seen.job.as_ref().map(ToString::to_string);
        Self(ends, seen.udp_src_port, seen.ordinal, job)
    }

    fn resolve(&self, fabric: &Fabric) -> Option<LearnedConnection> {
        let Self([src, dst], udp_src_port, ordinal, job) = self;
        let nic = |(host, index): &(String, u32)| -> Option<NicId> {
            fabric.host_port(fabric.host_named(host)?, *index)
        };
        Some(LearnedConnection {
            src: nic(src)?,
            dst: nic(dst)?,
            udp_src_port: *udp_src_port,
            ordinal: *ordinal,
            job: job.as_deref().map(JobId::from),
        })
    }
}
