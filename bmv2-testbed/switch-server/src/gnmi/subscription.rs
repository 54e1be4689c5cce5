//! What a subscriber wants, checked once: paths, and when their values are to be sent.

use std::time::Duration;

use p4runtime_proto::gnmi as proto;
use proto::subscription_list::Mode;
use tonic::Status;

use super::data_tree::{GnmiLeaf, LeafKind};
use super::path::{covers, display_path, join_paths};

/// Paths of one request.
const PATH_LIMIT: usize = 256;
/// The shortest interval between samples, and between heartbeats.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The interval of who asks for none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of counters whose sending is left to the switch.
const OWN_INTERVAL: Duration = Duration::from_secs(10);

/// A checked list of subscriptions.
#[derive(Debug)]
pub(super) struct SubscribedPaths {
    pub(super) prefix: Option<proto::Path>,
    pub(super) mode: Mode,
    pub(super) encoding: proto::Encoding,
    /// Whether the initial values are not sent.
    pub(super) updates_only: bool,
    pub(super) paths: Vec<SubscribedPath>,
}

/// A path, and when its values are sent. Only STREAM subscriptions look at the latter.
#[derive(Clone, Debug)]
pub(super) struct SubscribedPath {
    steps: Vec<proto::PathElem>,
    pub(super) trigger: UpdateTrigger,
    /// The only kind of leaf that is meant; both without it.
    kind: Option<LeafKind>,
}

/// When values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateTrigger {
    /// When they change, and all of them after so long.
    OnChange { heartbeat: Option<Duration> },
    /// At intervals.
    Sample { interval: Duration, suppress_redundant: bool },
}

impl SubscribedPaths {
    /// Checks a list against what there is.
    ///
    /// # Errors
    /// INVALID_ARGUMENT or UNIMPLEMENTED for what this server does not send.
    pub(super) fn check(
        list: proto::SubscriptionList,
        leaves: &[GnmiLeaf],
        dialect: GnmiDialect,
    ) -> Result<Self, Status> {
        if list.subscription.is_empty() || list.subscription.len() > PATH_LIMIT {
            let text = format!("1 to {PATH_LIMIT} paths, not {}", list.subscription.len());
            return Err(Status::invalid_argument(text));
        }
        let mode = Mode::try_from(list.mode)
            .map_err(|_| Status::invalid_argument("the mode of the list is unknown"))?;
        let mut paths = Vec::new();
        for subscription in &list.subscription {
            let steps = join_paths(list.prefix.as_ref(), subscription.path.as_ref())?;
            if mode == Mode::Stream {
                paths.extend(stream_paths(subscription, steps, leaves, dialect)?);
            } else {
                let trigger = UpdateTrigger::OnChange { heartbeat: None };
                paths.push(SubscribedPath { steps, trigger, kind: None });
            }
        }
        let encoding = check_encoding(list.encoding, dialect)?;
        Ok(Self { prefix: list.prefix, mode, encoding, updates_only: list.updates_only, paths })
    }
}

impl SubscribedPath {
    /// Whether a leaf is to be sent.
    pub(super) fn selects(&self, leaf: &GnmiLeaf) -> bool {
        self.kind.is_none_or(|kind| kind == leaf.kind) && covers(&self.steps, &leaf.path)
    }
}

/// How requests are read where gNMI and Stratum differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GnmiDialect {
    Specification,
    Stratum,
}

/// The encoding of the answers. A request that names none has the number of JSON; Stratum answers
/// it with typed values.
///
/// # Errors
/// INVALID_ARGUMENT for one that there is not.
pub(super) fn check_encoding(number: i32, dialect: GnmiDialect) -> Result<proto::Encoding, Status> {
    use proto::Encoding::{Json, JsonIetf, Proto};
    match proto::Encoding::try_from(number) {
        Ok(Json) if dialect == GnmiDialect::Stratum => Ok(Proto),
        Ok(encoding) if [Json, JsonIetf, Proto].contains(&encoding) => Ok(encoding),
        _ => Err(Status::invalid_argument("the encodings are JSON, JSON_IETF and PROTO")),
    }
}

fn stream_paths(
    subscription: &proto::Subscription,
    steps: Vec<proto::PathElem>,
    leaves: &[GnmiLeaf],
    dialect: GnmiDialect,
) -> Result<Vec<SubscribedPath>, Status> {
    let heartbeat = checked_interval(subscription.heartbeat_interval)?;
    let on_change = UpdateTrigger::OnChange { heartbeat };
    match proto::SubscriptionMode::try_from(subscription.mode) {
        Ok(proto::SubscriptionMode::OnChange) => {
            let path = SubscribedPath { steps, trigger: on_change, kind: None };
            let is_counter = |leaf: &GnmiLeaf| leaf.kind == LeafKind::Counter && path.selects(leaf);
            if leaves.iter().any(is_counter) {
                let text = format!(
                    "counters change all the time: sample {}, or name its state alone",
                    display_path(&path.steps)
                );
                return Err(Status::invalid_argument(text));
            }
            Ok(vec![path])
        }
        Ok(proto::SubscriptionMode::Sample) => {
            let interval = sample_interval(subscription.sample_interval, dialect)?;
            let interval = interval.unwrap_or(DEFAULT_INTERVAL);
            let suppress_redundant = subscription.suppress_redundant;
            let trigger = UpdateTrigger::Sample { interval, suppress_redundant };
            Ok(vec![SubscribedPath { steps, trigger, kind: None }])
        }
        Ok(proto::SubscriptionMode::TargetDefined) => {
            let sample =
                UpdateTrigger::Sample { interval: OWN_INTERVAL, suppress_redundant: false };
            let of_kind =
                |kind, trigger| SubscribedPath { steps: steps.clone(), trigger, kind: Some(kind) };
            Ok(vec![of_kind(LeafKind::State, on_change), of_kind(LeafKind::Counter, sample)])
        }
        Err(_) => Err(Status::invalid_argument("the mode of a subscription is unknown")),
    }
}

/// An interval between samples. Stratum counts in milliseconds where gNMI does in nanoseconds; none
/// of its clients wants more than a day, nor one of gNMI less than 100 ms.
fn sample_interval(number: u64, dialect: GnmiDialect) -> Result<Option<Duration>, Status> {
    let millis = Duration::from_millis(number);
    match dialect {
        GnmiDialect::Stratum if Duration::from_nanos(number) < SHORTEST_INTERVAL && number > 0 => {
            Ok(Some(millis.max(SHORTEST_INTERVAL)))
        }
        _ => checked_interval(number),
    }
}

/// An interval in nanoseconds, where 0 stands for none.
fn checked_interval(nanos: u64) -> Result<Option<Duration>, Status> {
    let interval = Duration::from_nanos(nanos);
    if nanos > 0 && interval < SHORTEST_INTERVAL {
        let text = format!("{interval:?} is shorter than the shortest interval of 100 ms");
        return Err(Status::invalid_argument(text));
    }
    Ok((nanos > 0).then_some(interval))
}
