//! Reports as they come over gRPC, made into [`TelemetryReport`]s.
//!
//! The decision: an announcement is a job of a jobs document, so names and numbers are checked
//! where those of documents are, and only what a message can say beyond that is checked here.

use api::telemetry as proto;
use planner::{CollectiveDocument, CollectiveKind, FlowDocument, JobDocument};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::{ReportWindow, TelemetryReport};

/// Iterations in one window; more are more than a window needs.
const MAX_STARTS: usize = 10_000;

/// Flows of one job; a ring of all hosts of a large fabric has fewer.
const MAX_FLOWS: usize = 65_536;

/// A name, or another text of an announcement, in bytes.
const MAX_TEXT: usize = 256;

/// A report that says nothing that can be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// No announcement, window or end.
    #[error("a report without anything in it")]
    Empty,
    /// Text or a list that is too long.
    #[error("{field}: more than {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// What would be right.
        limit: usize,
    },
    /// A name that cannot be told from a pattern.
    #[error("job: a name has no `*` and no `?`, and is not empty")]
    InvalidName,
    /// A port outside of its range.
    #[error("udp_src_port: {0} is no port")]
    InvalidPort(u32),
    /// A collective that does not exist.
    #[error("collective.kind: {0}")]
    UnknownCollective(String),
}

impl TryFrom<proto::Report> for TelemetryReport {
    type Error = InvalidReport;

    fn try_from(report: proto::Report) -> Result<Self, InvalidReport> {
        use proto::report::Said;
        match report.said.ok_or(InvalidReport::Empty)? {
            Said::Announcement(said) => {
                Ok(Self::Announcement(Box::new(decode_announcement(said)?)))
            }
            Said::Window(said) => Ok(Self::Window(decode_window(said)?)),
            Said::End(said) => Ok(Self::End(said.job)),
        }
    }
}

fn decode_announcement(said: proto::Announcement) -> Result<JobDocument, InvalidReport> {
    if said.job.is_empty() || said.job.contains(['*', '?']) {
        return Err(InvalidReport::InvalidName);
    }
    let texts = [Some(&said.job), said.tenant.as_ref(), said.model.as_ref()];
    let longest = texts.into_iter().flatten().map(String::len).max();
    check_limit("text", longest.unwrap_or(0), MAX_TEXT)?;
    check_limit("flows", said.flows.len(), MAX_FLOWS)?;
    check_limit("gpus", said.gpus.len(), MAX_FLOWS)?;
    let collective = said.collective.as_ref().map(decode_collective).transpose()?;
    let flows: Result<Vec<_>, _> = said.flows.into_iter().map(decode_flow).collect();
    Ok(JobDocument {
        id: said.job,
        tenant: said.tenant,
        model: said.model,
        gpus: said.gpus,
        flop_per_iteration: said.flop_per_iteration,
        compute_seconds: said.compute_seconds,
        overlap_from: said.overlap_from,
        recent_slowdown: None,
        profile: said.profile,
        flows: Some(flows?).filter(|_| collective.is_none()),
        collective,
    })
}

fn decode_flow(said: proto::Flow) -> Result<FlowDocument, InvalidReport> {
    let port = |port| u16::try_from(port).map_err(|_| InvalidReport::InvalidPort(port));
    Ok(FlowDocument {
        src: said.src,
        dst: said.dst,
        src_nic: said.src_nic,
        dst_nic: said.dst_nic,
        bytes: said.bytes,
        udp_src_port: said.udp_src_port.map(port).transpose()?,
    })
}

fn decode_collective(said: &proto::Collective) -> Result<CollectiveDocument, InvalidReport> {
    let kind = said.kind.as_str().into_deserializer();
    let kind = CollectiveKind::deserialize(kind);
    let wrong = |error: Error| InvalidReport::UnknownCollective(error.to_string());
    Ok(CollectiveDocument {
        kind: kind.map_err(wrong)?,
        bytes: Some(said.bytes).filter(|bytes| *bytes > 0.0),
        channels: said.channels.unwrap_or(1),
    })
}

fn decode_window(said: proto::Window) -> Result<ReportWindow, InvalidReport> {
    check_limit("iteration_starts", said.iteration_starts.len(), MAX_STARTS)?;
    check_limit("flow_bytes", said.flow_bytes.len(), MAX_FLOWS)?;
    Ok(ReportWindow {
        job: said.job,
        seconds: said.seconds,
        iteration_starts: said.iteration_starts,
        flop: said.flop,
        compute_seconds: said.compute_seconds,
        communication_seconds: said.communication_seconds,
        flow_bytes: said.flow_bytes,
        bytes: said.bytes,
    })
}

fn check_limit(field: &'static str, found: usize, limit: usize) -> Result<(), InvalidReport> {
    let fits = found <= limit;
    fits.then_some(()).ok_or(InvalidReport::TooLong { field, limit })
}
