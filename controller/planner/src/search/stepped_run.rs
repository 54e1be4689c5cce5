//! A run of a large contention group in steps of equal length: an approximation of the fluid model.
//!
//! Where hundreds of flows share NICs that serve all levels alike, each event of the exact model
//! ([`GroupRun`](super::group_run::GroupRun)) changes the rates of most flows, so a run costs the
//! square of their number. Here rates are computed once for each step, in one pass over the flows
//! by descending level: a flow gets its share of what is left of each link, and what it cannot use
//! goes to those after it. The order of equals is reversed with every step, which makes the shares
//! max-min fair in the mean.
//!
//! A job whose iterations are short against a step runs several as one. Times inside a step are
//! kept: what a job sends in the rest of a step is credited to the next one.

use std::ops::Range;

use super::contention_group::{ContentionGroup, LinkService};
use super::group_run::MeasureWindow;

/// Steps of an undisturbed iteration at least.
const STEPS_PER_ITERATION: f64 = 8.0;

/// Sending time, in steps, that a job may use in one step: the step and the rest of the last one.
const MAX_SENDING: f64 = 2.0;

/// A contention group ready to run from given starts.
#[derive(Clone, Debug)]
pub(crate) struct SteppedRun {
    links: Vec<SteppedLink>,
    jobs: Vec<SteppedJob>,
    flows: Vec<SteppedFlow>,
    /// Links of all flows.
    hops: Vec<u32>,
    /// Seconds of a step.
    step: f64,
    window: MeasureWindow,
    rates_computed: u64,
}

/// A link in the present step; 64 bytes, so that a flow costs one cache line for each link.
#[derive(Clone, Debug)]
struct SteppedLink {
    service: LinkService,
    /// Bytes per second that are left.
    left: f64,
    /// Flows that share them and have no rate yet, in flows.
    sharing: f64,
    /// What a fifo link gives.
    fifo: FifoShare,
}

impl SteppedLink {
    fn new(service: LinkService) -> Self {
        Self { service, left: 0.0, sharing: 0.0, fifo: FifoShare::default() }
    }

    /// A flow that gets no more, bytes per second, is not served: the rest is due to rounding.
    fn least_service(&self) -> f64 {
        1e-6 * self.service.capacity
    }

    /// Takes what a flow uses.
    fn take_rate(&mut self, used: f64) {
        self.left = (self.left - used).max(0.0);
    }
}

#[derive(Clone, Debug)]
struct SteppedJob {
    /// Seconds of an iteration, or of several as one.
    compute: f64,
    flow_start: f64,
    /// Seconds of communication and of an iteration alone.
    communication: f64,
    alone: f64,
    /// Positions of its flows.
    flows: Range<usize>,
    /// Seconds since the start of the iteration; negative before the first one.
    elapsed: f64,
    /// Whether it has bytes left to send, and whether it has begun to.
    is_sending: bool,
    has_begun: bool,
    /// When the flows that have ended did so, in seconds since the start of the iteration.
    last_arrival: f64,
    /// Sending time in the present step, in steps.
    sending: f64,
    iterations: f64,
}

#[derive(Clone, Debug)]
struct SteppedFlow {
    /// Where its links are in [`SteppedRun::hops`]: the fifo ones, then the others.
    first_hop: u32,
    first_strict_hop: u32,
    end_hop: u32,
    bytes: f64,
    left: f64,
    /// Bytes sent in the present step.
    sent: f64,
    /// Bytes per second in the last step, and the link that allowed no more.
    rate: f64,
    limited_by: u32,
    /// Steps since it was last served while it had bytes to send, and the most of them.
    unserved: u32,
    most_unserved: u32,
}

impl SteppedFlow {
    fn all_hops(&self) -> Range<usize> {
        self.first_hop as usize..self.end_hop as usize
    }

    fn fifo_hops(&self) -> Range<usize> {
        self.first_hop as usize..self.first_strict_hop as usize
    }

    fn strict_hops(&self) -> Range<usize> {
        self.first_strict_hop as usize..self.end_hop as usize
    }

    fn count_service(&mut self, is_served: bool) {
        self.unserved = if is_served { 0 } else { self.unserved + 1 };
        self.most_unserved = self.most_unserved.max(self.unserved);
    }

    /// Sends so many bytes, or those that are left; returns how many.
    fn send_bytes(&mut self, most: f64) -> f64 {
        let bytes = most.min(self.left);
        self.left -= bytes;
        self.sent += bytes;
        bytes
    }
}

