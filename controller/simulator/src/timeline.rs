//! What a run did over time, in bins: for plots.
//!
//! A [`TimelineView`] defines the time range and its bins, a [`Timeline`] has the values, and a
//! [`TimelineRecorder`] fills it. Every rate is added to its bins when it ends, so a timeline has a
//! constant size for any length of run and any number of events.

mod recorder;

use std::collections::BTreeMap;
use std::ops::Range;

use topology::{Fabric, FabricNode, LinkId};

pub(crate) use recorder::TimelineRecorder;

/// From when to when to look, and how finely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimelineView {
    /// Begin, in seconds.
    pub from_seconds: f64,
    /// End, in seconds.
    pub until_seconds: f64,
    /// Number of bins, all of one width.
    pub bins: usize,
}

impl TimelineView {
    /// Seconds of a bin.
    pub fn bin_seconds(&self) -> f64 {
        (self.until_seconds - self.from_seconds) / self.bins.max(1) as f64
    }

    /// Adds to `series` what has `value` from one time to another: to each bin the mean over it.
    fn add_value(&self, series: &mut [f64], span: &Range<f64>, value: f64) {
        let width = self.bin_seconds();
        let from = (span.start.max(self.from_seconds) - self.from_seconds) / width;
        let until = (span.end.min(self.until_seconds) - self.from_seconds) / width;
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
    /// The directed link watched.
    pub link: LinkId,
    /// Share of its capacity that each level took, by bin.
    pub levels: BTreeMap<u32, Vec<f64>>,
}

/// Tiers of links by their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTier {
    /// Between hosts and leaves.
    Hosts,
    /// Between switches.
    Switches,
}

impl LinkTier {
    /// Both tiers, hosts first.
    pub const ALL: [Self; 2] = [Self::Hosts, Self::Switches];

    /// That of a link.
    fn of_link(fabric: &Fabric, link: LinkId) -> Self {
        let link = fabric.link(link);
        let ends = [link.from.node, link.to.node];
        if ends.iter().any(|node| matches!(node, FabricNode::Host(_))) {
            Self::Hosts
        } else {
            Self::Switches
        }
    }
}

/// Whose traffic was on the links of one kind (as in Crux Fig. 24).
#[derive(Clone, Debug, PartialEq)]
pub struct TierSeries {
    /// The tier of the links.
    pub tier: LinkTier,
    /// Share of those links that each band of jobs took, by bin, the most intense band first. Bands
    /// are the same for every scheduler: jobs in the order of their intensity as far as the links
    /// of hosts limit it, in at most [`BANDS`] equal parts.
    pub bands: Vec<Vec<f64>>,
}

/// Most bands of intensity.
pub const BANDS: usize = 6;

/// What was seen through a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Its time range and bins.
    pub view: TimelineView,
    /// Share of the jobs' GPUs that computed, by bin.
    pub computing: Vec<f64>,
    /// Intensity on the wire by bin, in FLOP/s: the sum over all links of the share of the link
    /// that a job takes times the job's intensity (as in Crux Fig. 24).
    pub intensity: Vec<f64>,
    /// Whose traffic was on the wire, for links of hosts and links between switches.
    pub tiers: [TierSeries; 2],
    /// The links with the most planned traffic, the most first.
    pub links: Vec<LinkSeries>,
}

impl LinkSeries {
    fn new(link: LinkId) -> Self {
        Self { link, levels: BTreeMap::new() }
    }
}

impl Timeline {
    fn new(view: TimelineView, watched: &[LinkId], bands: usize) -> Self {
        let wire =
            LinkTier::ALL.map(|tier| TierSeries { tier, bands: vec![vec![0.0; view.bins]; bands] });
        Self {
            view,
            computing: vec![0.0; view.bins],
            intensity: vec![0.0; view.bins],
            tiers: wire,
            links: watched.iter().map(|link| LinkSeries::new(*link)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spread_over_the_bins_they_last() {
        let view = TimelineView { from_seconds: 10.0, until_seconds: 14.0, bins: 4 };
        let check = |span: Range<f64>, expect: [f64; 4]| {
            let mut series = vec![0.0; 4];
            view.add_value(&mut series, &span, 2.0);
            assert_eq!(series, expect, "{span:?}");
        };
        check(0.0..20.0, [2.0; 4]);
        check(10.5..12.25, [1.0, 2.0, 0.5, 0.0]);
        check(12.25..12.5, [0.0, 0.0, 0.5, 0.0]);
        check(0.0..10.0, [0.0; 4]);
        check(14.0..15.0, [0.0; 4]);
        check(13.0..14.0, [0.0, 0.0, 0.0, 2.0]);
    }
}
