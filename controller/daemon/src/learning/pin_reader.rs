//! Reads what the pins of learned connections have counted, and the rows of pairs with flows of no
//! job.
//!
//! A pinned connection is not reported any more, so its counter says whether it lives. The
//! decision: one reading at a time, switch by switch, over TCP connections of its own; a switch
//! that does not answer is left out, and its learned connections age until it does.

use std::collections::BTreeMap;

use p4::entry::EntryKey;
use planner::PlannedFlow;
use topology::{Fabric, NicId, SwitchId};
use tracing::debug;

use super::CountedConnection;
use crate::config::SouthboundConfig;
use crate::discovery::SwitchPort;
use crate::pipelines::{entry_pin, pair_entry};
use crate::southbound::{ClientError, SwitchClient, SwitchTarget};
use crate::state::PlanRollout;

/// What all pins of learned connections and the rows of counted pairs have counted, and the learned
/// connections without a pin.
pub(super) async fn read_pins(
    rollout: PlanRollout,
    southbound: SouthboundConfig,
) -> Vec<CountedConnection> {
    let mut of_switches: BTreeMap<SwitchId, BTreeMap<EntryKey, CountedConnection>> =
        BTreeMap::new();
    for (key, connection) in learned_pins(&rollout).into_iter().chain(counted_pairs(&rollout)) {
        of_switches.entry(connection.at.switch).or_default().insert(key, connection);
    }
    // A class row has no counter for each of them; they live as long as their job has both NICs.
    let unpinned = rollout.learned.iter().filter(|flow| !flow.pinned);
    let mut counted: Vec<CountedConnection> =
        unpinned.filter_map(|flow| connection_of(&rollout.fabric, flow)).collect();
    for target in SwitchTarget::all_in_fabric(&rollout.fabric) {
        let Some(pins) = of_switches.remove(&target.switch) else {
            continue;
        };
        match read_switch(&target, pins, &southbound).await {
            Ok(read) => counted.extend(read),
            Err(error) => debug!(switch = target.name, %error, "learned pins are not read"),
        }
    }
    counted
}

async fn read_switch(
    target: &SwitchTarget,
    pins: BTreeMap<EntryKey, CountedConnection>,
    southbound: &SouthboundConfig,
) -> Result<Vec<CountedConnection>, ClientError> {
    let client = SwitchClient::connect(&target.address, southbound).await?;
    let keys: Vec<EntryKey> = pins.keys().cloned().collect();
    let reading = client.read_counts(&keys, &[]).await?;
    let counted = reading.pins.iter().filter_map(|(key, count)| {
        Some(CountedConnection { bytes: Some(count.bytes), ..*pins.get(key)? })
    });
    Ok(counted.collect())
}

/// The pins of learned connections, each at the leaf where its connection enters.
fn learned_pins(rollout: &PlanRollout) -> Vec<(EntryKey, CountedConnection)> {
    let fabric = &rollout.fabric;
    let pins = rollout
        .learned
        .iter()
        .filter(|flow| flow.pinned)
        .filter_map(|flow| Some((entry_pin(fabric, flow)?, connection_of(fabric, flow)?)));
    pins.collect()
}

/// The rows that count flows of no job.
fn counted_pairs(rollout: &PlanRollout) -> Vec<(EntryKey, CountedConnection)> {
    let fabric = &rollout.fabric;
    let rows = rollout.counted_pairs().into_iter().filter_map(|(src, dst)| {
        let key = pair_entry(fabric, (src, dst))?;
        Some((key, counted_between(fabric, [src, dst])?))
    });
    rows.collect()
}

fn connection_of(fabric: &Fabric, flow: &PlannedFlow) -> Option<CountedConnection> {
    let udp_src_port = Some(flow.udp_src_port?);
    Some(CountedConnection { udp_src_port, ..counted_between(fabric, [flow.src, flow.dst])? })
}

fn counted_between(fabric: &Fabric, [src, dst]: [NicId; 2]) -> Option<CountedConnection> {
    let entry = fabric.link(fabric.nic(src).uplink).to;
    Some(CountedConnection {
        at: SwitchPort::at_endpoint(entry)?,
        src: fabric.nic(src).ip,
        dst: fabric.nic(dst).ip,
        udp_src_port: None,
        bytes: None,
    })
}
