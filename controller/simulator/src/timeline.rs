//! What a run did over time, in bins: for plots.
//!
//! A [`View`] says from when to when and how finely; a [`Timeline`] is what was seen through it.
//! The decision: every rate is added to its bins when it ends, so a timeline holds its bins and
//! nothing else, however long the run and however many events it has.

use std::collections::BTreeMap;

use fluid::{Instant, JobIndex, Phase};
use planner::Input;
use topology::LinkId;

use crate::demand::Demand;
use crate::schedule::Schedule;

/// From when to when to look, and how finely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Begin, in seconds.
    pub from_seconds: f64,
    /// End, in seconds.
    pub until_seconds: f64,
    /// Number of bins, all of one width.
    pub bins: usize,
}

impl View {
    /// Seconds of a bin.
    pub fn bin_seconds(&self) -> f64 {
        (self.until_seconds - self.from_seconds) / self.bins.max(1) as f64
    }

    /// Adds to `series` what has `value` from one time to another: to each bin the mean over it.
    fn add(&self, series: &mut [f64], (from, until): (f64, f64), value: f64) {
        let width = self.bin_seconds();
        let from = (from.max(self.from_seconds) - self.from_seconds) / width;
        let until = (until.min(self.until_seconds) - self.from_seconds) / width;
        if value <= 0.0 || from >= until {
            return;
        }
        let last = (until.ceil() as usize).min(series.len());
        for (bin, sum) in series.iter_mut().enumerate().take(last).skip(from as usize) {
            let overlap = until.min((bin + 1) as f64) - from.max(bin as f64);
            *sum += value * overlap.max(0.0);
        }
    }
}

/// Shares of one link over time.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSeries {
    /// The link.
    pub link: LinkId,
    /// Share of its capacity that each class took, by bin.
    pub levels: BTreeMap<u32, Vec<f64>>,
}

/// What was seen through a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The view.
    pub view: View,
    /// Share of the jobs' GPUs that computed, by bin.
    pub computing: Vec<f64>,
    /// Intensity on the wire by bin, in FLOP/s: the sum over all links of the share of the link
    /// that a job takes times the job's intensity (as in Crux Fig. 24).
    pub intensity: Vec<f64>,
    /// The links with the most planned traffic, the most first.
    pub links: Vec<LinkSeries>,
}

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
    /// Seconds of link, summed over its path, that a byte of each flow takes.
    seconds_per_byte: Vec<f64>,
    wire: Held,
}

impl Recorder {
    pub(crate) fn new(views: &[View], input: &Input, schedule: &Schedule) -> Self {
        let watched = most_used(input, schedule);
        let timeline = |view: &View| Timeline {
            view: *view,
            computing: vec![0.0; view.bins],
            intensity: vec![0.0; view.bins],
            links: watched.iter().map(|link| LinkSeries::new(*link)).collect(),
        };
        let capacity = |link: LinkId| input.fabric.link(link).bandwidth.bytes_per_second();
        let slots = watched.iter().enumerate().map(|(place, link)| {
            let watched = Watched {
                place,
                bytes_per_second: capacity(*link),
                levels: BTreeMap::new(),
            };
            (link.0, watched)
        });
        let job = |job: &planner::Job| Recorded {
            gpus: f64::from(job.gpu_count()),
            compute_seconds: job.compute_seconds,
            intensity: 0.0,
            seconds_per_byte: Vec::new(),
            wire: Held::default(),
        };
        let jobs: Vec<Recorded> = input.jobs.iter().map(job).collect();
        let mut recorder = Self {
            timelines: views.iter().map(timeline).collect(),
            watched: slots.collect(),
            gpus: jobs.iter().map(|job| job.gpus).sum(),
            jobs,
            places: BTreeMap::new(),
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
        let seconds = |link: &LinkId| 1.0 / input.fabric.link(*link).bandwidth.bytes_per_second();
        for ((job, scheduled), of) in input.jobs.iter().zip(&schedule.jobs).zip(&mut self.jobs) {
            let demand = Demand::new(&input.fabric, job, &scheduled.paths);
            of.intensity = job.intensity(demand.bottleneck_seconds());
            let paths = scheduled.paths.iter();
            of.seconds_per_byte = paths.map(|path| path.iter().map(seconds).sum()).collect();
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
            self.wire_changes(job, 0.0, now);
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
        let flows = (0..).zip(&self.jobs[place].seconds_per_byte);
        let share = |(flow, seconds): (u32, &f64)| {
            let rate = instant.engine().rate(index, flow).unwrap_or(0.0);
            rate * seconds
        };
        let shares: f64 = flows.map(share).sum();
        self.wire_changes(place, shares * self.jobs[place].intensity, now);
    }

    fn wire_changes(&mut self, job: usize, value: f64, now: f64) {
        let was = std::mem::replace(&mut self.jobs[job].wire, Held { since: now, value });
        for timeline in &mut self.timelines {
            let span = (was.since, now);
            timeline.view.add(&mut timeline.intensity, span, was.value);
        }
    }
}

impl LinkSeries {
    fn new(link: LinkId) -> Self {
        Self {
            link,
            levels: BTreeMap::new(),
        }
    }
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
    let mut links: Vec<LinkId> = (0..loads.len()).map(LinkId::from).collect();
    links.retain(|link| loads[link.index()] > 0.0);
    links.sort_by(|a, b| loads[b.index()].total_cmp(&loads[a.index()]).then(a.cmp(b)));
    links.truncate(WATCHED);
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spread_over_the_bins_they_last() {
        let view = View {
            from_seconds: 10.0,
            until_seconds: 14.0,
            bins: 4,
        };
        let check = |span, expect: [f64; 4]| {
            let mut series = vec![0.0; 4];
            view.add(&mut series, span, 2.0);
            assert_eq!(series, expect, "{span:?}");
        };
        check((0.0, 20.0), [2.0; 4]);
        check((10.5, 12.25), [1.0, 2.0, 0.5, 0.0]);
        check((12.25, 12.5), [0.0, 0.0, 0.5, 0.0]);
        check((0.0, 10.0), [0.0; 4]);
        check((14.0, 15.0), [0.0; 4]);
        check((13.0, 14.0), [0.0, 0.0, 0.0, 2.0]);
    }
}
