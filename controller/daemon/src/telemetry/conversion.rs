//! Converts gRPC messages to [`TelemetryReport`]s.
//!
//! The decision: an announcement is a job of a jobs document, so names and numbers are checked
//! where those of documents are, and only limits of messages are checked here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::telemetry as proto;
use indexmap::IndexMap;
use planner::{
    CollectiveDocument, CollectiveKind, FlowDocument, JobDocument, JobId, RankGroups, RankTraffic,
};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::{HostStatus, JobReport, LevelStatus, ReportWindow, TelemetryReport};
use crate::learning::{HostQueuePairs, QueuePairGroup, ReportedQueuePair};

/// Iterations in one window; more are more than a window needs.
const MAX_STARTS: usize = 10_000;

/// Flows of one job; a ring of all hosts of a large fabric has fewer.
const MAX_FLOWS: usize = 65_536;

/// Collective operations of a job at most: some for each dimension of its parallelism.
const MAX_COLLECTIVES: usize = 64;

/// A name, or another text of an announcement, in bytes.
const MAX_TEXT: usize = 256;

/// Devices and jobs of one host, at most so many combinations.
const MAX_GROUPS: usize = 4_096;

/// Addresses of one device.
const MAX_ADDRESSES: usize = 64;

/// Queue pair numbers have 24 bits.
const MAX_QUEUE_PAIR: u32 = (1 << 24) - 1;

/// What names have besides letters and digits.
const NAME_MARKS: &str = " -_.,:;/@+#=~()[]<>";

/// A report that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// Nothing that is known here.
    #[error("a report without anything in it")]
    Empty,
    /// Text or a list that is too long.
    #[error("{field}: more than {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The largest length that is accepted.
        limit: usize,
    },
    /// A name that could be a pattern, or that a terminal could take for something else.
    #[error(
        "{0}: a name has letters, digits, spaces and -_.,:;/@+#=~()[]<> only (no `*` and no `?`), \
         and is not empty"
    )]
    InvalidName(&'static str),
    /// A port outside of its range.
    #[error("udp_src_port: {0} is no port")]
    InvalidPort(u32),
    /// Text that is no IP address.
    #[error("addresses: `{0}` is no IP address")]
    InvalidAddress(String),
    /// A number that no queue pair has.
    #[error("queue_pairs: {0} is no number of a queue pair; they have 24 bits")]
    InvalidQueuePair(u32),
    /// A collective that does not exist.
    #[error("collective.kind: {0}")]
    UnknownCollective(String),
}

impl TryFrom<proto::JobReport> for TelemetryReport {
    type Error = InvalidReport;

    fn try_from(report: proto::JobReport) -> Result<Self, InvalidReport> {
        use proto::job_report::Report;
        match report.report.ok_or(InvalidReport::Empty)? {
            Report::Announcement(announcement) => {
                let document = Box::new(decode_announcement(announcement)?);
                Ok(Self::Job(JobReport::Announcement(document)))
            }
            Report::Window(window) => Ok(Self::Job(JobReport::Window(decode_window(window)?))),
            Report::End(end) => {
                check_name("job", &end.job)?;
                Ok(Self::Job(JobReport::End(end.job)))
            }
            Report::QueuePairs(report) => Ok(Self::QueuePairs(decode_host(report)?)),
            Report::HostStatus(status) => Ok(Self::HostStatus(decode_status(status)?)),
        }
    }
}

