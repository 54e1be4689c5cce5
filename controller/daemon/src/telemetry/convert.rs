//! Reports as they come over gRPC, made into [`Report`]s.
//!
//! The decision: an announcement is a job of a jobs document, so names and numbers are checked
//! where those of documents are, and only what a message can say beyond that is checked here.

use api::telemetry as proto;
use planner::{CollectiveDocument, CollectiveKind, FlowDocument, JobDocument};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::{Report, Window};

/// Iterations in one window; more are more than a window needs.
const MAX_STARTS: usize = 10_000;

/// Flows of one job; a ring of all hosts of a large fabric has fewer.
const MAX_FLOWS: usize = 65_536;

/// A name, or another text of an announcement, in bytes.
const MAX_TEXT: usize = 256;

/// A report that says nothing that can be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
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
    Name,
    /// A port outside of its range.
    #[error("udp_src_port: {0} is no port")]
    Port(u32),
    /// A collective that does not exist.
    #[error("collective.kind: {0}")]
    Collective(String),
}

impl TryFrom<proto::Report> for Report {
    type Error = Unreadable;

    fn try_from(report: proto::Report) -> Result<Self, Unreadable> {
        use proto::report::Said;
        match report.said.ok_or(Unreadable::Empty)? {
            Said::Announcement(said) => Ok(Self::Announcement(Box::new(announced(said)?))),
            Said::Window(said) => Ok(Self::Window(window(said)?)),
            Said::End(said) => Ok(Self::End(said.job)),
        }
    }
}

fn announced(said: proto::Announcement) -> Result<JobDocument, Unreadable> {
    if said.job.is_empty() || said.job.contains(['*', '?']) {
        return Err(Unreadable::Name);
    }
    let texts = [Some(&said.job), said.tenant.as_ref(), said.model.as_ref()];
    let longest = texts.into_iter().flatten().map(String::len).max();
    within("text", longest.unwrap_or(0), MAX_TEXT)?;
    within("flows", said.flows.len(), MAX_FLOWS)?;
    within("gpus", said.gpus.len(), MAX_FLOWS)?;
    let collective = said.collective.as_ref().map(collective).transpose()?;
    let flows: Result<Vec<_>, _> = said.flows.into_iter().map(flow).collect();
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

fn flow(said: proto::Flow) -> Result<FlowDocument, Unreadable> {
    let port = |port| u16::try_from(port).map_err(|_| Unreadable::Port(port));
    Ok(FlowDocument {
        src: said.src,
        dst: said.dst,
        src_nic: said.src_nic,
        dst_nic: said.dst_nic,
        bytes: said.bytes,
        udp_src_port: said.udp_src_port.map(port).transpose()?,
    })
}

fn collective(said: &proto::Collective) -> Result<CollectiveDocument, Unreadable> {
    let kind = said.kind.as_str().into_deserializer();
    let kind = CollectiveKind::deserialize(kind);
    let wrong = |error: Error| Unreadable::Collective(error.to_string());
    Ok(CollectiveDocument {
        kind: kind.map_err(wrong)?,
        bytes: Some(said.bytes).filter(|bytes| *bytes > 0.0),
        channels: said.channels.unwrap_or(1),
    })
}

fn window(said: proto::Window) -> Result<Window, Unreadable> {
    within("iteration_starts", said.iteration_starts.len(), MAX_STARTS)?;
    within("flow_bytes", said.flow_bytes.len(), MAX_FLOWS)?;
    Ok(Window {
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

fn within(field: &'static str, found: usize, limit: usize) -> Result<(), Unreadable> {
    let fits = found <= limit;
    fits.then_some(())
        .ok_or(Unreadable::TooLong { field, limit })
}
