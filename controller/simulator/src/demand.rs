//! The demand of one iteration of a job on the links of its paths: `M_{j,e} / B_e` (Crux §3.1).

use planner::{Job, PlanInput};
use topology::{Fabric, LinkId};

/// Seconds that one iteration of a job takes each link that it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkDemand {
    /// Links that it sends bytes over with the seconds each takes, ascending by link.
    pub links: Vec<(LinkId, f64)>,
}

impl LinkDemand {
    /// The demand of `job` on `paths`, one for each of its flows.
    pub fn new(fabric: &Fabric, job: &Job, paths: &[Vec<LinkId>]) -> Self {
        let flows = job.flows.iter().zip(paths);
        let mut uses: Vec<(LinkId, f64)> = flows
            .filter(|(flow, _)| flow.bytes > 0.0)
            .flat_map(|(flow, path)| {
                let links = flow.crossed_links(fabric, path).into_owned();
                links.into_iter().map(|link| (link, flow.bytes))
            })
            .collect();
        uses.sort_by_key(|(link, _)| *link);
        let mut links: Vec<(LinkId, f64)> = Vec::new();
        for (link, bytes) in uses {
            let seconds = bytes / fabric.link_bandwidth(link).bytes_per_second();
            match links.last_mut() {
                Some((last, sum)) if *last == link => *sum += seconds,
                _ => links.push((link, seconds)),
            }
        }
        Self { links }
    }

    /// Demands of all jobs of `input`; `paths` by job, then by flow.
    pub fn for_jobs(input: &PlanInput, paths: &[Vec<Vec<LinkId>>]) -> Vec<Self> {
        let jobs = input.jobs.iter().zip(paths);
        jobs.map(|(job, paths)| Self::new(&input.fabric, job, paths)).collect()
    }

    /// `t_j`: seconds at the tightest link; 0 for a job that sends nothing.
    pub fn bottleneck_seconds(&self) -> f64 {
        let seconds = self.links.iter().map(|(_, seconds)| *seconds);
        seconds.fold(0.0, f64::max)
    }
}
