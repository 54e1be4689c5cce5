//! Mean rates: what decisions are worth in the long run, as a fixed point of averages.
//!
//! Every job has one number, the seconds of its iterations, and jobs know of each other only what a
//! link carries in the mean. On each link a job gets what higher levels leave, divided by the flows
//! of its level that send at the same time in the mean, or what these do not use, if that is more.
//! A synchronous job waits for the link that takes it longest: `T_j = max(comp_j, o_j * comp_j +
//! max over e of M_{j,e} / rate_{j,e})`. The iterations make the mean rates, until nothing changes.
//!
//! Averages know nothing of phases. So the model is calibrated: the judge gives the seconds of each
//! job's iterations for some decisions, and each job's communication is stretched until the model
//! has the same.

use std::ops::Range;

use super::bundles::RegionModel;

/// Visits of links that cost as much as an event of the fluid model.
pub(super) const VISITS_PER_EVENT: u64 = 60;

/// Passes over all jobs from any state, and after a small change.
const SWEEPS: usize = 12;
const SWEEPS_AFTER_CHANGE: usize = 3;

/// How much shorter or longer than the averages say a job's communication can be.
const STRETCHES: Range<f64> = 0.2..20.0;

/// The least share of a link that is left to a level, however busy the higher ones keep it.
const LEAST_LEFT: f64 = 1e-3;

/// Price of an iteration that is twice as long as wanted, in the worth of its job.
const SHORTFALL_PRICE: f64 = 1.0;

/// The largest shortfall that is told apart.
const MAX_SHORTFALL: f64 = 20.0;

/// Iterations are not shorter, nor longer, seconds: a job that gets nothing still has one.
const SECONDS: Range<f64> = 1e-9..1e9;

/// Decisions with the mean rates that come of them.
#[derive(Clone, Debug)]
pub(super) struct MeanRates<'m> {
    model: &'m RegionModel<'m>,
    level_count: usize,
    /// Flows by option of the bundles.
    pub(super) counts: Vec<u32>,
    /// By job, as positions among the levels that jobs may have.
    pub(super) levels: Vec<u8>,
    /// Seconds of an iteration by job.
    pub(super) seconds: Vec<f64>,
    /// Seconds of communication for each one that the averages say, by job.
    pub(super) stretches: Vec<f64>,
    /// Seconds of an iteration that a job is wanted not to exceed.
    longest: Vec<f64>,
    /// What each job sends over each of its links.
    uses: Vec<Vec<LinkUse>>,
    /// Positions among these of the links over which it sends anything: of all paths that flows
    /// could take, a few.
    carrying: Vec<Vec<u32>>,
    /// Bytes per second, and flows that send, in the mean, by link and level.
    used: Vec<f64>,
    sending: Vec<f64>,
    score: f64,
    /// Links that were visited so far.
    pub(super) visits: u64,
}

/// What a job sends over a link in an iteration.
#[derive(Clone, Copy, Debug, Default)]
struct LinkUse {
    flows: f64,
    bytes: f64,
    /// Seconds that this takes.
    seconds: f64,
}

impl<'m> MeanRates<'m> {
    /// The model at these decisions, if iterations may be as long as `longest`.
    pub(super) fn new(
        model: &'m RegionModel<'m>,
        counts: Vec<u32>,
        levels: Vec<u8>,
        longest: Vec<f64>,
    ) -> Self {
        let jobs = model.jobs.len();
        let cells = model.links.len() * model.level_count();
        let mut rates = Self {
            model,
            level_count: model.level_count(),
            counts,
            levels,
            seconds: model.jobs.iter().map(|job| job.compute_seconds.max(SECONDS.start)).collect(),
            stretches: vec![1.0; jobs],
            longest,
            uses: vec![Vec::new(); jobs],
            carrying: vec![Vec::new(); jobs],
            used: vec![0.0; cells],
            sending: vec![0.0; cells],
            score: 0.0,
            visits: 0,
        };
        (0..jobs).for_each(|job| rates.count_uses(job));
        rates.settle();
        rates
    }

    /// Mean worth of the GPUs that compute, less the price of jobs that are too slow.
    pub(super) fn score(&self) -> f64 {
        self.score
    }

