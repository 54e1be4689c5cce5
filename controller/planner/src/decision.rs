//! From paths to a plan: priorities, levels, what the fluid model finds better, and pins.
//!
//! Both planners end here: `plan`, which chooses all paths, and [`IncrementalPlanner`], which
//! chooses those that an event affects. Their plans therefore agree.
//!
//! [`IncrementalPlanner`]: crate::IncrementalPlanner

use std::hash::{DefaultHasher, Hash, Hasher};

use topology::LinkPath;

use crate::input_digest::ComparedInputs;
use crate::job_ranking::JobRanking;
use crate::levels::LevelScope;
use crate::network_demand::NetworkDemand;
use crate::path_selection::{self, PathAssignment};
use crate::plan::{Plan, PlannedFlow, PlannedJob, PlannedRule, StartShift};
use crate::plan_context::{PlanContext, PlanDepth, PlanRegion};
use crate::policy::Policy;
use crate::priority::{self, JobPriority, ReferenceJobs};
use crate::refine::{self, Decisions, PlanComparison};
use crate::report::{PlanReport, ReportInputs};
use crate::traffic::IndexedTraffic;
use crate::{buffer_cycles, pins, shared_tuples};

/// The regions of a plan.
pub(crate) struct PlanRegions {
    /// Those that are compared.
    comparable: Vec<PlanRegion>,
    /// Whether a plan of full depth may differ from a quick one.
    is_open: bool,
}

/// A plan with the ranking of its jobs.
pub(crate) struct DecidedPlan {
    pub(crate) plan: Plan,
    pub(crate) ranking: JobRanking,
    /// What was compared before it was adopted.
    pub(crate) comparison: PlanComparison,
}

impl PlanContext<'_> {
    /// The plan with all paths chosen here, and those paths; the slot of a job is its ordinal.
    pub(crate) fn select_and_decide(&self) -> (PathAssignment, DecidedPlan) {
        let regions = self.find_regions();
        // Crux §4.1: the most intense job chooses first.
        let assignment = path_selection::select_paths(self.traffic, self.previous, self.policy);
        let paths = assignment.paths_of(0..self.traffic.jobs.len());
        let decided = self.decide_plan(&regions, paths);
        (assignment, decided)
    }

    /// The plan on `paths`, by flow; its generation is for [`Plan::succeeding`].
    pub(crate) fn decide_plan(&self, regions: &PlanRegions, paths: Vec<LinkPath>) -> DecidedPlan {
        let Self { traffic, policy, previous, corrections, .. } = *self;
        // Crux §4.2 and §4.3: the corrected intensity on those paths is the priority; then few
        // levels for many priorities, separated where it matters most.
        let references = match self.effective_depth(regions) {
            PlanDepth::Quick => ReferenceJobs::Running(previous),
            PlanDepth::Full | PlanDepth::Settled => ReferenceJobs::All,
        };
        let mut ranking = JobRanking::new(traffic, &paths, policy, (references, corrections));
        let compared: Vec<usize> =
            regions.comparable.iter().flat_map(|region| &region.jobs).copied().collect();
        let scope = LevelScope { compared: &compared, ..LevelScope::ALL };
        let levels = ranking.assign_levels(traffic, policy, previous, scope);

        // Beyond the paper: the fluid model judges paths and levels where jobs share links, and
        // nothing is adopted that it finds worse than an alternative.
        let selected = paths.clone();
        let mut found = Decisions::new(paths, levels);
        let mut comparison = self.decide_regions(regions, &mut found);
        comparison.refused_cycles = buffer_cycles::refuse_cycles(traffic, &mut found);
        shared_tuples::join_paths(traffic, &mut found.paths);
        // Demands depend on the paths, so other paths ask for a new ranking.
        if found.paths != selected {
            ranking = JobRanking::new(traffic, &found.paths, policy, (references, corrections));
        }
        ranking = ranking.with_compared(&found.levels, &found.compared);
        let by_intensity = path_selection::order_by_intensity(ranking.demands.iter());
        let mut pinned = pins::assign_pins(traffic, &found.paths, &by_intensity, policy);
        shared_tuples::unpin_contradictions(traffic, &found.paths, &mut pinned);
        let decisions = PhaseResults {
            traffic,
            paths: &found.paths,
            demands: &ranking.demands,
            priorities: &ranking.priorities,
            positions: &priority::positions_in(&ranking.order),
            levels: &found.levels,
            shifts: &found.shifts,
            numbers: previous.job_numbers(),
            rules: policy.planned_rules(traffic.fabric, &traffic.jobs),
        };
        let mut plan = decisions.build_plan(&pinned, policy.levels);
        plan.compared_inputs = ComparedInputs(comparison.digests().collect());
        DecidedPlan { plan, ranking, comparison }
    }

    /// The depth of this plan: full where no plan of full depth follows.
    fn effective_depth(&self, regions: &PlanRegions) -> PlanDepth {
        if regions.is_open || self.depth == PlanDepth::Settled {
            self.depth
        } else {
            PlanDepth::Full
        }
    }

    /// The regions in which jobs are decided together.
    pub(crate) fn find_regions(&self) -> PlanRegions {
        let (comparable, has_oversized) = self.comparable_regions();
        let is_new = |region: &PlanRegion| !self.previous.was_compared(region.digest);
        PlanRegions { is_open: has_oversized || comparable.iter().any(is_new), comparable }
    }

    /// The regions in which candidates are compared, and whether there are others that are too
    /// large for that.
    fn comparable_regions(&self) -> (Vec<PlanRegion>, bool) {
        let Self { traffic, policy, .. } = *self;
        let mut regions = refine::comparable_regions(traffic, policy);
        let all = regions.len();
        regions.retain(|region| !refine::is_oversized(traffic, region));
        let has_oversized = regions.len() < all;
        if regions.is_empty() {
            return (Vec::new(), has_oversized);
        }
        let shared = SharedInputs::new(traffic, policy);
        let with_digest = |jobs: Vec<usize>| {
            let digest = shared.digest_region(jobs.iter().map(|job| traffic.routes[*job].digest));
            PlanRegion { jobs, digest }
        };
        (regions.into_iter().map(with_digest).collect(), has_oversized)
    }

    /// Decides all `regions` and says what was compared: those that were compared for these very
    /// inputs stay as they are.
    fn decide_regions(&self, regions: &PlanRegions, found: &mut Decisions) -> PlanComparison {
        let comparable = &regions.comparable;
        let (compared, open): (Vec<&PlanRegion>, Vec<&PlanRegion>) =
            comparable.iter().partition(|region| self.previous.was_compared(region.digest));
        let mut comparison = match self.effective_depth(regions) {
            PlanDepth::Full => {
                refine::keep_in_force(self, &compared, found);
                let (mut comparison, others) = refine::adopt_best(self, &open, found);
                refine::shift_starts(self, &open, found, (&mut comparison, &others));
                comparison
            }
            PlanDepth::Settled => {
                let (mut comparison, others) = refine::adopt_best(self, &open, found);
                refine::keep_paths(self, &open, found, &mut comparison);
                refine::shift_starts(self, &open, found, (&mut comparison, &others));
                comparison
            }
            PlanDepth::Quick => {
                refine::choose_levels_quickly(self, comparable, found);
                refine::keep_shifts(self, comparable.iter(), found);
                PlanComparison { is_provisional: true, ..PlanComparison::default() }
            }
        };
        comparison.compared = compared.into_iter().map(|region| region.digest).collect();
        comparison
    }

    /// The report on `plan`, whose jobs have this `ranking`.
    pub(crate) fn build_report(
        &self,
        plan: &Plan,
        ranking: &JobRanking,
        comparison: PlanComparison,
    ) -> PlanReport {
        let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
        order.sort_by_key(|job| plan.jobs[*job].rank);
        let evidence = ReportInputs {
            traffic: self.traffic,
            demands: &ranking.demands,
            sharing: &ranking.sharing,
            reference: ranking.reference,
            order: &order,
            policy: self.policy,
            previous: self.previous,
        };
        evidence.build_report(plan, comparison)
    }
}

