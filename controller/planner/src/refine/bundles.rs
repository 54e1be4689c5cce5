//! The jobs of a region as the search of paths sees them: flows of a job that are interchangeable
//! are a bundle, with a count for each path.
//!
//! Flows of one job between the same two leaves with the same bytes and start are worth the same on
//! any path, whichever of them it is. So the search decides how many of a bundle take each path;
//! which of them, is decided at the end, where those that run keep their paths.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use topology::{LinkId, LinkPath, SwitchId};

use super::contention_group::LinkService;
use crate::policy::{Policy, to_level};
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// The jobs of a region, their bundles and the links that they may cross.
#[derive(Debug)]
pub(super) struct RegionModel<'a> {
    traffic: &'a IndexedTraffic<'a>,
    /// Ordinals of the jobs.
    ordinals: &'a [usize],
    /// The levels that jobs may have; a level in the model is a position among them.
    job_levels: Vec<u8>,
    pub(super) jobs: Vec<ModelJob>,
    /// Levels that each job may have.
    pub(super) allowed_levels: Vec<RangeInclusive<u8>>,
    pub(super) bundles: Vec<Bundle>,
    pub(super) links: Vec<LinkService>,
    /// Options of all bundles.
    pub(super) option_count: usize,
}

/// A job of the model.
#[derive(Debug)]
pub(super) struct ModelJob {
    /// `comp_j`, and the computation after which its flows begin ([`NetworkDemand`]),
    /// seconds.
    pub(super) compute_seconds: f64,
    pub(super) flow_start_seconds: f64,
    /// Its value while all its GPUs compute.
    pub(super) worth: f64,
    pub(super) bundles: Range<usize>,
    /// The links that its flows may cross, by their numbers in the region.
    pub(super) links: Vec<u32>,
    /// What crosses a link whatever the paths: position in `links`, flows, and bytes.
    pub(super) fixed: Vec<(u32, f64, f64)>,
    /// The switches at which its paths turn down, ascending.
    pub(super) turns: Vec<SwitchId>,
}

/// Interchangeable flows of a job with several paths.
#[derive(Debug)]
pub(super) struct Bundle {
    /// Bytes of one of them.
    pub(super) bytes: f64,
    /// Their ordinals.
    flows: Vec<usize>,
    /// Number of its first option.
    pub(super) first_option: usize,
    pub(super) options: Vec<PathOption>,
}

/// A path that flows of a bundle may take.
#[derive(Debug)]
pub(super) struct PathOption {
    /// Its links between the leaves, as positions in [`ModelJob::links`].
    pub(super) links: Vec<u32>,
    /// Position of the switch at which it turns down in [`ModelJob::turns`].
    pub(super) turn: usize,
}

impl Bundle {
    /// Number of its flows.
    pub(super) fn size(&self) -> usize {
        self.flows.len()
    }

    /// Its options among all.
    pub(super) fn option_range(&self) -> Range<usize> {
        self.first_option..self.first_option + self.options.len()
    }
}

impl<'a> RegionModel<'a> {
    /// The jobs with these `ordinals`.
    pub(super) fn new(
        traffic: &'a IndexedTraffic<'a>,
        policy: &Policy,
        ordinals: &'a [usize],
    ) -> Self {
        let mut model = Self {
            traffic,
            ordinals,
            job_levels: policy.job_levels(),
            jobs: Vec::new(),
            allowed_levels: Vec::new(),
            bundles: Vec::new(),
            links: Vec::new(),
            option_count: 0,
        };
        let mut numbers = BTreeMap::new();
        for job in ordinals {
            model.add_job(policy, *job, &mut numbers);
        }
        model
    }

