//! `job_qos`: the level of every job whose traffic enters the fabric at a leaf. Re-levelling a job
//! is one write on each of those leaves.

use p4::entry::TableEntry;
use p4::fabric::{self, Level};

use super::site::Site;

pub(super) fn entries(site: &Site<'_>) -> Vec<TableEntry> {
    let present = site.jobs();
    let jobs = site.all.plan.jobs.iter();
    let row = |job: &planner::PlannedJob| {
        let number = present.get(&job.number.try_into().ok()?)?;
        // Plans have at most 8 levels, as many as `Level` knows.
        Some(fabric::job_qos(*number, Level::new(job.level.into()).ok()?))
    };
    jobs.filter_map(row).collect()
}
