//! `job_qos`: the level of every job whose traffic enters the fabric at a leaf. Re-levelling a job
//! is one write on each of those leaves.

use p4::entry::TableEntry;
use p4::fabric::{self, PriorityLevel};

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let present = site.entering_jobs();
    let rows = site.shared.plan.jobs.iter().filter_map(|job| {
        let number = present.get(&job.number.try_into().ok()?)?;
        // Plans have at most 8 levels, as many as `PriorityLevel` has.
        Some(fabric::job_qos(*number, PriorityLevel::new(job.level.into()).ok()?))
    });
    rows.collect()
}