    fn add_job(&mut self, policy: &Policy, job: usize, numbers: &mut BTreeMap<LinkId, u32>) {
        let traffic = self.traffic;
        let of = traffic.jobs[job];
        let mut by_kind: BTreeMap<(usize, u64, u64), Vec<usize>> = BTreeMap::new();
        let mut links = JobLinks::default();
        for ordinal in traffic.spans[job].clone() {
            let flow = &traffic.flows[ordinal];
            // Such a flow delays nobody, wherever it goes.
            if flow.flow.bytes <= 0.0 || !flow.has_path {
                continue;
            }
            links.count_fixed([flow.up, flow.down].into_iter(), flow.flow.bytes);
            links.count_fixed(flow.flow.intra_host_links(traffic.fabric), flow.flow.bytes);
            if traffic.leaf_pair(flow).has_choice {
                let start = of.flow_start_seconds(flow.flow);
                // Bits make floats a key. Flows that nearly agree stay apart: they are not
                // interchangeable.
                let kind = (flow.pair, flow.flow.bytes.to_bits(), start.to_bits());
                by_kind.entry(kind).or_default().push(ordinal);
            } else {
                let only = traffic.segments(flow).first().into_iter().flatten().copied();
                links.count_fixed(only, flow.flow.bytes);
            }
        }
        let segments = |flows: &Vec<usize>| traffic.segments(&traffic.flows[flows[0]]);
        let turn_of = |segment: &[LinkId]| {
            // A path goes up and then down, so its middle link leads to the switch at which it
            // turns.
            let last_up = segment[(segment.len() - 1) / 2];
            traffic.fabric.switch_after(last_up).unwrap_or(SwitchId::from(0))
        };
        let mut turns: Vec<SwitchId> =
            by_kind.values().flat_map(segments).map(|segment| turn_of(segment)).collect();
        turns.sort_unstable();
        turns.dedup();
        let first = self.bundles.len();
        for flows in by_kind.into_values() {
            let options = segments(&flows).iter().map(|segment| PathOption {
                links: segment.iter().map(|link| links.position_of(*link)).collect(),
                turn: turns.binary_search(&turn_of(segment)).unwrap_or(0),
            });
            let options: Vec<PathOption> = options.collect();
            let bytes = traffic.flows[flows[0]].flow.bytes;
            let first_option = self.option_count;
            self.option_count += options.len();
            self.bundles.push(Bundle { bytes, flows, first_option, options });
        }
        // Links get their numbers in the order in which jobs use them, which is the same in every
        // run.
        let links_of_region = links.links.iter().map(|link| {
            *numbers.entry(*link).or_insert_with(|| {
                self.links.push(LinkService::of_link(traffic.fabric, *link));
                self.links.len() as u32 - 1
            })
        });
        self.allowed_levels.push(policy.allowed_levels(of, &self.job_levels));
        self.jobs.push(ModelJob {
            compute_seconds: of.compute_seconds,
            flow_start_seconds: traffic.routes[job].demand.start_seconds,
            worth: policy.job_worth(of),
            bundles: first..self.bundles.len(),
            links: links_of_region.collect(),
            fixed: links.fixed.into_iter().map(|(at, (flows, bytes))| (at, flows, bytes)).collect(),
            turns,
        });
    }

    /// How many flows of each bundle take each option under `paths`, by flow of the plan. A flow
    /// without a usable path counts as on the first option.
    pub(super) fn counts_of(&self, paths: &[LinkPath]) -> Vec<u32> {
        let mut counts = vec![0; self.option_count];
        for bundle in &self.bundles {
            for flow in &bundle.flows {
                counts[bundle.first_option + self.option_of(*flow, &paths[*flow]).unwrap_or(0)] +=
                    1;
            }
        }
        counts
    }

    fn option_of(&self, flow: usize, path: &LinkPath) -> Option<usize> {
        let mut segments = self.traffic.segments(&self.traffic.flows[flow]).iter();
        segments.position(|segment| segment[..] == *path.without_host_links())
    }

    /// `paths` with so many flows of each bundle on each option: those that are where some are to
    /// be stay there.
    pub(super) fn paths_of(&self, counts: &[u32], paths: &[LinkPath]) -> Vec<LinkPath> {
        let mut chosen = paths.to_vec();
        for bundle in &self.bundles {
            let mut left = counts[bundle.option_range()].to_vec();
            let mut moving = Vec::new();
            for flow in &bundle.flows {
                // First the flows whose path is still wanted: they need not move. The others take
                // what is left.
                match self.option_of(*flow, &paths[*flow]).filter(|option| left[*option] > 0) {
                    Some(option) => left[option] -= 1,
                    None => moving.push(*flow),
                }
            }
            let places = (0..left.len())
                .flat_map(|option| std::iter::repeat_n(option, left[option] as usize));
            for (flow, option) in moving.into_iter().zip(places) {
                let route: &RoutableFlow<'_> = &self.traffic.flows[flow];
                let segment = &self.traffic.segments(route)[option];
                chosen[flow] = IndexedTraffic::full_path(route, segment);
            }
        }
        chosen
    }

    /// Levels by job of the plan as positions among those that jobs may have, within the bounds of
    /// each job.
    pub(super) fn level_indices(&self, levels: &[u8]) -> Vec<u8> {
        let jobs = self.allowed_levels.iter().zip(self.ordinals);
        jobs.map(|(allowed, ordinal)| {
            // The level may have come from a policy with other levels: the next one that exists
            // stands for it.
            let at = self.job_levels.partition_point(|given| *given < levels[*ordinal]);
            to_level(at).clamp(*allowed.start(), *allowed.end())
        })
        .collect()
    }

    /// The level at a position among those that jobs may have.
    pub(super) fn level_at(&self, index: u8) -> u8 {
        self.job_levels[usize::from(index)]
    }

    /// Number of levels that jobs may have.
    pub(super) fn level_count(&self) -> usize {
        self.job_levels.len()
    }
}

/// The links of a job as they are found.
#[derive(Default)]
struct JobLinks {
    positions: BTreeMap<LinkId, u32>,
    links: Vec<LinkId>,
    /// Flows and bytes by position.
    fixed: BTreeMap<u32, (f64, f64)>,
}

impl JobLinks {
    fn position_of(&mut self, link: LinkId) -> u32 {
        *self.positions.entry(link).or_insert_with(|| {
            self.links.push(link);
            self.links.len() as u32 - 1
        })
    }

    fn count_fixed(&mut self, links: impl Iterator<Item = LinkId>, bytes: f64) {
        for link in links {
            let at = self.position_of(link);
            let sums = self.fixed.entry(at).or_default();
            (sums.0, sums.1) = (sums.0 + 1.0, sums.1 + bytes);
        }
    }
}