    /// Sums what a job sends over its links, from the counts of its bundles.
    fn count_uses(&mut self, job: usize) {
        let of = &self.model.jobs[job];
        let uses = &mut self.uses[job];
        uses.clear();
        uses.resize(of.links.len(), LinkUse::default());
        for (at, flows, bytes) in &of.fixed {
            let of = &mut uses[*at as usize];
            (of.flows, of.bytes) = (of.flows + flows, of.bytes + bytes);
        }
        for bundle in &self.model.bundles[of.bundles.clone()] {
            for (option, count) in bundle.options.iter().zip(&self.counts[bundle.option_range()]) {
                let count = f64::from(*count);
                for link in option.links.iter().filter(|_| count > 0.0) {
                    let of = &mut uses[*link as usize];
                    (of.flows, of.bytes) = (of.flows + count, of.bytes + count * bundle.bytes);
                }
            }
        }
        self.carrying[job].clear();
        let carrying = (0..).zip(&self.uses[job]).filter(|(_, of)| of.flows > 0.0);
        self.carrying[job].extend(carrying.map(|(at, _)| at));
    }

    /// Adds the mean rates of a job to its links, or takes them away.
    fn change_sums(&mut self, job: usize, sign: f64) {
        let per_second = sign / self.seconds[job];
        let level = usize::from(self.levels[job]);
        let links = &self.model.jobs[job].links;
        for at in &self.carrying[job] {
            let of = &self.uses[job][*at as usize];
            let link = links[*at as usize] as usize;
            let level = if self.model.links[link].is_fifo { 0 } else { level };
            let cell = link * self.level_count + level;
            // Sums are changed and not made anew, which is what makes a step cheap; `settle`
            // removes what rounding leaves.
            self.used[cell] += of.bytes * per_second;
            self.sending[cell] += of.flows * of.seconds * per_second;
        }
    }

    /// Seconds of a job's communication from what others send, without a stretch. Its own sums are
    /// to be taken away before.
    fn mean_communication(&mut self, job: usize) -> f64 {
        let level = usize::from(self.levels[job]);
        let links = &self.model.jobs[job].links;
        self.visits += self.carrying[job].len() as u64;
        let mut longest: f64 = 0.0;
        for at in &self.carrying[job] {
            let of = &mut self.uses[job][*at as usize];
            let link = links[*at as usize] as usize;
            let service = self.model.links[link];
            let cells = link * self.level_count..(link + 1) * self.level_count;
            let level = if service.is_fifo { 0 } else { level };
            let above: f64 = self.used[cells.clone()][level + 1..].iter().sum();
            // Higher levels may want more than there is. A rate of zero would be infinite seconds,
            // and no sweep would leave them.
            let left = (service.capacity - above).max(LEAST_LEFT * service.capacity);
            let cell = cells.start + level;
            let equal = left * of.flows / (self.sending[cell].max(0.0) + of.flows);
            of.seconds = of.bytes / equal.max(left - self.used[cell]);
            longest = longest.max(of.seconds);
        }
        longest
    }

    /// Computes the iteration of a job from what others send.
    fn compute_job(&mut self, job: usize) {
        // Without its own share, or the job would compete with itself.
        self.change_sums(job, -1.0);
        let stretch = self.stretches[job];
        let communication = stretch * self.mean_communication(job);
        let of = &self.model.jobs[job];
        let seconds = of.compute_seconds.max(of.flow_start_seconds + communication);
        self.seconds[job] = seconds.clamp(SECONDS.start, SECONDS.end);
        self.uses[job].iter_mut().for_each(|of| of.seconds *= stretch);
        self.change_sums(job, 1.0);
    }

    fn sweep(&mut self, sweeps: usize) {
        let jobs = self.seconds.len();
        // Gauss-Seidel: each job sees those before it already changed, and a fixed number of sweeps
        // keeps all runs equal.
        for job in (0..sweeps).flat_map(|_| 0..jobs) {
            self.compute_job(job);
        }
        self.score = (0..self.seconds.len()).map(|job| self.job_score(job)).sum();
    }

    /// Computes everything anew.
    pub(super) fn settle(&mut self) {
        self.used.fill(0.0);
        self.sending.fill(0.0);
        (0..self.seconds.len()).for_each(|job| self.change_sums(job, 1.0));
        self.sweep(SWEEPS);
    }

