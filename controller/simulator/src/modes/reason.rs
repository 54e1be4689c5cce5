//! Why one mode is better than another, from what is asked of links.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, LinkId, NicId};

use super::advice::{ModeEstimate, TOLERATED};
use super::mode_run::ModeGroup;
use super::mode_traffic::ModeTraffic;
use super::{ForwardingMode, PlannedJobs};
use crate::demand::LinkDemand;

/// The hash that stands for all where links are named.
const EXAMPLE_DRAW: u64 = 0;

/// Links that are asked for more or less by this share explain a difference.
const NOTICEABLE: f64 = 0.05;

/// A link with what jobs ask of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BusiestLink {
    /// Name of the directed link.
    pub link: String,
    /// What jobs would send over it if none waited for another, as a share of what it carries.
    pub demand: f64,
    /// The part of that share that is the job's own.
    pub own_demand: f64,
}

/// What a mode asks of links between switches, under one hash.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModeLoad {
    /// Other jobs on the links that the job uses.
    pub(super) met_jobs: usize,
    /// The link of those that is asked for most.
    pub(super) busiest_link: Option<BusiestLink>,
}

impl ModeLoad {
    pub(super) fn new(group: &ModeGroup<'_>, mode: ForwardingMode) -> Self {
        let fabric = &group.planned.input.fabric;
        let traffic = ModeTraffic::new(group.planned, group.job, mode, EXAMPLE_DRAW);
        let mut own = group.share_of_time(group.job, &traffic.link_demand(group.planned));
        own.retain(|link, _| joins_switches(fabric, *link));
        let mut demands = own.clone();
        let mut met_jobs = 0;
        for member in group.members.iter().filter(|member| **member != group.job) {
            let mut is_met = false;
            for (link, share) in planned_share(group, *member) {
                if let Some(demand) = demands.get_mut(&link) {
                    *demand += share;
                    is_met = true;
                }
            }
            met_jobs += usize::from(is_met);
        }
        // Of equals the first.
        let busiest = demands.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let busiest_link = busiest.map(|(link, demand)| BusiestLink {
            link: fabric.link_name(*link),
            demand: *demand,
            own_demand: own[link],
        });
        Self { met_jobs, busiest_link }
    }
}

/// What a member asks of links as planned, as shares.
fn planned_share(group: &ModeGroup<'_>, member: usize) -> BTreeMap<LinkId, f64> {
    let PlannedJobs { input, schedule, .. } = group.planned;
    let (job, scheduled) = (&input.jobs[member], &schedule.jobs[member]);
    group.share_of_time(member, &LinkDemand::new(&input.fabric, job, &scheduled.paths))
}

fn joins_switches(fabric: &Fabric, link: LinkId) -> bool {
    let is_inside = fabric.intra_host_link(link).is_some();
    !is_inside && [link, link.reverse()].iter().all(|link| fabric.switch_after(*link).is_some())
}

/// Why `best` is best, in a sentence or two.
pub(super) fn explain_choice(
    group: &ModeGroup<'_>,
    modes: &[ModeEstimate],
    best: ForwardingMode,
) -> String {
    let [fewest, paths] = connections_and_paths(group);
    if paths <= 1 {
        return "each of its flows has one path".to_owned();
    }
    let chosen = modes.iter().find(|estimate| estimate.mode == best);
    let worst = modes.iter().min_by(|a, b| a.gpu_utilization.total_cmp(&b.gpu_utilization));
    let (Some(chosen), Some(worst)) = (chosen, worst) else {
        return String::new();
    };
    let lost = chosen.gpu_utilization - worst.gpu_utilization;
    if lost <= TOLERATED {
        return format!("no mode differs by more than {} points", TOLERATED * 100.0);
    }
    let above = format!("{:.1} points above {}", lost * 100.0, worst.mode);
    let because = [
        busier_link(chosen, worst),
        more_jobs(chosen, worst),
        (worst.mode == ForwardingMode::QpEcmp && fewest < paths).then(|| {
            let s = if fewest == 1 { "" } else { "s" };
            format!("a NIC pair has {fewest} connection{s} for {paths} paths")
        }),
    ];
    let because: Vec<String> = because.into_iter().flatten().collect();
    match because.is_empty() {
        true => format!("{above} in the fluid model: phases of jobs fit better"),
        false => format!("{above}: {}", because.join("; ")),
    }
}

/// That the busiest link is asked for more in a mode than in the best one.
fn busier_link(best: &ModeEstimate, other: &ModeEstimate) -> Option<String> {
    let (busy, less) = (other.busiest_link.as_ref()?, best.busiest_link.as_ref()?);
    (busy.demand > less.demand + NOTICEABLE).then(|| {
        let [busy_percent, percent] = [busy.demand, less.demand].map(|share| share * 100.0);
        format!(
            "there {} is asked for {busy_percent:.0} % of what it carries, here no link for more \
             than {percent:.0} %",
            busy.link
        )
    })
}

/// That a mode has more jobs wait for each other than the best one.
fn more_jobs(best: &ModeEstimate, other: &ModeEstimate) -> Option<String> {
    let (here, there) = (best.met_jobs, other.met_jobs);
    (there > here)
        .then(|| format!("it meets {there} jobs on links between switches there, {here} here"))
}

/// The fewest connections of a NIC pair of the job that has several paths, and those paths.
fn connections_and_paths(group: &ModeGroup<'_>) -> [usize; 2] {
    let mut pairs: BTreeMap<(NicId, NicId), [usize; 2]> = BTreeMap::new();
    for flow in &group.planned.input.jobs[group.job].flows {
        let pair = pairs
            .entry((flow.src, flow.dst))
            .or_insert_with(|| [0, group.planned.routes.all_paths(flow).len()]);
        pair[0] += 1;
    }
    let several = pairs.into_values().filter(|[_, paths]| *paths > 1);
    several.min().unwrap_or([0, 1])
}