/// The division of a fifo link.
#[derive(Clone, Copy, Debug, Default)]
struct FifoShare {
    /// What a flow gets at most, bytes per second.
    share: f64,
    /// Flows on the link.
    flows: f64,
    /// Those that another link limits, and their bytes per second.
    limited: f64,
    limited_rate: f64,
}

impl FifoShare {
    fn add_flow(&mut self, flow: &SteppedFlow, link: u32, sending: f64) {
        self.flows += sending;
        if flow.limited_by != link && flow.limited_by != u32::MAX {
            self.limited += sending;
            self.limited_rate += flow.rate * sending;
        }
    }

    /// Divides the link among the flows that were added.
    fn divide_capacity(&mut self, capacity: f64) {
        let free = self.flows - self.limited;
        let equal = capacity / self.flows.max(1.0);
        let left = (capacity - self.limited_rate) / free.max(1.0);
        *self = Self { share: left.max(equal), ..Self::default() };
    }
}

impl SteppedRun {
    /// `group` with its jobs starting at `starts`, seconds, in the order of its members, to be
    /// observed for a `window` in so many steps at most.
    pub(crate) fn new(
        group: &ContentionGroup,
        starts: &[f64],
        window: MeasureWindow,
        most_steps: f64,
    ) -> Self {
        let alone = group.alone_seconds();
        let shortest = alone.iter().copied().filter(|seconds| *seconds > 0.0);
        let shortest = shortest.fold(f64::INFINITY, f64::min);
        let step = (shortest / STEPS_PER_ITERATION).max(window.until / most_steps);
        let step = step.min(window.until);
        let mut run = Self {
            links: group.links().iter().copied().map(SteppedLink::new).collect(),
            jobs: Vec::new(),
            flows: Vec::new(),
            hops: Vec::new(),
            step,
            window,
            rates_computed: 0,
        };
        for ((job, alone), start) in group.fluid_jobs().iter().zip(alone).zip(starts) {
            run.add_job(job, alone, *start);
        }
        run
    }

    fn add_job(&mut self, job: &fluid::FluidJob, alone: f64, start: f64) {
        let merged = if alone > 0.0 { STEPS_PER_ITERATION * self.step / alone } else { 1.0 };
        let merged = merged.ceil().max(1.0);
        let flow_start = job.overlap_from * job.compute_seconds;
        let first = self.flows.len();
        for flow in job.flows.iter().filter(|flow| flow.bytes > 0.0) {
            let first_hop = self.hops.len() as u32;
            let is_fifo = |link: &u32| self.links[*link as usize].service.is_fifo;
            self.hops.extend(flow.path.iter().filter(|link| is_fifo(link)));
            let first_strict_hop = self.hops.len() as u32;
            self.hops.extend(flow.path.iter().filter(|link| !is_fifo(link)));
            let bytes = merged * flow.bytes;
            self.flows.push(SteppedFlow {
                first_hop,
                first_strict_hop,
                end_hop: self.hops.len() as u32,
                bytes,
                left: bytes,
                sent: 0.0,
                rate: 0.0,
                limited_by: u32::MAX,
                unserved: 0,
                most_unserved: 0,
            });
        }
        let communicates = self.flows.len() > first;
        let communication = if communicates { (alone - flow_start).max(0.0) } else { 0.0 };
        self.jobs.push(SteppedJob {
            compute: merged * job.compute_seconds,
            flow_start: merged * flow_start,
            communication: merged * communication,
            alone: (merged * alone).max(self.step),
            flows: first..self.flows.len(),
            elapsed: -start,
            is_sending: communicates,
            has_begun: false,
            last_arrival: 0.0,
            sending: 0.0,
            iterations: 0.0,
        });
    }

    /// Share of the window's time during which each job computes, if jobs have these `levels`.
    pub(crate) fn busy_shares(&mut self, levels: &[u8]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        order.sort_by_key(|job| std::cmp::Reverse(levels[*job]));
        let by_level: Vec<&[usize]> = order.chunk_by(|a, b| levels[*a] == levels[*b]).collect();
        let steps = (self.window.until / self.step).round().max(1.0) as u64;
        let settling = (self.window.from / self.step).round() as u64;
        let mut before = vec![0.0; self.jobs.len()];
        for number in 0..steps {
            if number == settling {
                before = self.jobs.iter().map(|job| job.progress(&self.flows)).collect();
            }
            self.run_step(&by_level, number % 2 == 1);
        }
        let seconds = steps.saturating_sub(settling).max(1) as f64 * self.step;
        let done = self
            .jobs
            .iter()
            .zip(&before)
            .map(|(job, before)| (job.progress(&self.flows) - before) * job.compute / seconds);
        done.map(|busy| busy.clamp(0.0, 1.0)).collect()
    }

