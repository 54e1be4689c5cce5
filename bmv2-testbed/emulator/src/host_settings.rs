//! How hosts send on a fabric, from its rates and delays and from what its jobs send.

use std::collections::BTreeMap;

use planner::Job;
use switch::{Nanos, QueueLimits};
use topology::{Fabric, Forwarding, NicId, Tier};

use crate::connection::HostSettings;
use crate::options::{HostTransport, TestbedOptions};
use crate::roce::{MTU, OVERHEAD};
use crate::scale::TimeScale;
use crate::transport::{LossRecovery, TransportSettings};

/// The windows of a job's connections between two NICs are together this many bandwidth-delay
/// products: one to fill the path, the others for packets and acknowledgements that wait while other
/// flows have their turn. More would be queued: what a job has there at once is served in one piece,
/// whatever comes later.
const WINDOW_BDPS: u64 = 4;
/// Acknowledgements in a window.
const ACKS_PER_WINDOW: u32 = 8;
/// Under DCQCN the rate limits a connection, and pauses what is queued; the window only keeps
/// sequence numbers apart.
const RATE_LIMITED_WINDOW: u32 = 1 << 22;
/// Packets for each acknowledgement there: a quarter of a round trip at 400 Gb/s.
const RATE_LIMITED_ACKS: u32 = 16;
/// Packets of a sprayed connection that may overtake one, under DCQCN, where no window bounds them.
const SPRAYED_REORDERING: u32 = 1024;
/// Room for all windows, or for as much as the shared buffer lets in.
pub(crate) fn queue_limits(
    jobs: &[Job],
    transport: TransportSettings,
    options: TestbedOptions,
) -> QueueLimits {
    let flows: usize = jobs.iter().map(|job| job.flows.len()).sum();
    QueueLimits::of_bytes(match options.transport {
        HostTransport::Window => {
            u64::from(transport.window * (MTU + OVERHEAD)) * flows.max(1) as u64
        }
        HostTransport::Dcqcn(_) => u64::MAX,
    })
}

/// How hosts send under these options.
pub fn host_settings(
    fabric: &Fabric,
    jobs: &[Job],
    scale: TimeScale,
    options: TestbedOptions,
) -> HostSettings {
    let windows = transport_settings(fabric, jobs, scale, options);
    let (recovery, reordering) = loss_recovery(fabric, options);
    match options.transport {
        HostTransport::Window => HostSettings { transport: windows, congestion: None },
        HostTransport::Dcqcn(dcqcn) => HostSettings {
            transport: TransportSettings {
                window: RATE_LIMITED_WINDOW,
                ack_every: RATE_LIMITED_ACKS,
                timeout_ns: dcqcn.retries.timeout_ns(scale),
                recovery,
                reordering,
                retries: Some(dcqcn.retries.retry_count),
            },
            congestion: Some(dcqcn.congestion_control()),
        },
    }
}

/// What senders repeat, and how many packets may overtake one that is not lost.
fn loss_recovery(fabric: &Fabric, options: TestbedOptions) -> (LossRecovery, u32) {
    let (usual, reordering) = match fabric.forwarding() {
        Forwarding::Pin => (LossRecovery::GoBackN, 0),
        Forwarding::Spray | Forwarding::Auto => (LossRecovery::SelectiveRepeat, SPRAYED_REORDERING),
    };
    (options.recovery.unwrap_or(usual), reordering)
}

/// The most connections that a job has from one NIC to another, at least one.
fn connections_of_a_pair(job: &Job) -> usize {
    let mut connections: BTreeMap<(NicId, NicId), usize> = BTreeMap::new();
    for flow in &job.flows {
        *connections.entry((flow.src, flow.dst)).or_default() += 1;
    }
    connections.into_values().max().unwrap_or(1)
}

/// A part of `WINDOW_BDPS` bandwidth-delay products of the longest path, and a timeout above the
/// longest time for which strict priority may delay a flow: two iterations of the slowest job.
fn transport_settings(
    fabric: &Fabric,
    jobs: &[Job],
    scale: TimeScale,
    options: TestbedOptions,
) -> TransportSettings {
    let has_cores = fabric.switches_of_tier(Tier::Core).next().is_some();
    let hops: u64 = if has_cores { 6 } else { 4 };
    let rates = fabric.nics().iter().map(|nic| fabric.link(nic.uplink).bandwidth);
    let bytes_per_ns = rates.map(|rate| rate.bytes_per_second() / 1e9).fold(0.0, f64::max);
    let packet = f64::from(MTU + OVERHEAD);
    let round_trip_ns =
        2.0 * (hops * options.delay_ns) as f64 + hops as f64 * packet / bytes_per_ns;
    let connections = jobs.iter().map(connections_of_a_pair).max().unwrap_or(1);
    let packets = WINDOW_BDPS as f64 * round_trip_ns * bytes_per_ns / packet / connections as f64;
    let window = (packets.ceil() as u32).next_multiple_of(ACKS_PER_WINDOW).max(ACKS_PER_WINDOW);
    let longest = jobs.iter().map(|job| {
        let bytes = job.flows.iter().map(|flow| flow.bytes).fold(0.0, f64::max);
        let alone_ns = scale.shrink_bytes(bytes) as f64 / bytes_per_ns;
        scale.shrink_seconds(job.compute_seconds) + alone_ns as Nanos
    });
    let (recovery, reordering) = loss_recovery(fabric, options);
    TransportSettings {
        window,
        ack_every: window / ACKS_PER_WINDOW,
        timeout_ns: 2 * longest.max().unwrap_or(0) + 1_000_000,
        recovery,
        // All others of its window may overtake one that waits at a low level: only the timeout says
        // that it is lost.
        reordering: reordering.min(window),
        retries: None,
    }
}
