//! Makes timelines of a run while it goes on, from what each instant of the engine made different.

use std::collections::BTreeMap;

use fluid::{Instant, JobIndex, Phase};
use planner::{Flow, Input, Job};
use topology::{Fabric, LinkId};

use super::{BANDS, Timeline, View, WireTier};
use crate::demand::Demand;
use crate::schedule::Schedule;

/// Links that a timeline watches.
const WATCHED: usize = 4;

/// A rate that holds since some time.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    since: f64,
    value: f64,
}

/// Makes timelines of a run while it goes on.
#[derive(Debug)]
pub(crate) struct Recorder {
    timelines: Vec<Timeline>,
    watched: BTreeMap<u32, Watched>,
    jobs: Vec<Recorded>,
    /// The job of the input in each place of the engine.
    places: BTreeMap<JobIndex, usize>,
    gpus: f64,
    /// Links of the fabric, by tier.
    links: ByTier,
}

/// A watched link.
#[derive(Debug)]
struct Watched {
    place: usize,
    bytes_per_second: f64,
    levels: BTreeMap<u32, Held>,
}

/// A job of the run.
#[derive(Debug)]
struct Recorded {
    gpus: f64,
    compute_seconds: f64,
    intensity: f64,
    band: usize,
    /// Seconds of link that a byte of each flow takes, summed over its path, by tier.
    seconds_per_byte: Vec<ByTier>,
    sending: Sending,
}

/// One value for each of [`WireTier::ALL`].
type ByTier = [f64; 2];

/// What a job has on the wire since some time.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    since: f64,
    /// Links that it takes the whole of, by tier.
    links: ByTier,
    intensity: f64,
}

impl Recorder {
    pub(crate) fn new(views: &[View], input: &Input, schedule: &Schedule) -> Self {
        let watched = most_used(input, schedule);
        let bands = bands(input);
        let capacity = |link: LinkId| input.fabric.link(link).bandwidth.bytes_per_second();
        let slots = watched.iter().enumerate().map(|(place, link)| {
            let watched = Watched {
                place,
                bytes_per_second: capacity(*link),
                levels: BTreeMap::new(),
            };
            (link.0, watched)
        });
        let job = |(job, band): (&planner::Job, &usize)| Recorded {
            gpus: f64::from(job.gpu_count()),
            compute_seconds: job.compute_seconds,
            intensity: 0.0,
            band: *band,
            seconds_per_byte: Vec::new(),
            sending: Sending::default(),
        };
        let jobs: Vec<Recorded> = input.jobs.iter().zip(&bands).map(job).collect();
        let count = bands.iter().max().map_or(0, |last| last + 1);
        let mut recorder = Self {
            timelines: views
                .iter()
                .map(|view| Timeline::new(*view, &watched, count))
                .collect(),
            watched: slots.collect(),
            gpus: jobs.iter().map(|job| job.gpus).sum(),
            jobs,
            places: BTreeMap::new(),
            links: by_tier(&input.fabric, all_links(&input.fabric), |_| 1.0),
        };
        recorder.rescheduled(input, schedule);
        recorder
    }

    /// Whether anybody looks.
    pub(crate) fn is_idle(&self) -> bool {
        self.timelines.is_empty()
    }

    /// The place that the engine gave a job of the input.
    pub(crate) fn placed(&mut self, job: usize, index: JobIndex) {
        self.places.insert(index, job);
    }

    /// Takes over the intensities and paths of a new schedule.
    pub(crate) fn rescheduled(&mut self, input: &Input, schedule: &Schedule) {
        let fabric = &input.fabric;
        let seconds = |link: LinkId| 1.0 / fabric.link(link).bandwidth.bytes_per_second();
        let of_path = |path: &Vec<LinkId>| by_tier(fabric, path.iter().copied(), seconds);
        for ((job, scheduled), of) in input.jobs.iter().zip(&schedule.jobs).zip(&mut self.jobs) {
            let demand = Demand::new(fabric, job, &scheduled.paths);
            of.intensity = job.intensity(demand.bottleneck_seconds());
            of.seconds_per_byte = scheduled.paths.iter().map(of_path).collect();
        }
    }