fn decode_announcement(announcement: proto::JobAnnouncement) -> Result<JobDocument, InvalidReport> {
    check_name("job", &announcement.job)?;
    let texts = [("tenant", &announcement.tenant), ("model", &announcement.model)];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?)))
    {
        check_name(field, text)?;
    }
    check_limit("flows", announcement.flows.len(), MAX_FLOWS)?;
    check_limit("gpus", announcement.gpus.len(), MAX_FLOWS)?;
    let hosts = announcement.gpus.keys().map(String::len).max();
    check_limit("gpus", hosts.unwrap_or(0), MAX_TEXT)?;
    check_limit("hosts", announcement.hosts.len(), MAX_FLOWS)?;
    check_limit("gpu_indices", announcement.gpu_indices.len(), MAX_FLOWS)?;
    let gpu_indices = announcement.gpu_indices.into_iter().map(|(host, gpus)| {
        check_limit("gpu_indices", host.len().max(gpus.indices.len()), MAX_TEXT)?;
        Ok((host, gpus.indices))
    });
    let gpu_indices = gpu_indices.collect::<Result<_, InvalidReport>>()?;
    check_limit("pods", announcement.pods.len(), MAX_FLOWS)?;
    for uid in &announcement.pods {
        check_name("pods", uid)?;
    }
    check_limit("rank_traffic", announcement.rank_traffic.len(), MAX_FLOWS)?;
    let rank_traffic = announcement.rank_traffic.iter().map(|sent| {
        let proto::RankTraffic { src, dst, bytes, overlap_from } = *sent;
        RankTraffic { src, dst, bytes, overlap_from }
    });
    let collective = announcement.collective.as_ref().map(decode_collective).transpose()?;
    check_limit("collectives", announcement.collectives.len(), MAX_COLLECTIVES)?;
    let collectives: Result<Vec<_>, _> =
        announcement.collectives.iter().map(decode_collective).collect();
    let flows: Result<Vec<_>, _> = announcement.flows.into_iter().map(decode_flow).collect();
    Ok(JobDocument {
        id: announcement.job,
        tenant: announcement.tenant,
        model: announcement.model,
        gpus: in_rank_order(announcement.gpus, &announcement.hosts),
        gpu_indices,
        flop_per_iteration: announcement.flop_per_iteration,
        compute_seconds: announcement.compute_seconds,
        overlap_from: announcement.overlap_from,
        can_wait: announcement.can_wait,
        recent_slowdown: None,
        slowdown_over_forecast: None,
        profile: announcement.profile,
        flows: Some(flows?).filter(|flows| !flows.is_empty()),
        collective,
        collectives: collectives?,
        rank_traffic: rank_traffic.collect(),
        pods: announcement.pods,
    })
}

/// GPUs by host: first those of the stated order, then the others by name.
fn in_rank_order(mut gpus: BTreeMap<String, u32>, order: &[String]) -> IndexMap<String, u32> {
    let stated = order.iter().filter_map(|host| gpus.remove_entry(host));
    let mut ordered: IndexMap<String, u32> = stated.collect();
    ordered.extend(gpus);
    ordered
}

fn decode_flow(flow: proto::JobFlow) -> Result<FlowDocument, InvalidReport> {
    check_limit("flows.src", flow.src.len(), MAX_TEXT)?;
    check_limit("flows.dst", flow.dst.len(), MAX_TEXT)?;
    Ok(FlowDocument {
        src: flow.src,
        dst: flow.dst,
        src_nic: flow.src_nic,
        dst_nic: flow.dst_nic,
        bytes: flow.bytes,
        udp_src_port: flow.udp_src_port.map(decode_port).transpose()?,
        src_gpu: flow.src_gpu,
        dst_gpu: flow.dst_gpu,
        overlap_from: flow.overlap_from,
    })
}

fn decode_port(port: u32) -> Result<u16, InvalidReport> {
    u16::try_from(port).map_err(|_| InvalidReport::InvalidPort(port))
}

fn decode_collective(collective: &proto::Collective) -> Result<CollectiveDocument, InvalidReport> {
    let kind = CollectiveKind::deserialize(collective.kind.as_str().into_deserializer());
    Ok(CollectiveDocument {
        kind: kind.map_err(|error: Error| InvalidReport::UnknownCollective(error.to_string()))?,
        bytes: Some(collective.bytes).filter(|bytes| *bytes > 0.0),
        channels: collective.channels,
        groups: collective.groups.map(|of| RankGroups { size: of.size, stride: of.stride }),
        overlap_from: collective.overlap_from,
    })
}

