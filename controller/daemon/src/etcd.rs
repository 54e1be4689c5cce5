//! Several controllers led through etcd: who leads, and what all of them know.
//!
//! `Member` is one controller's part in it, a task beside the [`runtime`](crate::runtime). It
//! keeps a lease alive, stands for election whenever nobody leads, and follows what the leader
//! stored: `registry` is what it needs of etcd and `calls` the API that etcd has, `tenure` what may
//! be believed of a lease and for how long, `keys` where everything is stored. The decision: the
//! revision at which a leader was elected is its term, so terms are used once and rise; the same
//! revision guards everything a leader stores. A controller that believes in a term that has passed
//! can neither write to a switch nor to the store.

mod client;
mod cluster_store;
mod keys;
mod lease_state;
mod login;
mod member;

pub use client::{EtcdClient, EtcdError};
pub use cluster_store::{
    ClusterNetwork, ClusterSnapshot, ClusterStore, GrantedLease, StoreChanges,
};
pub use lease_state::ElectedLeader;
pub(crate) use member::{ClusterMember, ClusterUpdate, MemberHandle, StoreClient};
