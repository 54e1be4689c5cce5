//! Placement: which GPUs a job gets, the floor above communication scheduling.

use std::collections::BTreeMap;

use topology::HostId;

/// GPUs of one job on each of its hosts.
pub type Gpus = BTreeMap<HostId, u32>;