    /// The longest that a flow of each job was not served while it had bytes to send, seconds. One
    /// step is no wait: it may be due to the order of flows.
    pub(crate) fn longest_waits(&self) -> Vec<f64> {
        let most_steps = |job: &SteppedJob| {
            self.flows[job.flows.clone()].iter().map(|flow| flow.most_unserved).max()
        };
        let steps = self.jobs.iter().map(|job| most_steps(job).filter(|steps| *steps > 1));
        steps.map(|steps| f64::from(steps.unwrap_or(0)) * self.step).collect()
    }

    /// Rates that were computed so far.
    pub(crate) fn rates_computed(&self) -> u64 {
        self.rates_computed
    }

    fn run_step(&mut self, by_level: &[&[usize]], is_reversed: bool) {
        self.links.iter_mut().for_each(|link| link.left = link.service.capacity);
        for job in 0..self.jobs.len() {
            self.jobs[job].begin_step(self.step);
        }
        self.share_fifo_links();
        for jobs in by_level {
            jobs.iter().for_each(|job| self.count_flows(*job));
            match is_reversed {
                true => jobs.iter().rev().for_each(|job| self.rate_flows(*job)),
                false => jobs.iter().for_each(|job| self.rate_flows(*job)),
            }
            match is_reversed {
                true => jobs.iter().for_each(|job| self.raise_rates(*job)),
                false => jobs.iter().rev().for_each(|job| self.raise_rates(*job)),
            }
        }
        for job in &mut self.jobs {
            job.end_step(&mut self.flows, self.step);
        }
    }

    /// Counts the flows of a job on their strict links.
    fn count_flows(&mut self, job: usize) {
        let Self { jobs, flows, hops, links, .. } = self;
        let SteppedJob { sending, flows: of, .. } = &jobs[job];
        if *sending > 0.0 {
            for flow in flows[of.clone()].iter().filter(|flow| flow.left > 0.0) {
                for link in &hops[flow.strict_hops()] {
                    links[*link as usize].sharing += sending;
                }
            }
        }
    }

    /// What a flow gets of each fifo link at most: an equal share of what those leave that another
    /// link limited in the step before.
    fn share_fifo_links(&mut self) {
        let Self { jobs, flows, hops, links, .. } = self;
        for job in jobs.iter().filter(|job| job.sending > 0.0) {
            for flow in flows[job.flows.clone()].iter().filter(|flow| flow.left > 0.0) {
                for link in &hops[flow.fifo_hops()] {
                    links[*link as usize].fifo.add_flow(flow, *link, job.sending);
                }
            }
        }
        for link in links.iter_mut().filter(|link| link.service.is_fifo) {
            link.fifo.divide_capacity(link.service.capacity);
        }
    }

    /// Gives the flows of a job their rates.
    fn rate_flows(&mut self, job: usize) {
        let Self { jobs, flows, hops, links, step, .. } = self;
        let SteppedJob { sending, flows: of, .. } = &jobs[job];
        let sending = *sending;
        if sending <= 0.0 {
            return;
        }
        let per_sending = 1.0 / sending;
        for flow in flows[of.clone()].iter_mut().filter(|flow| flow.left > 0.0) {
            let (mut rate, mut limited_by) = (f64::INFINITY, u32::MAX);
            for number in &hops[flow.fifo_hops()] {
                let link = &links[*number as usize];
                let most = link.fifo.share.min(link.left * per_sending);
                if most < rate {
                    (rate, limited_by) = (most, *number);
                }
            }
            for number in &hops[flow.strict_hops()] {
                let link = &links[*number as usize];
                let most = (link.left / link.sharing.max(sending)).min(link.service.capacity);
                if most < rate {
                    (rate, limited_by) = (most, *number);
                }
            }
            (flow.rate, flow.limited_by) = (rate, limited_by);
            let least = links.get(limited_by as usize).map_or(0.0, SteppedLink::least_service);
            flow.count_service(rate > least);
            let used = flow.send_bytes(rate * sending * *step) / *step;
            for link in &hops[flow.fifo_hops()] {
                links[*link as usize].take_rate(used);
            }
            for link in &hops[flow.strict_hops()] {
                let link = &mut links[*link as usize];
                link.take_rate(used);
                link.sharing = (link.sharing - sending).max(0.0);
            }
            self.rates_computed += 1;
        }
    }