/// What all regions of a plan have in common.
struct SharedInputs(DefaultHasher);

impl SharedInputs {
    fn new(traffic: &IndexedTraffic<'_>, policy: &Policy) -> Self {
        let mut hasher = DefaultHasher::new();
        traffic.tables.digest_fabric(traffic.fabric).hash(&mut hasher);
        format!("{policy:?}").hash(&mut hasher);
        Self(hasher)
    }

    /// The digest of the inputs of a region with jobs of these digests; equal inputs have equal
    /// digests in every run.
    fn digest_region(&self, jobs: impl Iterator<Item = u64>) -> u64 {
        let mut hasher = self.0.clone();
        jobs.for_each(|job| job.hash(&mut hasher));
        hasher.finish()
    }
}

/// Results of the phases, by ordinal.
struct PhaseResults<'a> {
    traffic: &'a IndexedTraffic<'a>,
    /// By flow; empty for a flow without a path.
    paths: &'a [LinkPath],
    demands: &'a [NetworkDemand],
    priorities: &'a [JobPriority],
    /// Place of each job in the order of priority, from 0.
    positions: &'a [usize],
    levels: &'a [u8],
    shifts: &'a [Option<StartShift>],
    numbers: Vec<u32>,
    rules: Vec<PlannedRule>,
}

impl PhaseResults<'_> {
    /// The plan with these results; [`Plan::succeeding`] sets its generation.
    fn build_plan(&self, pinned: &[bool], levels: u8) -> Plan {
        let flows = self.traffic.flows.iter().zip(self.paths).zip(pinned);
        Plan {
            generation: 1,
            levels,
            jobs: self.planned_jobs(),
            flows: flows
                .map(|((routable, path), pinned)| PlannedFlow {
                    job: routable.job,
                    src: routable.flow.src,
                    dst: routable.flow.dst,
                    udp_src_port: routable.flow.udp_src_port,
                    links: *path,
                    pinned: *pinned,
                })
                .collect(),
            rules: self.rules.clone(),
            compared_inputs: ComparedInputs::default(),
            counted_pairs: Vec::new(),
        }
    }

    fn planned_jobs(&self) -> Vec<PlannedJob> {
        (0..self.positions.len())
            .map(|job| PlannedJob {
                id: self.traffic.jobs[job].id.clone(),
                number: self.numbers[job],
                intensity: self.demands[job].intensity,
                bottleneck_seconds: self.demands[job].bottleneck_seconds,
                correction: self.priorities[job].correction,
                priority: self.priorities[job].value,
                rank: u32::try_from(self.positions[job] + 1).unwrap_or(u32::MAX),
                level: self.levels[job],
                start_shift: self.shifts[job],
                sprayed: false,
            })
            .collect()
    }
}
