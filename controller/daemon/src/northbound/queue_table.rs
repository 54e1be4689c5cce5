//! What queues of switches have counted, for people: those that lost, paused or marked most.
//!
//! Pure. The decision: queues that have counted nothing are left out, and
//! so are those beyond the first thousand, because a fabric has hundreds of thousands of queues and
//! a page asks again and again; the metrics have all of them.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, FabricNode, SwitchId};

use super::service::{NorthboundService, ServiceError};
use crate::gnmi::{FabricCounters, QueueCounters};

/// Queues of a table at most.
const MOST_QUEUES: usize = 1_000;

/// One level of a port, where its switch reports over gNMI; what it does not report is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueRow {
    /// Its switch.
    pub switch: String,
    /// Its port.
    pub port: u32,
    /// The switch or host at the other end of the port's cable.
    pub neighbour: Option<String>,
    /// Its level.
    pub level: u8,
    /// Packets dropped.
    pub dropped: Option<u64>,
    /// Pauses of this level that the neighbour asked for.
    pub pauses_received: Option<u64>,
    /// Pauses of this level that were asked of the neighbour.
    pub pauses_sent: Option<u64>,
    /// Packets marked with ECN.
    pub marked: Option<u64>,
}

impl NorthboundService {
    /// Queues that have lost, paused or marked packets, the worst first, a thousand at most.
    ///
    /// # Errors
    /// The controller has no plan yet.
    pub async fn list_queues(&self) -> Result<Vec<QueueRow>, ServiceError> {
        let view = self.current_view().await?;
        Ok(queue_rows(&view.rollout.fabric, &view.port_counters))
    }
}

/// Queues that have counted something, the worst first: drops, then pauses, then marks.
fn queue_rows(fabric: &Fabric, counters: &FabricCounters) -> Vec<QueueRow> {
    let switches = fabric.switch_ids().filter_map(|id| Some((id, counters.get(&id)?)));
    let queues = switches.flat_map(|(id, ports)| {
        let queues = ports.queues.iter();
        queues.map(move |((port, level), counters)| (id, *port, *level, counters))
    });
    let mut counted: Vec<_> =
        queues.filter(|(_, _, _, counters)| severity(counters) > (0, 0, 0)).collect();
    counted.sort_by_key(|(_, _, _, counters)| Reverse(severity(counters)));
    counted.truncate(MOST_QUEUES);
    let rows = counted.into_iter().map(|(switch, port, level, counters)| QueueRow {
        switch: fabric.switch(switch).name.clone(),
        port,
        neighbour: neighbour_at(fabric, switch, port),
        level,
        dropped: counters.dropped,
        pauses_received: counters.pauses_received,
        pauses_sent: counters.pauses_sent,
        marked: counters.marked,
    });
    rows.collect()
}

/// Drops, pauses both ways, and marks.
fn severity(counters: &QueueCounters) -> (u64, u64, u64) {
    let count = |value: Option<u64>| value.unwrap_or(0);
    let pauses = count(counters.pauses_received).saturating_add(count(counters.pauses_sent));
    (count(counters.dropped), pauses, count(counters.marked))
}

fn neighbour_at(fabric: &Fabric, switch: SwitchId, port: u32) -> Option<String> {
    let link = fabric.switch(switch).ports.get(&port)?;
    Some(match fabric.link(*link).to.node {
        FabricNode::Switch(id) => fabric.switch(id).name.clone(),
        FabricNode::Host(id) => fabric.host(id).name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use topology::document::DocumentFormat;
    use topology::spec;

    use super::*;
    use crate::gnmi::SwitchCounters;

    #[test]
    fn the_worst_queue_is_first_and_those_without_counts_are_left_out() {
        let text = "name = 'lab'\n[clos]\nleaves = 2\nspines = 1\nhosts_per_leaf = 1\n\
                    gpus_per_host = 8\nhost_gbps = 1.0\nuplink_gbps = 1.0\n";
        let fabric = spec::parse_fabric(text, DocumentFormat::Toml, "lab.toml").unwrap();
        let leaf = fabric.switch_named("leaf1").unwrap();
        let uplink = fabric
            .switch(leaf)
            .ports
            .iter()
            .find(|(_, link)| matches!(fabric.link(**link).to.node, FabricNode::Switch(_)));
        let port = *uplink.unwrap().0;
        let marks = QueueCounters { marked: Some(900), ..QueueCounters::default() };
        let pauses = QueueCounters { pauses_received: Some(3), ..marks };
        let drops = QueueCounters { dropped: Some(1), ..QueueCounters::default() };
        let quiet = QueueCounters { marked: Some(0), ..QueueCounters::default() };
        let queues =
            [((port, 0), marks), ((port, 1), quiet), ((port, 2), drops), ((999, 0), pauses)];
        let queues = BTreeMap::from(queues);
        let of_leaf = SwitchCounters { queues, ..SwitchCounters::default() };
        let counters = Arc::new(BTreeMap::from([(leaf, of_leaf)]));
        let rows = queue_rows(&fabric, &counters);
        let seen: Vec<_> = rows.iter().map(|row| (row.port, row.level, row.marked)).collect();
        assert_eq!(seen, [(port, 2, None), (999, 0, Some(900)), (port, 0, Some(900))]);
        assert_eq!((rows[0].neighbour.as_deref(), &rows[1].neighbour), (Some("spine1"), &None));
    }
}