    /// Gives the flows of a job what others of the level left on strict links, and lets them send.
    fn raise_rates(&mut self, job: usize) {
        let Self { jobs, flows, hops, links, step, .. } = self;
        let job = &mut jobs[job];
        if job.sending <= 0.0 {
            return;
        }
        let begin = job.elapsed + (1.0 - job.sending) * *step;
        let per_sending = 1.0 / job.sending;
        for flow in flows[job.flows.clone()].iter_mut().filter(|flow| flow.rate > 0.0) {
            let mut more = f64::INFINITY;
            for link in hops[flow.all_hops()].iter().take_while(|_| flow.left > 0.0) {
                let SteppedLink { service, left, fifo, .. } = &links[*link as usize];
                let most =
                    if service.is_fifo { fifo.share.max(flow.rate) } else { service.capacity };
                more = more.min(left * per_sending).min(most - flow.rate);
            }
            if more > 0.0 && flow.left > 0.0 {
                flow.rate += more;
                let used = flow.send_bytes(more * job.sending * *step) / *step;
                for link in &hops[flow.all_hops()] {
                    links[*link as usize].take_rate(used);
                }
            }
            if flow.left <= 0.0 {
                job.last_arrival = job.last_arrival.max(begin + flow.sent / flow.rate);
                flow.rate = 0.0;
            }
            flow.sent = 0.0;
        }
    }
}

impl SteppedJob {
    /// How long it may send in the next step.
    fn begin_step(&mut self, step: f64) {
        let since_start = (self.elapsed + step - self.flow_start) / step;
        self.sending = match (self.is_sending, self.has_begun) {
            (false, _) => 0.0,
            (true, true) => 1.0,
            (true, false) => since_start.clamp(0.0, MAX_SENDING),
        };
        self.has_begun |= self.sending > 0.0;
    }

    fn end_step(&mut self, flows: &mut [SteppedFlow], step: f64) {
        self.elapsed += step;
        if self.is_sending && self.sending > 0.0 {
            self.is_sending = flows[self.flows.clone()].iter().any(|flow| flow.left > 0.0);
        }
        let end = self.compute.max(self.last_arrival);
        if self.is_sending || self.elapsed < end {
            return;
        }
        self.iterations += 1.0;
        self.elapsed -= end;
        self.is_sending = !self.flows.is_empty();
        self.has_begun = false;
        self.last_arrival = 0.0;
        for flow in &mut flows[self.flows.clone()] {
            (flow.left, flow.limited_by) = (flow.bytes, u32::MAX);
        }
    }

