//! Digests of everything that the decisions on a region are computed from, so that a region which
//! was compared with its alternatives for these very inputs is not compared again.
//!
//! A comparison from the plan in force may find what one from scratch did not: other paths to
//! improve and other levels to climb from. Planning again from a plan's own result must change
//! nothing all the same, and an event must cost only the regions that it touches.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use topology::Fabric;

use crate::input::{Job, MeasuredSlowdown};

/// Digests of the regions whose decisions were compared with their alternatives; no decision, and
/// so equal to any other.
#[derive(Clone, Debug, Default)]
pub struct ComparedInputs(pub BTreeSet<u64>);

impl PartialEq for ComparedInputs {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The digest of a fabric in its present state; every link contributes, so it is kept with the
/// path tables.
pub(crate) fn digest_fabric(fabric: &Fabric) -> u64 {
    let mut hasher = DefaultHasher::new();
    fabric.name().hash(&mut hasher);
    for id in fabric.link_ids() {
        let link = fabric.link(id);
        (link.from, link.to, fabric.is_usable(id)).hash(&mut hasher);
        link.bandwidth.bytes_per_second().to_bits().hash(&mut hasher);
        link.scheduler.serves_levels().hash(&mut hasher);
    }
    for link in fabric.intra_host_link_ids() {
        fabric.link_bandwidth(link).bytes_per_second().to_bits().hash(&mut hasher);
        fabric.link_scheduler(link).serves_levels().hash(&mut hasher);
    }
    hasher.finish()
}

/// The digest of a job; kept with its routes, since it is needed at every event.
pub(crate) fn digest_job(job: &Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&job.id, &job.tenant, &job.gpus, job.can_wait).hash(&mut hasher);
    let MeasuredSlowdown { over_alone, over_forecast } = job.measured;
    let profile = [job.flop_per_iteration, job.compute_seconds, job.overlap_from];
    let numbers = profile.into_iter().chain([over_alone, over_forecast]);
    numbers.for_each(|number| number.to_bits().hash(&mut hasher));
    for (number, flow) in job.flows.iter().enumerate() {
        (flow.src, flow.dst, flow.bytes.to_bits(), flow.udp_src_port, flow.gpus).hash(&mut hasher);
        // Of a job without it, the digest is that of plans that were stored before there was any.
        if let Some(start) = flow.overlap_from {
            (number, start.to_bits()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The digest of a list.
pub(crate) fn digest_list<T: Hash>(of: &[T]) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The finalizer of SplitMix64.
pub(crate) fn mix_bits(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
