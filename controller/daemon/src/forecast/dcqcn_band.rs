//! How much longer than in the fluid model an iteration may take where hosts send under DCQCN.
//!
//! Pure. Max-min sharing is there at once; DCQCN finds it. When flows meet at a link,
//! notifications cut them below their share, and steps of `R_AI` lead back. The decision: the fluid
//! model stays as it is, and a forecast says how wrong it may be, by an envelope over what packets
//! measured (docs/queues.md, `crux bench transport`).

use std::collections::{BTreeMap, BTreeSet};

use planner::{Job, JobId, Plan, PlanForecast, PlannedFlow};
use topology::LinkId;

/// No message that was measured took longer than this many times its time in the fluid model more.
const LONGEST_EXCESS: f64 = 6.0;
/// Steps of the timer until cuts have ended and fast recovery is over.
const CUT_STEPS: f64 = 10.0;

/// What decides how fast DCQCN converges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnConvergence {
    /// `T`: between two steps of increase, seconds.
    pub timer_seconds: f64,
    /// `R_AI`, as a share of the rate of the link.
    pub additive_share: f64,
}

impl Default for DcqcnConvergence {
    /// 55 us, and 40 Mb/s of 40 Gb/s (Zhu et al., SIGCOMM 2015).
    fn default() -> Self {
        Self { timer_seconds: 55e-6, additive_share: 1e-3 }
    }
}

/// A message that meets others at a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContendedMessage {
    /// Flows of its level at the link, with its own.
    pub flows: u32,
    /// How often flows of its level or a higher one come while it is sent: once with it, and then
    /// with each iteration of another job.
    pub meetings: f64,
    /// What it takes in the fluid model, seconds.
    pub seconds: f64,
}

impl DcqcnConvergence {
    /// How much longer a message may take than in the fluid model, seconds.
    ///
    /// A flow alone goes from nothing to the rate of its link in `T / R_AI` and misses half of that
    /// time; `n` flows recover together.
    pub fn excess_seconds(self, message: ContendedMessage) -> f64 {
        let recovery = self.timer_seconds / (2.0 * self.additive_share);
        let of_meeting =
            recovery / f64::from(message.flows.max(1)).sqrt() + CUT_STEPS * self.timer_seconds;
        (message.meetings * of_meeting).min(LONGEST_EXCESS * message.seconds)
    }

    /// How much longer an iteration of each job may take than `forecast` says, seconds; jobs whose
    /// flows meet nobody are exact and left out, as are those that complete no iteration.
    pub fn band(self, jobs: &[Job], plan: &Plan, forecast: &PlanForecast) -> BTreeMap<JobId, f64> {
        let messages = contended_messages(jobs, plan, forecast).into_iter();
        let excess = messages.map(|(job, message)| (job, self.excess_seconds(message)));
        excess.filter(|(_, seconds)| *seconds > 0.0).collect()
    }
}

/// What the jobs send in an iteration that meets others.
pub fn contended_messages(
    jobs: &[Job],
    plan: &Plan,
    forecast: &PlanForecast,
) -> BTreeMap<JobId, ContendedMessage> {
    let occupancy = LinkOccupancy::new(plan);
    let found = jobs.iter().filter_map(|job| {
        let seconds = forecast.seconds(&job.id)?;
        let (position, planned) = plan.job(&job.id)?;
        let contention = occupancy.contention_of(plan, position)?;
        let sending = seconds - job.first_start_seconds();
        let sending = sending.max(planned.bottleneck_seconds);
        let rivals = contention.rivals.iter().filter_map(|rival| {
            let iteration = forecast.seconds(&plan.jobs[*rival].id)?;
            Some(sending / iteration)
        });
        let message = ContendedMessage {
            flows: contention.fewest,
            meetings: 1.0 + rivals.sum::<f64>(),
            seconds: sending,
        };
        Some((job.id.clone(), message))
    });
    found.collect()
}

/// The least share of the jobs' GPU time in which they compute, if iterations may take so much
/// longer than forecast; seconds by job.
pub fn least_utilization(
    jobs: &[Job],
    forecast: &PlanForecast,
    longer: &BTreeMap<JobId, f64>,
) -> f64 {
    let gpus: f64 = jobs.iter().map(|job| f64::from(job.gpu_count())).sum();
    let lost = jobs.iter().filter_map(|job| {
        let seconds = forecast.seconds(&job.id)?;
        let longest = seconds + longer.get(&job.id)?;
        let lost = job.compute_seconds * (seconds.recip() - longest.recip());
        Some(f64::from(job.gpu_count()) * lost)
    });
    let lost: f64 = lost.sum();
    if gpus > 0.0 { (forecast.gpu_utilization - lost / gpus).max(0.0) } else { 0.0 }
}

/// Who sends over each link, and at which level.
struct LinkOccupancy<'p> {
    flows: BTreeMap<LinkId, Vec<(&'p PlannedFlow, u8)>>,
}

/// Where a job meets others.
struct LinkContention {
    /// Flows of its level at the link that has fewest of them.
    fewest: u32,
    /// Positions of the other jobs.
    rivals: BTreeSet<usize>,
}