    /// Iterations done, the present one in part: as much as it lacks alone.
    fn progress(&self, flows: &[SteppedFlow]) -> f64 {
        if self.elapsed <= 0.0 {
            return self.iterations;
        }
        let shares = flows[self.flows.clone()].iter().map(|flow| flow.left / flow.bytes);
        let unsent = if self.is_sending { shares.fold(0.0, f64::max) } else { 0.0 };
        let to_send = unsent * self.communication + (self.flow_start - self.elapsed).max(0.0);
        let to_compute = (self.compute - self.elapsed).max(0.0);
        self.iterations + (1.0 - to_send.max(to_compute) / self.alone).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use topology::LinkId;

    use super::super::contention_group::{RoutedJob, contention_groups};
    use super::super::group_run::GroupRun;
    use super::*;

    /// NICs that serve all levels alike, and links of the fabric that do not.
    const NICS: usize = 6;
    const STEPS: f64 = 500.0;
    const LINKS: usize = 9;

    #[derive(Clone, Debug)]
    struct RandomJob {
        compute_seconds: f64,
        overlap_from: f64,
        flows: Vec<(f64, Vec<LinkId>)>,
        level: u8,
    }

    fn random_job() -> impl Strategy<Value = RandomJob> {
        let flow = (20.0..200.0, 0..NICS, NICS..LINKS)
            .prop_map(|(bytes, nic, link)| (bytes, vec![LinkId::from(nic), LinkId::from(link)]));
        let flows = prop::collection::vec(flow, 1..5);
        (0.5..4.0, 0.0..1.0, flows, 0_u8..4).prop_map(
            |(compute_seconds, overlap_from, flows, level)| RandomJob {
                compute_seconds,
                overlap_from,
                flows,
                level,
            },
        )
    }

    fn group_of(jobs: &[RandomJob]) -> Vec<ContentionGroup> {
        let routed: Vec<RoutedJob<'_>> = jobs
            .iter()
            .map(|job| RoutedJob {
                compute_seconds: job.compute_seconds,
                overlap_from: job.overlap_from,
                flows: job.flows.iter().map(|(bytes, path)| (*bytes, path[..].into())).collect(),
            })
            .collect();
        contention_groups(&routed, |link| LinkService {
            capacity: 100.0,
            is_fifo: link.index() < NICS,
        })
    }

    /// The mean over the jobs of a group is close to that of the exact model, seldom far from it
    /// even where twenty jobs overload three links, and no link carries more than it can.
    #[test]
    fn steps_approximate_events() {
        let mut runner = TestRunner::deterministic();
        let strategy = prop::collection::vec(random_job(), 12..30);
        let (mut errors, window) = (Vec::new(), MeasureWindow { from: 40.0, until: 240.0 });
        for _ in 0..60 {
            let jobs = strategy.new_tree(&mut runner).unwrap().current();
            for group in group_of(&jobs).iter().filter(|group| group.members.len() > 4) {
                let levels: Vec<u8> = group.members.iter().map(|job| jobs[*job].level).collect();
                let starts = vec![0.0; levels.len()];
                let mut exact = GroupRun::new(group, &starts).unwrap();
                let exact = exact.busy_shares(&levels, window, u64::MAX).unwrap().unwrap();
                let mut stepped = SteppedRun::new(group, &starts, window, STEPS);
                let busy = stepped.busy_shares(&levels);
                assert!(stepped.links.iter().all(|link| link.left >= 0.0));
                assert!(busy.iter().all(|share| (0.0..=1.0).contains(share)));
                let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
                errors.push(mean(&busy) / mean(&exact) - 1.0);
            }
        }
        let of = |next: &dyn Fn(&f64) -> f64| errors.iter().map(next).sum::<f64>();
        let count = errors.len() as f64;
        let (bias, spread) = (of(&|error| *error) / count, of(&|error| error.abs()) / count);
        let largest = errors.iter().fold(0.0_f64, |most, error| most.max(error.abs()));
        println!("bias {bias:.4}, mean error {spread:.4}, largest {largest:.4}");
        assert!(bias.abs() < 0.05 && spread < 0.06 && largest < 0.35, "{bias} {spread} {largest}");
    }

    /// A job that sends for four seconds at a time keeps one on a lower level waiting for so long,
    /// and one on the same level for no step.
    #[test]
    fn waits_are_known_to_a_step() {
        let job = |compute_seconds, bytes| RandomJob {
            compute_seconds,
            overlap_from: 1.0,
            flows: vec![(bytes, vec![LinkId::from(NICS)])],
            level: 0,
        };
        let group = &group_of(&[job(1.0, 400.0), job(0.7, 30.0)])[0];
        let window = MeasureWindow { from: 20.0, until: 220.0 };
        let waits = |levels: &[u8]| {
            let mut exact = GroupRun::new(group, &[0.0, 0.0]).unwrap();
            exact.busy_shares(levels, window, u64::MAX).unwrap().unwrap();
            let mut stepped = SteppedRun::new(group, &[0.0, 0.0], window, STEPS);
            stepped.busy_shares(levels);
            [exact.longest_waits(f64::MAX).unwrap(), stepped.longest_waits()]
        };
        let step = window.until / STEPS;
        let [exact, stepped] = waits(&[1, 0]);
        assert!((3.0..=4.0).contains(&exact[1]), "{exact:?}");
        assert!((stepped[1] - exact[1]).abs() <= 1.5 * step, "{stepped:?} {exact:?}");
        assert_eq!((exact[0], stepped[0]), (0.0, 0.0));
        assert_eq!(waits(&[0, 0]), [vec![0.0; 2], vec![0.0; 2]]);
    }

    #[test]
    fn two_jobs_compute_as_the_formula_says() {
        let jobs = [0, 1].map(|_| RandomJob {
            compute_seconds: 1.0,
            overlap_from: 1.0,
            flows: vec![(80.0, vec![LinkId::from(NICS)])],
            level: 0,
        });
        let group = &group_of(&jobs)[0];
        let window = MeasureWindow { from: 20.0, until: 220.0 };
        // Two jobs with opposite phases do not meet: an iteration takes 1.8 s, 1 s of it computing.
        let busy = SteppedRun::new(group, &[0.0, 0.9], window, STEPS).busy_shares(&[1, 0]);
        assert!(busy.iter().all(|share| (share - 1.0 / 1.8).abs() < 0.02), "{busy:?}");
        // Together at one level they share the link: 1 s and 1.6 s.
        let busy = SteppedRun::new(group, &[0.0, 0.0], window, STEPS).busy_shares(&[0, 0]);
        assert!(busy.iter().all(|share| (share - 1.0 / 2.6).abs() < 0.02), "{busy:?}");
    }
}
