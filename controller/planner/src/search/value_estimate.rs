//! A cheap estimate of the value of paths, to choose those that the fluid model evaluates.
//!
//! Jobs in the order of their worth take what links have left, as if their bytes were spread
//! evenly over time: `t_j = max over e of M_{j,e} / (B_e * free_e)`, `T_j` follows, and every link
//! is then busy for `M_{j,e} / (B_e * T_j)` more. It ignores phases, so it only ranks.

use std::collections::BTreeMap;

use topology::LinkId;

use super::search_space::SearchSpace;

/// A link always has this share left, so that a job behind others is slow and not infinitely slow.
const LEAST_FREE: f64 = 0.02;

/// Seconds of link in an iteration, by number of the link.
type LinkUses = Vec<(usize, f64)>;

/// The estimate for a search space, reusable for many combinations.
#[derive(Debug)]
pub(super) struct ValueEstimate {
    /// By descending worth of a second of link.
    jobs: Vec<JobEstimate>,
    /// Share of time left on each link, and seconds of it that the current job wants.
    free_share: Vec<f64>,
    wanted_seconds: Vec<f64>,
}

#[derive(Debug)]
struct JobEstimate {
    job: usize,
    compute_seconds: f64,
    flow_start_seconds: f64,
    worth: f64,
    /// Uses that no choice changes.
    fixed: LinkUses,
    /// Choices with the uses of each option.
    choices: Vec<(usize, Vec<LinkUses>)>,
}

/// Dense numbers of links, in the order of first use.
#[derive(Default)]
struct LinkNumbers(BTreeMap<LinkId, usize>);

impl LinkNumbers {
    fn number_of(&mut self, link: LinkId) -> usize {
        let next = self.0.len();
        *self.0.entry(link).or_insert(next)
    }
}

impl ValueEstimate {
    pub(super) fn new(space: &SearchSpace<'_>) -> Self {
        let mut numbers = LinkNumbers::default();
        let mut jobs: Vec<JobEstimate> =
            (0..space.jobs.len()).map(|job| JobEstimate::new(space, job, &mut numbers)).collect();
        jobs.sort_by(|a, b| b.link_second_value().total_cmp(&a.link_second_value()));
        let links = numbers.0.len();
        Self { jobs, free_share: vec![1.0; links], wanted_seconds: vec![0.0; links] }
    }

    /// Jobs by descending worth of a second of link.
    pub(super) fn ranked_jobs(&self) -> Vec<usize> {
        self.jobs.iter().map(|estimate| estimate.job).collect()
    }

    /// Estimated mean worth of the GPUs that compute.
    pub(super) fn estimate_value(&mut self, options: &[usize]) -> f64 {
        self.free_share.fill(1.0);
        let mut sum = 0.0;
        for job in &self.jobs {
            let mut seconds = 0.0_f64;
            for (link, wanted) in job.link_uses(options) {
                self.wanted_seconds[*link] += wanted;
                let free = self.free_share[*link].max(LEAST_FREE);
                seconds = seconds.max(self.wanted_seconds[*link] / free);
            }
            let period = job.compute_seconds.max(job.flow_start_seconds + seconds);
            sum += job.worth * job.compute_seconds / period;
            for (link, wanted) in job.link_uses(options) {
                self.wanted_seconds[*link] = 0.0;
                self.free_share[*link] -= wanted / period;
            }
        }
        sum
    }
}

impl JobEstimate {
    fn new(space: &SearchSpace<'_>, job: usize, numbers: &mut LinkNumbers) -> Self {
        let of = &space.jobs[job];
        let mut fixed: BTreeMap<usize, f64> = BTreeMap::new();
        for (flow, choice) in of.flows.iter().zip(&space.choice_of[job]) {
            let sole = match (choice, flow.segments) {
                (_, []) => continue,
                (Some(_), _) => &[],
                (None, [sole, ..]) => &sole[..],
            };
            for link in flow.ends.0.iter().chain(&flow.ends.1).chain(sole) {
                let seconds = flow.bytes / space.link_capacity(*link);
                *fixed.entry(numbers.number_of(*link)).or_default() += seconds;
            }
        }
        let choices = space
            .choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| choice.job == job)
            .map(|(number, choice)| {
                let flow = &of.flows[choice.flow];
                let uses = flow.segments.iter().map(|segment| {
                    segment
                        .iter()
                        .map(|link| {
                            (numbers.number_of(*link), flow.bytes / space.link_capacity(*link))
                        })
                        .collect()
                });
                (number, uses.collect())
            })
            .collect();
        Self {
            job,
            compute_seconds: of.compute_seconds,
            flow_start_seconds: of.overlap_from * of.compute_seconds,
            worth: of.worth,
            fixed: fixed.into_iter().collect(),
            choices,
        }
    }

    /// Seconds on the links that no choice avoids.
    fn fixed_seconds(&self) -> f64 {
        let seconds = self.fixed.iter().map(|(_, seconds)| *seconds);
        seconds.fold(0.0, f64::max)
    }

    /// Worth of a second of link on the best paths.
    fn link_second_value(&self) -> f64 {
        self.worth * self.compute_seconds / self.fixed_seconds().max(f64::MIN_POSITIVE)
    }

    fn link_uses<'a>(&'a self, options: &'a [usize]) -> impl Iterator<Item = &'a (usize, f64)> {
        let chosen = self.choices.iter().flat_map(|(choice, uses)| &uses[options[*choice]]);
        self.fixed.iter().chain(chosen)
    }
}
