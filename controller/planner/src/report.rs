//! The report on a plan: loads, bounds, the cut, moved flows, and the rationale of each job.
//!
//! A report is made with its plan and explains it; nothing is lowered from it, and two equal plans
//! may have different reports (moved flows are relative to the previous plan).

use std::collections::BTreeMap;

use topology::{Fabric, Finding, LinkId, SwitchId, next_hops};

use crate::bounds::LoadLowerBound;
use crate::contention::{ContentionDag, LinkSharing};
use crate::name_matching;
use crate::network_demand::NetworkDemand;
use crate::path_selection;
use crate::pins;
use crate::plan::{Plan, PlannedFlow};
use crate::policy::{CompressionMethod, Policy};
use crate::previous_plan::PreviousPlan;
use crate::refine::PlanComparison;
use crate::sparse_sums::SparseSums;
use crate::traffic::IndexedTraffic;

/// Explanation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanReport {
    /// Links that carry planned traffic, ascending.
    pub links: Vec<LinkLoad>,
    /// How priorities became levels.
    pub compression: CompressionReport,
    /// Quality of the paths.
    pub bounds: LoadBounds,
    /// The candidates that the plan was chosen from, and what each was worth.
    pub comparison: PlanComparison,
    /// What an operator should know: jobs without a path, flows left to ECMP.
    pub findings: Vec<Finding>,
    /// Positions in [`Plan::flows`] of flows that the previous plan had on another path, ascending.
    pub moved: Vec<usize>,
    /// Positions in [`Plan::flows`] of flows left to ECMP because a switch has no room for them by
    /// the rules of its own program, with the first such switch. The planner finds none; lowering
    /// does.
    pub unpinned: BTreeMap<usize, SwitchId>,
    /// Reasons for each job's decisions, by position in [`Plan::jobs`].
    pub rationales: Vec<JobRationale>,
}

/// Planned load of one directed link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLoad {
    /// The directed link of the load.
    pub link: LinkId,
    /// Share of time that it is busy if every job runs undisturbed; above 1 they cannot all.
    pub load: f64,
    /// Positions in [`Plan::jobs`] of the jobs on it, ascending.
    pub jobs: Vec<usize>,
}

/// The cut that compression made of the contention DAG.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressionReport {
    /// Method of the compression.
    pub method: CompressionMethod,
    /// `K`: levels of the switches.
    pub levels: u8,
    /// Weight of the edges whose jobs are in different levels, FLOP/s.
    pub cut_weight: f64,
    /// Weight of all edges, FLOP/s.
    pub total_weight: f64,
}

/// Load of the busiest link and its lower bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadBounds {
    /// Largest load of a link under the plan.
    pub max_load: f64,
    /// No choice of paths has a largest load below this.
    pub max_load_lower_bound: f64,
}

/// Reasons for the decisions on one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRationale {
    /// The link that takes `t_j`; none if the job has no traffic or no path.
    pub bottleneck: Option<LinkId>,
    /// `T_j`: an iteration alone on the chosen paths, in seconds.
    pub iteration_seconds: f64,
    /// The job (position) it was compared with; none where that is its contenders.
    pub reference: Option<usize>,
    /// Jobs (positions) that it shares a link with, ascending.
    pub contenders: Vec<usize>,
    /// Those of them with a higher priority that are in the same level.
    pub tied_with: Vec<usize>,
    /// Pattern of the policy's override that counts for it.
    pub rule: Option<String>,
}

impl PlanReport {
    /// Adds what was compared for regions of an earlier plan that `plan` keeps as they were, with
    /// the findings about it.
    pub fn keep_earlier(
        &mut self,
        plan: &Plan,
        policy: &Policy,
        earlier_plan: &Plan,
        earlier: &PlanComparison,
    ) {
        let new = self.comparison.regions.len();
        self.comparison.keep_earlier(plan, earlier_plan, earlier);
        self.findings.extend(self.comparison.wait_findings(plan, policy, new));
    }
}

