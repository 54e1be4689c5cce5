//! Links that deliver less than they should although packets wait for them.
//!
//! Pure: what switches count of their queues ([`BackloggedRates`](crate::gnmi::BackloggedRates)),
//! and the plan that says which jobs it concerns. The decision: a link is named by its own queue
//! alone. Iterations of jobs say that something is slow and not what, as the links of a flow are as
//! slow as the slowest of them; they are given beside the link.

use topology::{Fabric, Finding, LinkId};

use super::controller_view::{ControllerView, JobRow, job_names};
use crate::gnmi::FabricCounters;
use crate::state::PlanRollout;

/// A link that delivers a smaller share of its capacity is slow.
const SLOW: f64 = 0.8;

/// Times between two readings that fit into an iteration, at least: in a longer one, a burst ends
/// and the next begins, and packets wait at both ends of it.
const READINGS_PER_ITERATION: f64 = 5.0;

/// A link that delivers less than its capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowLink {
    /// The link.
    pub link: LinkId,
    /// What it delivers of its capacity.
    pub delivered: f64,
    /// Jobs on it, by position in the plan.
    pub jobs: Vec<usize>,
}

impl ControllerView {
    /// Links that deliver less than their capacity, with the jobs that iterate longer for it.
    pub(super) fn slow_link_findings(&self) -> Vec<Finding> {
        let slow = find_slow_links(&self.rollout, &self.port_counters);
        if slow.is_empty() {
            return Vec::new();
        }
        let fabric = &self.rollout.fabric;
        let rows = self.job_rows();
        let findings = slow.iter().map(|slow| {
            let jobs = self.describe_jobs(slow, &rows);
            let gbps = fabric.link(slow.link).bandwidth.gbps();
            let text = format!(
                "delivers {:.0} of {gbps:.0} Gbit/s although packets wait; {jobs}; check its \
                 lanes and optics, or drain its cable (crux drain)",
                slow.delivered * gbps
            );
            Finding::warning(fabric.link_name(slow.link), text)
        });
        findings.collect()
    }

    /// The jobs that iterate longer, or all on the link while none is known to.
    fn describe_jobs(&self, slow: &SlowLink, rows: &[JobRow]) -> String {
        let names = job_names(&self.rollout, &slow.jobs);
        let on_it = rows.iter().filter(|row| names.contains(&row.id));
        let longer: Vec<String> = on_it.filter_map(JobRow::longer_than_forecast).collect();
        if longer.is_empty() {
            format!("jobs on it: {}", names.join(", "))
        } else {
            longer.join(", ")
        }
    }
}

/// The slow ones of the links that switches send on.
pub fn find_slow_links(rollout: &PlanRollout, counters: &FabricCounters) -> Vec<SlowLink> {
    let fabric = &rollout.fabric;
    let switches = fabric.switch_ids().filter_map(|id| Some((id, counters.get(&id)?)));
    let ports = switches.flat_map(|(switch, counted)| {
        let ports = fabric.switch(switch).ports.iter();
        ports.filter_map(|(port, link)| Some((*link, counted.backlogged.get(port)?)))
    });
    let mut slow: Vec<SlowLink> = ports
        .filter_map(|(link, rates)| {
            let rate = rates.delivered_rate()?;
            let delivered = rate.bytes_per_second / capacity(fabric, link);
            let jobs = jobs_on(rollout, link);
            let shortest = shortest_iteration(rollout, &jobs)?;
            let is_read_often = rate.longest_seconds * READINGS_PER_ITERATION <= shortest;
            (delivered <= SLOW && is_read_often).then_some(SlowLink { link, delivered, jobs })
        })
        .collect();
    slow.sort_by_key(|slow| slow.link);
    slow
}

fn capacity(fabric: &Fabric, link: LinkId) -> f64 {
    fabric.link(link).bandwidth.bytes_per_second()
}

/// Jobs of flows that are planned over the link, ascending.
fn jobs_on(rollout: &PlanRollout, link: LinkId) -> Vec<usize> {
    let flows = rollout.plan.flows.iter();
    let mut jobs: Vec<usize> =
        flows.filter(|flow| flow.links.contains(&link)).map(|flow| flow.job).collect();
    jobs.dedup();
    jobs
}

/// Seconds of the shortest iteration of any of the jobs, alone; none without jobs.
fn shortest_iteration(rollout: &PlanRollout, jobs: &[usize]) -> Option<f64> {
    let rationales = jobs.iter().filter_map(|job| rollout.report.rationales.get(*job));
    rationales.map(|rationale| rationale.iteration_seconds).reduce(f64::min)
}