    /// What a job adds to the score.
    fn job_score(&self, job: usize) -> f64 {
        let of = &self.model.jobs[job];
        let busy =
            if of.compute_seconds > 0.0 { of.compute_seconds / self.seconds[job] } else { 1.0 };
        let shortfall = (self.seconds[job] / self.longest[job] - 1.0).clamp(0.0, MAX_SHORTFALL);
        of.worth * (busy - SHORTFALL_PRICE * shortfall)
    }

    /// Stretches the communication of jobs until their iterations take `seconds`.
    pub(super) fn calibrate(&mut self, seconds: &[f64]) {
        self.seconds.copy_from_slice(seconds);
        self.seconds.iter_mut().for_each(|of| *of = of.clamp(SECONDS.start, SECONDS.end));
        self.stretches.fill(1.0);
        self.used.fill(0.0);
        self.sending.fill(0.0);
        for job in 0..seconds.len() {
            let of = &self.model.jobs[job];
            let sending = (self.seconds[job] - of.flow_start_seconds).max(0.0);
            self.uses[job].iter_mut().for_each(|of| of.seconds = sending);
            self.change_sums(job, 1.0);
        }
        for job in (0..SWEEPS).flat_map(|_| 0..seconds.len()) {
            self.change_sums(job, -1.0);
            let mean = self.mean_communication(job);
            let of = &self.model.jobs[job];
            let room = (of.compute_seconds - of.flow_start_seconds).max(0.0);
            let since_start = self.seconds[job] - of.flow_start_seconds;
            // What is hidden behind computation says nothing about how long it takes.
            let wanted =
                if since_start > room * (1.0 + 1e-9) { since_start } else { mean.min(room) };
            let stretch = (wanted / mean.max(SECONDS.start)).clamp(STRETCHES.start, STRETCHES.end);
            self.stretches[job] = stretch;
            self.uses[job].iter_mut().for_each(|of| of.seconds *= stretch);
            self.change_sums(job, 1.0);
        }
        self.score = (0..self.seconds.len()).map(|job| self.job_score(job)).sum();
    }

    /// Gives all jobs other levels and computes everything anew.
    pub(super) fn set_levels(&mut self, levels: &[u8]) {
        self.levels.copy_from_slice(levels);
        self.settle();
    }

    /// Gives a job another level.
    pub(super) fn set_level(&mut self, job: usize, level: u8) {
        self.change_sums(job, -1.0);
        self.levels[job] = level;
        self.change_sums(job, 1.0);
    }

    /// Changes the counts of a job's bundles.
    pub(super) fn change_counts(&mut self, job: usize, change: impl FnOnce(&mut [u32])) {
        self.change_sums(job, -1.0);
        change(&mut self.counts);
        self.count_uses(job);
        self.change_sums(job, 1.0);
    }

    /// Computes the jobs after small changes.
    pub(super) fn follow_changes(&mut self) {
        self.sweep(SWEEPS_AFTER_CHANGE);
    }

    /// The link on which a job waits longest, as a position among its links.
    pub(super) fn bottleneck_of(&self, job: usize) -> Option<u32> {
        let uses = self.uses[job].iter().enumerate();
        let longest = uses.max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        longest.map(|(at, _)| at as u32)
    }

    /// Seconds that a job sends over one of its links.
    pub(super) fn seconds_on(&self, job: usize, link: u32) -> f64 {
        self.uses[job][link as usize].seconds
    }

    /// Bytes per second that other jobs send over a link of a job in the mean, and those that it
    /// carries.
    pub(super) fn others_on(&self, job: usize, link: u32) -> (f64, f64) {
        let number = self.model.jobs[job].links[link as usize] as usize;
        let cells = number * self.level_count..(number + 1) * self.level_count;
        let own = self.uses[job][link as usize].bytes / self.seconds[job];
        let all: f64 = self.used[cells].iter().sum();
        ((all - own).max(0.0), self.model.links[number].capacity)
    }

    /// Bytes of a job on one of its links whatever its paths are, with those of its bundles.
    pub(super) fn own_bytes(&self, job: usize, link: u32) -> f64 {
        self.uses[job][link as usize].bytes
    }
}

#[cfg(test)]
mod tests {