fn decode_window(window: proto::JobWindow) -> Result<ReportWindow, InvalidReport> {
    check_name("job", &window.job)?;
    check_limit("iteration_starts", window.iteration_starts.len(), MAX_STARTS)?;
    check_limit("flow_bytes", window.flow_bytes.len(), MAX_FLOWS)?;
    Ok(ReportWindow {
        job: window.job,
        seconds: window.seconds,
        iteration_starts: window.iteration_starts,
        flop: window.flop,
        compute_seconds: window.compute_seconds,
        communication_seconds: window.communication_seconds,
        flow_bytes: window.flow_bytes,
        bytes: window.bytes,
        slot_offset_seconds: window.slot_offset_seconds,
    })
}

fn decode_host(report: proto::HostQueuePairs) -> Result<HostQueuePairs, InvalidReport> {
    check_name("host", &report.host)?;
    check_limit("groups", report.groups.len(), MAX_GROUPS)?;
    let groups: Result<Vec<_>, _> = report.groups.into_iter().map(decode_group).collect();
    Ok(HostQueuePairs { host: report.host, groups: groups? })
}

fn decode_status(status: proto::HostStatus) -> Result<HostStatus, InvalidReport> {
    check_name("host", &status.host)?;
    let proto::HostStatus { host, unreported_jobs, max_jobs, levels } = status;
    let levels = levels.map(|levels| LevelStatus {
        revision: levels.revision,
        problem: printable_text(&levels.problem),
    });
    Ok(HostStatus { host, unreported_jobs, max_jobs, levels })
}

/// The beginning of a text without characters that a terminal or a page could take for more.
fn printable_text(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c.is_alphanumeric() || c == ' ';
    text.chars().take(MAX_TEXT).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

fn decode_group(group: proto::QueuePairGroup) -> Result<QueuePairGroup, InvalidReport> {
    check_limit("addresses", group.addresses.len(), MAX_ADDRESSES)?;
    check_limit("queue_pairs", group.queue_pairs.len(), MAX_FLOWS)?;
    if !group.job.is_empty() {
        check_name("job", &group.job)?;
    }
    let addresses = group.addresses.into_iter();
    let addresses: Result<Vec<IpAddr>, _> = addresses.map(decode_address).collect();
    let queue_pairs: Result<Vec<_>, _> = group.queue_pairs.iter().map(decode_queue_pair).collect();
    Ok(QueuePairGroup {
        addresses: addresses?,
        job: Some(group.job).filter(|job| !job.is_empty()).map(JobId::from),
        queue_pairs: queue_pairs?,
    })
}

fn decode_address(text: String) -> Result<IpAddr, InvalidReport> {
    check_limit("addresses", text.len(), MAX_TEXT)?;
    text.parse().map_err(|_| InvalidReport::InvalidAddress(text))
}

fn decode_queue_pair(pair: &proto::QueuePair) -> Result<ReportedQueuePair, InvalidReport> {
    let numbers = [pair.local_number, pair.remote_number];
    if let Some(number) = numbers.into_iter().find(|number| *number > MAX_QUEUE_PAIR) {
        return Err(InvalidReport::InvalidQueuePair(number));
    }
    Ok(ReportedQueuePair {
        local: pair.local_number,
        remote: pair.remote_number,
        udp_src_port: pair.udp_src_port.map(decode_port).transpose()?,
    })
}

/// A name is short, and has no character that a terminal or a page could take for more than a
/// character: no control characters, line ends, or marks that change the direction of writing.
fn check_name(field: &'static str, name: &str) -> Result<(), InvalidReport> {
    check_limit(field, name.len(), MAX_TEXT)?;
    let is_allowed = |c: char| c.is_alphanumeric() || NAME_MARKS.contains(c);
    let is_name = !name.trim().is_empty() && name.chars().all(is_allowed);
    is_name.then_some(()).ok_or(InvalidReport::InvalidName(field))
}

fn check_limit(field: &'static str, found: usize, limit: usize) -> Result<(), InvalidReport> {
    let fits = found <= limit;
    fits.then_some(()).ok_or(InvalidReport::TooLong { field, limit })
}
