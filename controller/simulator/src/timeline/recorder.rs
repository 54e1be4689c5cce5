//! Records timelines during a run, from the changes of each instant of the engine.

use std::collections::BTreeMap;

use fluid::{JobIndex, JobPhase, RunInstant};
use planner::{Job, PlanInput};
use topology::{Fabric, LinkId};

use super::{BANDS, LinkTier, Timeline, TimelineView};
use crate::demand::LinkDemand;
use crate::schedule::Schedule;

/// Links that a timeline watches.
const WATCHED: usize = 4;

/// A rate that holds since some time.
#[derive(Clone, Copy, Debug, Default)]
struct HeldRate {
    since: f64,
    value: f64,
}

/// Makes timelines of a run while it goes on.
#[derive(Debug)]
pub(crate) struct TimelineRecorder {
    timelines: Vec<Timeline>,
    watched: BTreeMap<u32, WatchedLink>,
    jobs: Vec<RecordedJob>,
    /// The job of the input in each place of the engine.
    places: BTreeMap<JobIndex, usize>,
    gpus: f64,
    /// Links of the fabric, by tier.
    links: TierValues,
}

/// A watched link.
#[derive(Debug)]
struct WatchedLink {
    place: usize,
    bytes_per_second: f64,
    levels: BTreeMap<u32, HeldRate>,
}

/// A job of the run.
#[derive(Debug)]
struct RecordedJob {
    gpus: f64,
    compute_seconds: f64,
    intensity: f64,
    band: usize,
    /// Seconds of link that a byte of each flow takes, summed over its path, by tier.
    seconds_per_byte: Vec<TierValues>,
    sending: SendingState,
}

impl RecordedJob {
    fn new(job: &Job, band: usize) -> Self {
        Self {
            gpus: f64::from(job.gpu_count()),
            compute_seconds: job.compute_seconds,
            intensity: 0.0,
            band,
            seconds_per_byte: Vec::new(),
            sending: SendingState::default(),
        }
    }
}

/// One value for each of [`LinkTier::ALL`].
type TierValues = [f64; 2];

/// What a job has on the wire since some time.
#[derive(Clone, Copy, Debug, Default)]
struct SendingState {
    since: f64,
    /// Links that it takes the whole of, by tier.
    links: TierValues,
    intensity: f64,
}

impl TimelineRecorder {
    pub(crate) fn new(views: &[TimelineView], input: &PlanInput, schedule: &Schedule) -> Self {
        let watched = most_used_links(input, schedule);
        let bands = intensity_bands(input);
        let slots = watched.iter().enumerate().map(|(place, link)| {
            let bytes_per_second = input.fabric.link(*link).bandwidth.bytes_per_second();
            (link.0, WatchedLink { place, bytes_per_second, levels: BTreeMap::new() })
        });
        let banded = input.jobs.iter().zip(&bands);
        let jobs: Vec<RecordedJob> =
            banded.map(|(job, band)| RecordedJob::new(job, *band)).collect();
        let count = bands.iter().max().map_or(0, |last| last + 1);
        let mut recorder = Self {
            timelines: views.iter().map(|view| Timeline::new(*view, &watched, count)).collect(),
            watched: slots.collect(),
            gpus: jobs.iter().map(|job| job.gpus).sum(),
            jobs,
            places: BTreeMap::new(),
            links: sum_by_tier(&input.fabric, all_links(&input.fabric), |_| 1.0),
        };
        recorder.update_schedule(input, schedule);
        recorder
    }

    /// Whether there is nothing to record.
    pub(crate) fn is_idle(&self) -> bool {
        self.timelines.is_empty()
    }

    /// The place that the engine gave a job of the input.
    pub(crate) fn set_engine_job(&mut self, job: usize, index: JobIndex) {
        self.places.insert(index, job);
    }

    /// Takes over the intensities and paths of a new schedule.
    pub(crate) fn update_schedule(&mut self, input: &PlanInput, schedule: &Schedule) {
        let fabric = &input.fabric;
        for ((job, scheduled), of) in input.jobs.iter().zip(&schedule.jobs).zip(&mut self.jobs) {
            let demand = LinkDemand::new(fabric, job, &scheduled.paths);
            of.intensity = job.intensity_for(demand.bottleneck_seconds());
            of.seconds_per_byte = scheduled
                .paths
                .iter()
                .map(|path| {
                    sum_by_tier(fabric, path.iter().copied(), |link| {
                        1.0 / fabric.link(link).bandwidth.bytes_per_second()
                    })
                })
                .collect();
        }
    }

