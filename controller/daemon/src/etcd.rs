//! Leader election and shared state of several controllers through etcd.
//!
//! `ClusterMember` is one controller's part in it, a task beside the [`runtime`](crate::runtime).
//! It renews a lease, stands for election whenever there is no leader, and follows what the leader
//! stores: jobs, policy and the plan, so that a successor continues from it. `cluster_store` has the
//! operations it needs of etcd and `client` makes them, `lease_state` decides how long a lease may be
//! relied on, `keys` has the keys of the store, `plan_pieces` cuts the plan for them. The decision: the revision at which a leader was elected is its term, so terms are unique and rise;
//! the same revision guards everything that a leader stores. A controller that assumes a past term
//! can neither write to a switch nor to the store.

mod client;
mod cluster_store;
mod keys;
mod lease_state;
mod login;
mod member;
mod plan_pieces;
mod switch_reach;

pub use client::{EtcdClient, EtcdError};
pub use cluster_store::{
    ClusterNetwork, ClusterSnapshot, ClusterStore, GrantedLease, StoreChanges,
};
pub use lease_state::{ElectedLeader, describe_term};
pub(crate) use member::{ClusterMember, ClusterUpdate, MemberHandle, MemberIdentity, StoreClient};
pub use plan_pieces::PlanManifest;