    use topology::HostId;
    use topology::clos::{ClosSpec, build_clos};

    use super::*;
    use crate::input::{Flow, FlowGpus, Job, PlanInput};
    use crate::policy::Policy;
    use crate::traffic::IndexedTraffic;

    /// Two jobs, each of four connections from a host of one leaf to one of another, over two spines.
    fn with_two_jobs(check: impl FnOnce(&IndexedTraffic<'_>, &RegionModel<'_>)) {
        let spec = ClosSpec {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 2,
            host_gbps: 100.0,
            uplink_gbps: 50.0,
            ..ClosSpec::default()
        };
        let fabric = build_clos("test", &spec).unwrap();
        let job = |number: usize| {
            let nic = |leaf: usize| fabric.host(HostId::from(2 * leaf + number)).nics[0];
            let flow = |port: u16| Flow {
                src: nic(0),
                dst: nic(1),
                bytes: 2.5e9,
                udp_src_port: Some(50_000 + port),
                gpus: FlowGpus::default(),
                overlap_from: None,
            };
            Job::for_test(
                &format!("j{number}"),
                (HostId::from(number), 8),
                (0..4).map(flow).collect(),
            )
        };
        let input = PlanInput { jobs: vec![job(0), job(1)], fabric: fabric.clone() };
        let traffic = IndexedTraffic::new(&input);
        check(&traffic, &RegionModel::new(&traffic, &Policy::default(), &[0, 1]));
    }

    /// Counts of both bundles over the two spines.
    fn rates<'m>(model: &'m RegionModel<'m>, counts: [u32; 4], levels: [u8; 2]) -> MeanRates<'m> {
        MeanRates::new(model, counts.to_vec(), levels.to_vec(), vec![f64::INFINITY; 2])
    }

    #[test]
    fn a_job_waits_for_the_busiest_of_its_links() {
        with_two_jobs(|_, model| {
            // 10 GB over a NIC of 12.5 GB/s and two links of 6.25: 0.8 s each, or 1.6 s on one link.
            let mut even = rates(model, [2, 2, 0, 0], [6, 6]);
            even.change_counts(1, |counts| counts[2..].fill(0));
            even.settle();
            assert!((even.seconds[0] - 1.8).abs() < 1e-6, "{even:?}");
            let mut uneven = even.clone();
            uneven.change_counts(0, |counts| counts[..2].copy_from_slice(&[4, 0]));
            uneven.follow_changes();
            assert!((uneven.seconds[0] - 2.6).abs() < 1e-6, "{uneven:?}");
        });
    }

    #[test]
    fn a_higher_level_and_a_link_of_its_own_are_better_for_a_job() {
        with_two_jobs(|_, model| {
            let shared = rates(model, [4, 0, 4, 0], [6, 6]);
            let raised = rates(model, [4, 0, 4, 0], [6, 5]);
            assert!(raised.seconds[0] < shared.seconds[0]);
            assert!(raised.seconds[1] > shared.seconds[1]);
            let apart = rates(model, [4, 0, 0, 4], [6, 6]);
            assert!(apart.score() > shared.score());
        });
    }

    #[test]
    fn a_calibrated_model_has_the_seconds_of_the_judge() {
        with_two_jobs(|_, model| {
            let mut model = rates(model, [2, 2, 2, 2], [6, 5]);
            model.calibrate(&[4.0, 3.0]);
            model.follow_changes();
            for (seconds, wanted) in model.seconds.iter().zip([4.0, 3.0]) {
                assert!((seconds / wanted - 1.0).abs() < 0.05, "{model:?}");
            }
        });
    }

    #[test]
    fn counts_become_paths_that_have_them_and_flows_stay_where_they_can() {
        with_two_jobs(|traffic, model| {
            let none = vec![topology::LinkPath::EMPTY; traffic.flows.len()];
            let first = model.paths_of(&[2, 2, 4, 0], &none);
            assert_eq!(model.counts_of(&first), [2, 2, 4, 0]);
            let next = model.paths_of(&[3, 1, 4, 0], &first);
            assert_eq!(model.counts_of(&next), [3, 1, 4, 0]);
            let moved = first.iter().zip(&next).filter(|(a, b)| a != b).count();
            assert_eq!(moved, 1);
        });
    }
}
