//! What a controller receives from the one that leads, where no etcd has the state of all.
//!
//! A follower opens a stream to the leader (`leader_follower`); the leader answers with everything
//! that it knows and then with what changes. The follower confirms each update
//! ([`FollowerTable`]). The decision: updates are the documents of the [`store`](crate::store), by
//! names, so an update that comes twice changes nothing, and a stream that breaks is simply opened
//! again.

mod follower_table;
mod grpc_stream;
mod leader_follower;
mod sent_updates;

use planner::JobsDocument;
use serde::{Deserialize, Serialize};
use topology::spec::FabricDocument;

pub use self::follower_table::{FollowerStatus, FollowerTable};
pub(crate) use self::grpc_stream::{message_from_update, report_from_message};
pub use self::leader_follower::{FollowedLeader, LeaderNetwork, StateUpdates};
pub(crate) use self::leader_follower::{FollowerHandle, LeaderFollower};
pub(crate) use self::sent_updates::SentUpdates;
use crate::policy_history::PolicyRevision;
use crate::store::StoredPlan;

/// Documents of the leader's state, of which those that have not changed are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicatedDocuments {
    /// Policy revisions, ascending; the last is in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_revisions: Vec<PolicyRevision>,
    /// The fabric that discovery found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricDocument>,
    /// Jobs of documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobsDocument>,
    /// Reported jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_jobs: Option<JobsDocument>,
    /// The plan in force, with what tables follow from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<StoredPlan>,
}

/// One message of the leader.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateUpdate {
    /// Its number on this stream, from 1.
    pub number: u64,
    /// Whether the sender leads. If not, there is only the term of its state.
    pub leads: bool,
    /// The number of the sender.
    pub leader: u32,
    /// The term in which it leads.
    pub term: u64,
    /// The highest generation that it may use before the next update.
    pub generation: u64,
    /// Whether it leaves the lead to its followers.
    pub is_leaving: bool,
    /// What has changed.
    pub documents: ReplicatedDocuments,
}

/// What a follower says of itself, again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerReport {
    /// The number of the follower.
    pub controller: u32,
    /// The number of the last update that it has applied; 0 before the first.
    pub applied: u64,
    /// Whether it goes on following: not if most switches have no primary, as it may then lead.
    pub follows: bool,
}

/// A stream to the leader ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ReplicationError {
    /// The address is no `host:port`.
    #[error("`{0}` is no address of a controller")]
    Address(String),
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] tonic::transport::Error),
    /// It does not lead.
    #[error("it does not lead")]
    NoLeader,
    /// It refuses the token.
    #[error("{0}")]
    Refused(String),
    /// The stream ended.
    #[error("the stream ended")]
    Ended,
    /// An update cannot be understood.
    #[error("cannot understand an update")]
    Update(#[source] serde_json::Error),
}