impl<'p> LinkOccupancy<'p> {
    fn new(plan: &'p Plan) -> Self {
        let mut flows: BTreeMap<LinkId, Vec<(&PlannedFlow, u8)>> = BTreeMap::new();
        for flow in &plan.flows {
            let level = plan.jobs[flow.job].level;
            for link in &*flow.links {
                flows.entry(*link).or_default().push((flow, level));
            }
        }
        Self { flows }
    }

    /// Where flows of a job share a link with flows of their level or a higher one.
    fn contention_of(&self, plan: &Plan, job: usize) -> Option<LinkContention> {
        let level = plan.jobs[job].level;
        let mut found = LinkContention { fewest: u32::MAX, rivals: BTreeSet::new() };
        for flow in plan.flows_of(job) {
            for link in &*flow.links {
                let there = self.flows.get(link).into_iter().flatten();
                let above: Vec<_> = there.filter(|(_, other)| *other >= level).collect();
                if above.len() < 2 {
                    continue;
                }
                let alike = above.iter().filter(|(_, other)| *other == level).count();
                found.fewest = found.fewest.min(u32::try_from(alike).unwrap_or(u32::MAX));
                found.rivals.extend(above.iter().map(|(flow, _)| flow.job));
            }
        }
        found.rivals.remove(&job);
        (found.fewest < u32::MAX).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use planner::{JobOverride, JobsDocument, PlanInput, Policy};
    use topology::document::{DocumentFormat, parse_document};
    use topology::spec;

    use super::super::forecast_plan;
    use super::*;

    const PUBLISHED: DcqcnConvergence =
        DcqcnConvergence { timer_seconds: 55e-6, additive_share: 1e-3 };

    fn message(flows: u32, seconds: f64) -> ContendedMessage {
        ContendedMessage { flows, meetings: 1.0, seconds }
    }

    #[test]
    fn more_flows_lose_less_and_short_messages_a_multiple() {
        assert_eq!(PUBLISHED, DcqcnConvergence::default());
        let at = |flows, seconds| PUBLISHED.excess_seconds(message(flows, seconds));
        assert!((at(1, 1.0) - 28.05e-3).abs() < 1e-9);
        assert!((at(4, 1.0) - 14.3e-3).abs() < 1e-9);
        assert!((at(4, 1e-3) - 6e-3).abs() < 1e-9);
        let often = ContendedMessage { meetings: 3.0, ..message(4, 1.0) };
        assert!((PUBLISHED.excess_seconds(often) - 42.9e-3).abs() < 1e-9);
    }

    const FABRIC: &str = "name = 'lab'\n[clos]\nleaves = 2\nspines = 1\nhosts_per_leaf = 2\n\
                          gpus_per_host = 8\nhost_gbps = 100.0\nuplink_gbps = 100.0\n";

    /// The band of jobs of 10 GB each over the one cable, on these levels.
    fn band_of(levels: &[u8]) -> BTreeMap<JobId, f64> {
        let fabric = spec::parse_fabric(FABRIC, DocumentFormat::Toml, "lab.toml").unwrap();
        let jobs: String = (1..=levels.len())
            .map(|host| {
                format!(
                    "[[jobs]]\nid = 'j{host}'\ngpus = {{ h{host} = 8, h{} = 8 }}\n\
                     flop_per_iteration = 1e12\ncompute_seconds = 1.0\noverlap_from = 0.0\n\
                     flows = [{{ src = 'h{host}', dst = 'h{}', bytes = 1e10 }}]\n",
                    host + 2,
                    host + 2
                )
            })
            .collect();
        let jobs: JobsDocument = parse_document(&jobs, DocumentFormat::Toml, "jobs.toml").unwrap();
        let jobs = jobs.resolve_jobs(&fabric, "jobs.toml").unwrap().jobs;
        let fixed =
            |(job, level): (&Job, &u8)| JobOverride::fixing_level(job.id.as_str(), Some(*level));
        let overrides = jobs.iter().zip(levels).map(fixed).collect();
        let input = PlanInput { fabric, jobs };
        let policy = Policy { overrides, ..Policy::default() };
        let (plan, _) = planner::plan(&input, &policy, None);
        let forecast = forecast_plan(&input.fabric, &input.jobs, &plan);
        let band = PUBLISHED.band(&input.jobs, &plan, &forecast);
        let least = least_utilization(&input.jobs, &forecast, &band);
        assert_eq!(least < forecast.gpu_utilization, !band.is_empty(), "{least}");
        band
    }

    #[test]
    fn who_meets_others_on_its_level_or_above_has_a_band() {
        assert_eq!(band_of(&[3]), BTreeMap::new());
        let names = |band: BTreeMap<JobId, f64>| -> Vec<String> {
            band.keys().map(ToString::to_string).collect()
        };
        assert_eq!(names(band_of(&[3, 3])), ["j1", "j2"]);
        assert_eq!(names(band_of(&[3, 5])), ["j1"]);
    }
}