    /// Takes in what an instant made different.
    pub(crate) fn record_instant(&mut self, instant: &RunInstant<'_>) {
        let now = instant.seconds();
        for (job, phase) in instant.phase_changes() {
            if phase == JobPhase::Computing {
                self.record_computation(job, now);
            }
        }
        for rate in instant.link_rates() {
            self.record_link_rate(rate, now);
        }
        let mut jobs: Vec<JobIndex> = instant.flow_rates().map(|flow| flow.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        for job in jobs {
            self.record_flow_rates(job, instant, now);
        }
    }

    /// The timelines of a run that ends now.
    pub(crate) fn into_timelines(mut self, now: f64) -> Vec<Timeline> {
        let links: Vec<u32> = self.watched.keys().copied().collect();
        for link in links {
            let levels: Vec<u32> = self.watched[&link].levels.keys().copied().collect();
            for level in levels {
                let rate = fluid::LinkRate { link, level, bytes_per_second: 0.0 };
                self.record_link_rate(rate, now);
            }
        }
        for job in 0..self.jobs.len() {
            self.update_sending(job, TierValues::default(), now);
        }
        self.timelines
    }

    /// An iteration begins: its computation takes as long as it takes.
    fn record_computation(&mut self, index: JobIndex, now: f64) {
        let Some(job) = self.places.get(&index).map(|place| &self.jobs[*place]) else {
            return;
        };
        let share = job.gpus / self.gpus;
        for timeline in &mut self.timelines {
            let span = now..now + job.compute_seconds;
            timeline.view.add_value(&mut timeline.computing, &span, share);
        }
    }

    fn record_link_rate(&mut self, rate: fluid::LinkRate, now: f64) {
        let Some(watched) = self.watched.get_mut(&rate.link) else {
            return;
        };
        let value = rate.bytes_per_second / watched.bytes_per_second;
        let held = watched.levels.entry(rate.level).or_default();
        let was = std::mem::replace(held, HeldRate { since: now, value });
        for timeline in &mut self.timelines {
            let series = &mut timeline.links[watched.place];
            let levels = series.levels.entry(rate.level);
            let level = levels.or_insert_with(|| vec![0.0; timeline.view.bins]);
            timeline.view.add_value(level, &(was.since..now), was.value);
        }
    }

    /// The flows of a job have new rates.
    fn record_flow_rates(&mut self, index: JobIndex, instant: &RunInstant<'_>, now: f64) {
        let Some(place) = self.places.get(&index).copied() else {
            return;
        };
        let mut links = TierValues::default();
        for (flow, seconds) in (0..).zip(&self.jobs[place].seconds_per_byte) {
            let rate = instant.engine().flow_rate(index, flow).unwrap_or(0.0);
            for (sum, seconds) in links.iter_mut().zip(seconds) {
                *sum += rate * seconds;
            }
        }
        self.update_sending(place, links, now);
    }

    fn update_sending(&mut self, job: usize, links: TierValues, now: f64) {
        let job = &mut self.jobs[job];
        let sending = SendingState { since: now, links, intensity: job.intensity };
        let was = std::mem::replace(&mut job.sending, sending);
        let span = was.since..now;
        let intensity = was.links.iter().sum::<f64>() * was.intensity;
        for timeline in &mut self.timelines {
            let view = timeline.view;
            view.add_value(&mut timeline.intensity, &span, intensity);
            for (tier, wire) in timeline.tiers.iter_mut().enumerate() {
                let share = was.links[tier] / self.links[tier];
                view.add_value(&mut wire.bands[job.band], &span, share);
            }
        }
    }
}

fn all_links(fabric: &Fabric) -> impl Iterator<Item = LinkId> {
    fabric.link_ids()
}

/// Sums of `value` over `links`, by tier.
fn sum_by_tier(
    fabric: &Fabric,
    links: impl Iterator<Item = LinkId>,
    value: impl Fn(LinkId) -> f64,
) -> TierValues {
    let mut sums = TierValues::default();
    for link in links {
        sums[LinkTier::of_link(fabric, link) as usize] += value(link);
    }
    sums
}

/// The band of every job: by intensity as far as links of hosts limit it, of equals the first one.
fn intensity_bands(input: &PlanInput) -> Vec<usize> {
    let fabric = &input.fabric;
    let intensities: Vec<f64> = input
        .jobs
        .iter()
        .map(|job| {
            let paths: Vec<Vec<LinkId>> = job
                .flows
                .iter()
                .map(|flow| {
                    let down = fabric.nic(flow.dst).uplink.reverse();
                    vec![fabric.nic(flow.src).uplink, down]
                })
                .collect();
            job.intensity_for(LinkDemand::new(fabric, job, &paths).bottleneck_seconds())
        })
        .collect();
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
fn most_used_links(input: &PlanInput, schedule: &Schedule) -> Vec<LinkId> {
    let mut loads = vec![0.0; input.fabric.capacity_link_count()];
    for (job, scheduled) in input.jobs.iter().zip(&schedule.jobs) {
        let demand = LinkDemand::new(&input.fabric, job, &scheduled.paths);
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