    /// Takes in what an instant made different.
    pub(crate) fn see(&mut self, instant: &Instant<'_>) {
        let now = instant.seconds();
        for (job, phase) in instant.phases() {
            if phase == Phase::Computing {
                self.computes(job, now);
            }
        }
        for rate in instant.links() {
            self.link_takes(rate, now);
        }
        let mut jobs: Vec<JobIndex> = instant.flows().map(|flow| flow.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        for job in jobs {
            self.sends(job, instant, now);
        }
    }

    /// The timelines of a run that ends now.
    pub(crate) fn finish(mut self, now: f64) -> Vec<Timeline> {
        let links: Vec<u32> = self.watched.keys().copied().collect();
        for link in links {
            let classes: Vec<u32> = self.watched[&link].levels.keys().copied().collect();
            for class in classes {
                let rate = fluid::LinkRate {
                    link,
                    class,
                    bytes_per_second: 0.0,
                };
                self.link_takes(rate, now);
            }
        }
        for job in 0..self.jobs.len() {
            self.wire_changes(job, ByTier::default(), now);
        }
        self.timelines
    }

    /// An iteration begins: its computation takes as long as it takes.
    fn computes(&mut self, index: JobIndex, now: f64) {
        let Some(job) = self.places.get(&index).map(|place| &self.jobs[*place]) else {
            return;
        };
        let share = job.gpus / self.gpus;
        for timeline in &mut self.timelines {
            let span = (now, now + job.compute_seconds);
            timeline.view.add(&mut timeline.computing, span, share);
        }
    }

    fn link_takes(&mut self, rate: fluid::LinkRate, now: f64) {
        let Some(watched) = self.watched.get_mut(&rate.link) else {
            return;
        };
        let value = rate.bytes_per_second / watched.bytes_per_second;
        let held = watched.levels.entry(rate.class).or_default();
        let was = std::mem::replace(held, Held { since: now, value });
        for timeline in &mut self.timelines {
            let series = &mut timeline.links[watched.place];
            let levels = series.levels.entry(rate.class);
            let level = levels.or_insert_with(|| vec![0.0; timeline.view.bins]);
            timeline.view.add(level, (was.since, now), was.value);
        }
    }

    /// The flows of a job have new rates.
    fn sends(&mut self, index: JobIndex, instant: &Instant<'_>, now: f64) {
        let Some(place) = self.places.get(&index).copied() else {
            return;
        };
        let mut links = ByTier::default();
        for (flow, seconds) in (0..).zip(&self.jobs[place].seconds_per_byte) {
            let rate = instant.engine().rate(index, flow).unwrap_or(0.0);
            for (sum, seconds) in links.iter_mut().zip(seconds) {
                *sum += rate * seconds;
            }
        }
        self.wire_changes(place, links, now);
    }

    fn wire_changes(&mut self, job: usize, links: ByTier, now: f64) {
        let job = &mut self.jobs[job];
        let sending = Sending {
            since: now,
            links,
            intensity: job.intensity,
        };
        let was = std::mem::replace(&mut job.sending, sending);
        let span = (was.since, now);
        let intensity = was.links.iter().sum::<f64>() * was.intensity;
        for timeline in &mut self.timelines {
            let view = timeline.view;
            view.add(&mut timeline.intensity, span, intensity);
            for (tier, wire) in timeline.wire.iter_mut().enumerate() {
                let share = was.links[tier] / self.links[tier];
                view.add(&mut wire.bands[job.band], span, share);
            }
        }
    }
}

fn all_links(fabric: &Fabric) -> impl Iterator<Item = LinkId> {
    (0..fabric.links().len()).map(LinkId::from)
}

/// Sums of `value` over `links`, by tier.
fn by_tier(
    fabric: &Fabric,
    links: impl Iterator<Item = LinkId>,
    value: impl Fn(LinkId) -> f64,
) -> ByTier {
    let mut sums = ByTier::default();
    for link in links {
        sums[WireTier::of(fabric, link) as usize] += value(link);
    }
    sums
}

/// The band of every job: by intensity as far as links of hosts limit it, of equals the first one.
fn bands(input: &Input) -> Vec<usize> {
    let fabric = &input.fabric;
    let ends = |flow: &Flow| {
        let down = fabric.nic(flow.dst).uplink.reverse();
        vec![fabric.nic(flow.src).uplink, down]
    };
    let intensity = |job: &Job| {
        let paths: Vec<Vec<LinkId>> = job.flows.iter().map(ends).collect();
        job.intensity(Demand::new(fabric, job, &paths).bottleneck_seconds())
    };
    let intensities: Vec<f64> = input.jobs.iter().map(intensity).collect();
    let mut order: Vec<usize> = (0..intensities.len()).collect();
    order.sort_by(|a, b| intensities[*b].total_cmp(&intensities[*a]));
    let count = order.len().clamp(1, BANDS);
    let mut bands = vec![0; order.len()];
    for (place, job) in order.iter().enumerate() {
        bands[*job] = place * count / order.len();
    }
    bands
}

/// The links that the schedule loads most, by share of time; of equals the lower.
fn most_used(input: &Input, schedule: &Schedule) -> Vec<LinkId> {
    let mut loads = vec![0.0; input.fabric.links().len()];
    for (job, scheduled) in input.jobs.iter().zip(&schedule.jobs) {
        let demand = Demand::new(&input.fabric, job, &scheduled.paths);
        let iteration = job.iteration_seconds(demand.bottleneck_seconds());
        for (link, seconds) in &demand.links {
            loads[link.index()] += seconds / iteration;
        }
    }
    let mut links: Vec<LinkId> = all_links(&input.fabric).collect();
    links.retain(|link| loads[link.index()] > 0.0);
    links.sort_by(|a, b| loads[b.index()].total_cmp(&loads[a.index()]).then(a.cmp(b)));
    links.truncate(WATCHED);
    links
}
