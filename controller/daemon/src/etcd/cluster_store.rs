//! What a member needs of etcd: the seam between it and its calls.
//!
//! [`EtcdClient`](super::calls::EtcdClient) is the etcd that there is; the fault campaign brings a
//! model of one. The decision: as between sessions and switches, the seam speaks the controller's
//! own types, and every call is a future that may be dropped at any await.

use std::future::Future;
use std::time::Duration;

use futures::stream::BoxStream;

use super::EtcdError;
use super::lease_state::ElectedLeader;
use super::plan_pieces::PlanManifest;
use crate::config::EtcdConfig;
use crate::southbound::connection::SwitchNetwork;
use crate::store::{StoreRecord, StoredState};

/// Tells each time that something under the keys has changed; ends with an error.
pub type StoreChanges = BoxStream<'static, Result<(), EtcdError>>;

/// Opens connections to the servers of the cluster store, beside those to switches.
pub trait ClusterNetwork: SwitchNetwork + Clone {
    /// One connection to one server.
    type Store: ClusterStore;

    /// Connects to a server of an etcd within its deadline.
    ///
    /// # Errors
    /// The address is invalid, or nobody answers there in time.
    fn connect_store(
        &self,
        server: &str,
        etcd: &EtcdConfig,
    ) -> impl Future<Output = Result<Self::Store, EtcdError>> + Send;
}

/// One connection to one etcd server. An error of any call ends its use.
pub trait ClusterStore: Clone + Send + Sync + 'static {
    /// A new lease; etcd may make it longer than asked.
    fn grant_lease(
        &self,
        lasts: Duration,
    ) -> impl Future<Output = Result<GrantedLease, EtcdError>> + Send;

    /// Keeps a lease alive; for how long from now on, nothing if it has ended.
    fn renew_lease(
        &self,
        lease: i64,
    ) -> impl Future<Output = Result<Option<Duration>, EtcdError>> + Send;

    /// Ends a lease, and the leadership that hangs on it.
    fn revoke_lease(&self, lease: i64) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Says that this controller is there; the revision at which it did, which is nobody else's.
    fn register_controller(
        &self,
        controller: u32,
        lease: i64,
    ) -> impl Future<Output = Result<u64, EtcdError>> + Send;

    /// Says whether most switches answer this controller, as long as the lease lasts.
    fn publish_reach(
        &self,
        controller: u32,
        lease: i64,
        reaches_most: bool,
    ) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Stands for election, which does nothing if somebody leads; reading tells who won. `address`
    /// is where operators reach this controller.
    fn stand_for_election(
        &self,
        controller: u32,
        address: Option<&str>,
        lease: i64,
    ) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Stores a record, if the leader elected at revision `elected` still leads.
    fn store_record(
        &self,
        record: &StoreRecord,
        elected: u64,
    ) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Stores a piece of a plan, if the leader that its manifest names still leads.
    fn store_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
        piece: &[u8],
    ) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Has this plan, whose pieces are stored, replace the one before, if the leader that its
    /// manifest names still leads; deletes all other pieces.
    fn publish_plan(
        &self,
        plan: &PlanManifest,
    ) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// A piece of a plan; nothing if a later plan has replaced it.
    fn read_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, EtcdError>> + Send;

    /// Everything that matters, as it is now; of the plan only its manifest.
    fn read_snapshot(&self) -> impl Future<Output = Result<ClusterSnapshot, EtcdError>> + Send;

    /// Watches all keys but those of pieces for changes after `revision`.
    fn watch_changes(
        &self,
        revision: u64,
    ) -> impl Future<Output = Result<StoreChanges, EtcdError>> + Send;
}

/// A lease as etcd granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedLease {
    /// Its id.
    pub lease: i64,
    /// How long it lasts.
    pub ttl: Duration,
}

/// All of one revision.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    /// The revision.
    pub revision: u64,
    /// Who leads, if anybody does.
    pub leader: Option<ElectedLeader>,
    /// Where operators reach it, if it has said so.
    pub leader_address: Option<String>,
    /// The controllers that most switches answer, as they say.
    pub reaching: Vec<u32>,
    /// What all controllers share.
    pub stored: StoredState,
    /// The plan that the latest leader had in force.
    pub plan: Option<PlanManifest>,
}
