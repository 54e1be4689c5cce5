//! Rules about buffers: whether the headroom of lossless levels fits.

use std::collections::BTreeSet;

use super::join_any;
use crate::fabric::Fabric;
use crate::finding::Finding;
use crate::ids::SwitchId;
use crate::lossless::BufferDemand;

/// Bytes as people write them.
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

pub(super) fn headroom_demands(fabric: &Fabric) -> Vec<Finding> {
    let switches = fabric.switches().iter();
    let demands = switches.filter_map(|switch| {
        let demand = BufferDemand::of_switch(fabric, switch)?;
        Some((&*switch.name, demand))
    });
    let mut findings: Vec<Finding> =
        demands.clone().filter_map(|(name, demand)| headroom_finding(name, demand)).collect();
    // Of the switches that have room, the one with the least.
    let fullest = demands
        .filter_map(|(name, demand)| Some((demand.shared_bytes()?, name, demand)))
        .min_by_key(|(left, ..)| *left);
    findings.extend(fullest.map(|(left, name, demand)| {
        let text = format!(
            "PFC headroom of {} lossless levels takes {} of a buffer of {}; {} are left for queues \
             (the least of all switches)",
            demand.levels,
            megabytes(demand.headroom_bytes()),
            megabytes(demand.buffer_bytes),
            megabytes(left)
        );
        Finding::info(name, text)
    }));
    findings
}

fn headroom_finding(name: &str, demand: BufferDemand) -> Option<Finding> {
    if demand.shared_bytes().is_none() {
        let text = format!(
            "PFC headroom of {} lossless levels needs {}, and the buffer has {}; {}",
            demand.levels,
            megabytes(demand.headroom_bytes()),
            megabytes(demand.buffer_bytes),
            remedy(demand)
        );
        return Some(Finding::error(name, text));
    }
    let text = format!(
        "a queue of {} bytes, up to which congestion is marked (Kmax), is more than half of the \
         buffer that headroom leaves: senders are paused before marks slow them down; have \
         fewer lossless levels or a lower Kmax",
        demand.marking_bytes
    );
    (!demand.marks_before_pause()).then(|| Finding::warning(name, text))
}

/// What would fit.
fn remedy(demand: BufferDemand) -> String {
    let levels = match demand.levels_that_fit() {
        0 => "no level fits".to_owned(),
        1 => "have 1 lossless level".to_owned(),
        count => format!("have {count} lossless levels"),
    };
    match demand.cable_share_that_fits() {
        Some(share) => {
            format!("{levels}, or cables of at most {:.0} % of their length", share * 100.0)
        }
        None => format!("{levels}; shorter cables alone are not enough, a lower mtu_bytes may be"),
    }
}

/// Lossless levels of which nothing can be said, because something else is not known.
pub(super) fn unknown_buffers(fabric: &Fabric) -> Vec<Finding> {
    let switches = fabric.switches().iter();
    let unknown = switches.filter(|switch| {
        switch.queues.lossless_levels.is_some() && BufferDemand::of_switch(fabric, switch).is_none()
    });
    let names: Vec<&str> = unknown.map(|switch| &*switch.name).collect();
    let text = "lossless levels without buffer_bytes or without the length of every cable; whether \
                their headroom fits cannot be said";
    join_any(&names).map(|names| Finding::info(names, text)).into_iter().collect()
}

/// Leaves that pause by level, with hosts that send all levels with one DSCP.
pub(super) fn fifo_hosts(fabric: &Fabric) -> Vec<Finding> {
    let uplinks = fabric.nics().iter().map(|nic| fabric.link(nic.uplink));
    let fifo = uplinks.filter(|link| !link.scheduler.serves_levels());
    let leaves: BTreeSet<SwitchId> = fifo.filter_map(|link| link.to.node.switch()).collect();
    let leaves = leaves.into_iter().map(|leaf| fabric.switch(leaf));
    let by_level =
        leaves.filter(|leaf| leaf.queues.lossless_levels.is_some_and(|levels| levels > 1));
    let names: Vec<&str> = by_level.map(|leaf| &*leaf.name).collect();
    let text = "pauses by level, and its hosts are fifo: with one DSCP for all jobs a pause holds \
                up all of a host's levels; run crux agent --set-dscp there and set \
                host_scheduler = \"host-strict\"";
    join_any(&names).map(|names| Finding::info(names, text)).into_iter().collect()
}