/// Input of a report.
pub(crate) struct ReportInputs<'a> {
    pub(crate) traffic: &'a IndexedTraffic<'a>,
    pub(crate) demands: &'a [NetworkDemand],
    pub(crate) sharing: &'a LinkSharing,
    /// The job that all others are compared with, if policy has one.
    pub(crate) reference: Option<usize>,
    /// Jobs by descending priority.
    pub(crate) order: &'a [usize],
    pub(crate) policy: &'a Policy,
    pub(crate) previous: &'a PreviousPlan<'a>,
}

impl ReportInputs<'_> {
    /// The report on `plan`.
    pub(crate) fn build_report(&self, plan: &Plan, comparison: PlanComparison) -> PlanReport {
        let links = self.link_loads(plan);
        let max_load = links.iter().map(|link| link.load).fold(0.0, f64::max);
        let max_load_lower_bound = load_lower_bound(self.traffic, self.flow_rates());
        PlanReport {
            links,
            compression: self.compression_report(plan),
            bounds: LoadBounds { max_load, max_load_lower_bound },
            findings: self.collect_findings(plan, &comparison),
            comparison,
            moved: self.moved_flows(plan),
            unpinned: BTreeMap::new(),
            rationales: (0..plan.jobs.len()).map(|job| self.explain_job(plan, job)).collect(),
        }
    }

    fn link_loads(&self, plan: &Plan) -> Vec<LinkLoad> {
        let links = self.traffic.fabric.capacity_link_count();
        let mut rates = SparseSums::new(links);
        let mut jobs: Vec<Vec<usize>> = vec![Vec::new(); links];
        let flows = plan.flows.iter().zip(&self.traffic.flows).zip(self.flow_rates());
        for ((planned, flow), rate) in flows {
            self.traffic.for_each_link(flow.flow, &planned.links, |link| {
                rates.add_at(link.index(), rate);
                let on_link = &mut jobs[link.index()];
                if on_link.last() != Some(&planned.job) {
                    on_link.push(planned.job);
                }
            });
        }
        let used = jobs.into_iter().enumerate();
        used.filter(|(_, jobs)| !jobs.is_empty())
            .map(|(index, jobs)| {
                let link = LinkId::from(index);
                let load = rates.sum_at(index) / self.traffic.tables.link_capacity(link);
                LinkLoad { link, load, jobs }
            })
            .collect()
    }

    /// Bytes per second of every flow, in the order of the plan.
    fn flow_rates(&self) -> impl Iterator<Item = f64> {
        let flows = self.traffic.flows.iter();
        flows
            .map(|f| path_selection::mean_rate(f.flow.bytes, self.demands[f.job].iteration_seconds))
    }

    fn compression_report(&self, plan: &Plan) -> CompressionReport {
        let intensities: Vec<f64> = self.demands.iter().map(|demand| demand.intensity).collect();
        let dag = ContentionDag::new(self.sharing, self.order, &intensities);
        let levels: Vec<u8> = self.order.iter().map(|job| plan.jobs[*job].level).collect();
        CompressionReport {
            method: self.policy.compression,
            levels: self.policy.levels,
            cut_weight: dag.cut_weight(&levels),
            total_weight: dag.total_weight(),
        }
    }

    fn collect_findings(&self, plan: &Plan, comparison: &PlanComparison) -> Vec<Finding> {
        let mut findings: Vec<Finding> =
            (0..plan.jobs.len()).filter_map(|job| self.pathless_finding(plan, job)).collect();
        let pinned: Vec<bool> = plan.flows.iter().map(|flow| flow.pinned).collect();
        findings.extend(pins::pin_findings(self.traffic, &pinned, self.policy));
        findings.extend(self.unmatched_overrides());
        findings.extend(comparison.refused_cycles.iter().cloned());
        findings.extend(comparison.wait_findings(plan, self.policy, 0));
        findings
    }

    /// Overrides that match no job, while there are jobs: the name may be misspelt.
    fn unmatched_overrides(&self) -> Vec<Finding> {
        let jobs = &self.traffic.jobs;
        let idle = self
            .policy
            .overrides
            .iter()
            .filter(|rule| !jobs.iter().any(|job| rule.matches_job(job)))
            .filter(|_| !jobs.is_empty());
        idle.map(|rule| {
            let pattern = &rule.pattern;
            let name = pattern.split_once(':').map_or(pattern.as_str(), |(_, name)| name);
            let known = jobs.iter().flat_map(|job| {
                let tenant = job.tenant.as_deref();
                std::iter::once(job.id.as_str()).chain(tenant)
            });
            let hint = name_matching::suggestion(name, known);
            Finding::warning("policy", format!("the override `{pattern}` matches no job{hint}"))
        })
        .collect()
    }

    /// A job some flow of which has no path.
    fn pathless_finding(&self, plan: &Plan, job: usize) -> Option<Finding> {
        let flows = &plan.flows[self.traffic.spans[job].clone()];
        let lost: Vec<&PlannedFlow> = flows.iter().filter(|flow| flow.links.is_empty()).collect();
        let first = lost.first()?;
        let fabric = self.traffic.fabric;
        let [src, dst] = [first.src, first.dst].map(|nic| &fabric.host(fabric.nic(nic).host).name);
        let (count, all) = (lost.len(), flows.len());
        let about = format!("job {}", plan.jobs[job].id);
        let standing = fabric.without_drains();
        if lost.iter().all(|flow| has_path(&standing, flow)) {
            let text = format!(
                "its last path is drained: {count} of its {all} flows stay on it, by ECMP and \
                 without a plan, the first from {src} to {dst}"
            );
            return Some(Finding::error(about, text));
        }
        let text = format!(
            "job without a path: no usable path for {count} of its {all} flows, the first from \
             {src} to {dst}"
        );
        Some(Finding::error(about, text))
    }

    fn moved_flows(&self, plan: &Plan) -> Vec<usize> {
        let jobs = self.traffic.jobs.iter().enumerate();
        let previous = jobs.flat_map(|(ordinal, job)| self.previous.job_paths(ordinal, job));
        let flows = plan.flows.iter().zip(previous).enumerate();
        let moved = flows.filter(|(_, (planned, had))| had.is_some_and(|had| had != planned.links));
        moved.map(|(position, _)| position).collect()
    }

    fn explain_job(&self, plan: &Plan, job: usize) -> JobRationale {
        let contenders: Vec<usize> = self.sharing.sharers_of(job).collect();
        let own = &plan.jobs[job];
        let rule = self.policy.override_for(self.traffic.jobs[job]);
        JobRationale {
            bottleneck: self.demands[job].bottleneck,
            iteration_seconds: self.demands[job].iteration_seconds,
            reference: self.reference,
            tied_with: contenders
                .iter()
                .filter(|other| {
                    plan.jobs[**other].rank < own.rank && plan.jobs[**other].level == own.level
                })
                .copied()
                .collect(),
            contenders,
            rule: rule.map(|rule| rule.pattern.clone()),
        }
    }
}

/// What the load of the busiest link is at least, on any paths, where the flows of `traffic` send at
/// `rates`, in their order.
pub(crate) fn load_lower_bound(
    traffic: &IndexedTraffic<'_>,
    rates: impl Iterator<Item = f64>,
) -> f64 {
    let mut least = LoadLowerBound::new(traffic.fabric, &traffic.tables);
    for (flow, rate) in traffic.flows.iter().zip(rates) {
        let inside = flow.flow.intra_host_links(traffic.fabric);
        least.add_flow(flow, traffic.leaf_pair(flow), inside, rate);
    }
    least.max_load()
}

/// Whether the NICs of a flow have a path over usable links.
fn has_path(fabric: &Fabric, flow: &PlannedFlow) -> bool {
    let [src, dst] = [flow.src, flow.dst];
    let has_cable = |nic| fabric.is_usable(fabric.nic(nic).uplink);
    let leaves = [src, dst].map(|nic| fabric.leaf_of(nic));
    has_cable(src) && has_cable(dst) && next_hops(fabric, leaves[1]).distance(leaves[0]).is_some()
}
