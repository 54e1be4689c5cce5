//! Jobs of Kubernetes: pods are watched, and what they are is recorded in a [`JobSpool`].
//!
//! ```text
//! API server --list, watch--> PodWatcher -> PodSet -> jobs -> JobSpool -> agent
//! ```
//!
//! The watcher lists all pods of a selector, then follows their changes from the version of that
//! list (Kubernetes' page "API concepts"). The decision: after any error it lists again, so a watch
//! that expired (410 Gone), a lost connection and a restored API server have one remedy. While the
//! server is away, recorded jobs stay as they are.

mod api_access;
mod pod;
mod pod_jobs;
mod pod_watcher;

pub use api_access::{ApiAccess, ApiAccessError};
pub use pod::{JOB_LABELS, Pod, PodNaming};
pub use pod_jobs::{PodJobs, PodSet};
pub use pod_watcher::{PodWatchError, PodWatchSettings, PodWatcher};

#[cfg(doc)]
use crate::job_spool::JobSpool;
