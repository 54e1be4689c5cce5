//! The preview of a policy change, before anything is written.
//!
//! Pure: it takes the [`PlanRequest`] of the proposed policy and the rollout in force. The
//! decision: the preview uses the same planner, lowering and diff as a real change, and the terms
//! of the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::SwitchTables;
use planner::{
    Job, JobId, Plan, PlanDocument, PlanForecast, PlannedFlow, PlannedFlowDocument,
    StartShiftDocument, TransportModel, find_counted_pairs, spread_over_ports, with_learned_flows,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, Finding, SwitchId};

use crate::forecast::{DcqcnConvergence, SecondsBand, forecast_plan, least_utilization};
use crate::pipelines::{lower_plan, pipeline_at};
use crate::state::{PlanRequest, PlanRollout};

/// The effects that a change of policy would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyPreview {
    /// The fields of the policy that differ, with both values.
    pub policy: Vec<String>,
    /// What follows.
    #[serde(flatten)]
    pub plan: PlanPreview,
}

/// The effects that another fabric would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricPreview {
    /// The parts of the fabric that are added, removed or changed.
    pub fabric: Vec<String>,
    /// Running jobs whose hosts or NICs it lacks; applying it needs `force`.
    pub lost_jobs: Vec<String>,
    /// What follows.
    #[serde(flatten)]
    pub plan: PlanPreview,
}

/// The effects that another plan would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPreview {
    /// Jobs whose level or iteration time changes.
    pub jobs: Vec<JobChange>,
    /// The other jobs.
    #[serde(default)]
    pub unchanged: Vec<JobChange>,
    /// Flows that take another path, or are pinned or no longer.
    pub flows: Vec<FlowChange>,
    /// Switches to which something would be written.
    pub switches: Vec<SwitchChange>,
    /// Share of the jobs' GPU time in which they compute, by the fluid model.
    pub gpu_utilization: ValueChange<f64>,
    /// The least that it may be where the policy says that hosts send under DCQCN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_gpu_utilization: Option<ValueChange<f64>>,
    /// Findings about the plan and the forecast.
    pub findings: Vec<Finding>,
}

/// A value before and after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValueChange<T> {
    /// The value before it.
    pub before: T,
    /// The value after it.
    pub after: T,
}

/// The effect on a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobChange {
    /// Its name.
    pub id: String,
    /// Its level; none where it is not planned.
    pub level: ValueChange<Option<u8>>,
    /// Seconds of an iteration by the fluid model; none if it completes none.
    pub iteration_seconds: ValueChange<Option<f64>>,
    /// Between what bounds that is, whatever the phases in which jobs meet.
    #[serde(default)]
    pub iteration_band: ValueChange<Option<SecondsBand>>,
    /// When it begins its iterations; none if it does not wait.
    #[serde(default)]
    pub start_shift: ValueChange<Option<StartShiftDocument>>,
    /// How much longer an iteration may take, seconds, where the policy says that hosts send under
    /// DCQCN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dcqcn_excess_seconds: Option<ValueChange<f64>>,
}

/// The effect on a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowChange {
    /// Its job.
    pub job: String,
    /// Sending host.
    pub src: String,
    /// Receiving host.
    pub dst: String,
    /// UDP source port; absent where only its NICs are known.
    pub udp_src_port: Option<u16>,
    /// Hosts and switches on its path.
    pub path: ValueChange<Vec<String>>,
    /// Whether it is pinned to the path.
    pub pinned: ValueChange<bool>,
}

/// The effect on a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchChange {
    /// Its name.
    pub name: String,
    /// What would be written, in order.
    pub entries: Vec<String>,
}

/// A plan in force, and what it is of.
#[derive(Clone, Copy, Debug)]
pub struct PresentPlan<'a> {
    /// The rollout.
    pub rollout: &'a PlanRollout,
    /// Its jobs, in the ids of its fabric.
    pub jobs: &'a [Job],
    /// What its switches hold.
    pub tables: &'a BTreeMap<SwitchId, Arc<SwitchTables>>,
}

/// What the plan of `request` would change of the one in force, perhaps on another fabric; nothing
/// if the interrupt of its policy is raised meanwhile.
pub fn preview_plan(request: PlanRequest, present: PresentPlan<'_>) -> Option<PlanPreview> {
    let interrupt = request.policy.interrupt.clone();
    let (fabric, jobs) = (request.fabric.clone(), request.jobs.clone());
    let (wiring, transport) = (Arc::clone(&request.wiring), request.policy.transport);
    let result = request.compute_plan();
    if interrupt.is_raised() {
        return None;
    }
    let PresentPlan { rollout: present, jobs: jobs_before, tables } = present;
    let jobs_before = &spread_over_ports(&present.fabric, jobs_before.to_vec())[..];
    let now = forecast_plan(&present.fabric, jobs_before, &present.plan);
    let then = forecast_plan(&fabric, &jobs, &result.plan);
    if interrupt.is_raised() {
        return None;
    }
    let band = (transport == TransportModel::Dcqcn).then(|| {
        let band = DcqcnConvergence::default();
        ForecastBand {
            now: band.band(jobs_before, &present.plan, &now),
            then: band.band(&jobs, &result.plan, &then),
        }
    });
    let least_gpu_utilization = band.as_ref().map(|band| ValueChange {
        before: least_utilization(jobs_before, &now, &band.now),
        after: least_utilization(&jobs, &then, &band.then),
    });
    let before = PlanDocument::new(&present.fabric, &present.plan, &present.report);
    let after = PlanDocument::new(&fabric, &result.plan, &result.report);
    let lowered_plan = if Arc::ptr_eq(&wiring, &present.wiring) {
        let learned = learned_under(present, &result.plan);
        let counted = find_counted_pairs(&fabric, &result.plan, &present.basis.connections);
        with_learned_flows(&result.plan, &learned, &counted)
    } else {
        // On another fabric, connections are learned anew.
        Plan::clone(&result.plan)
    };
    let lowered = lower_plan(&wiring, &fabric, &lowered_plan);
    let (jobs, unchanged) =
        job_changes([&present.plan, &result.plan], [&now, &then], band.as_ref());
    let mut findings = result.report.findings.clone();
    findings.extend(ecmp_finding(&before, &after));
    Some(PlanPreview {
        jobs,
        unchanged,
        flows: flow_changes(&before, &after),
        switches: switch_changes([&present.fabric, &fabric], tables, &lowered),
        least_gpu_utilization,
        gpu_utilization: ValueChange { before: now.gpu_utilization, after: then.gpu_utilization },
        findings,
    })
}

/// The learned flows in force, by the positions of their jobs in another plan. Their paths are
/// those in force: a new plan may move them with their pairs.
fn learned_under(present: &PlanRollout, plan: &Plan) -> Vec<PlannedFlow> {
    let flows = present.learned.iter().filter_map(|flow| {
        let (job, _) = plan.job(&present.plan.jobs.get(flow.job)?.id)?;
        Some(PlannedFlow { job, ..flow.clone() })
    });
    flows.collect()
}

/// How much longer iterations may take under DCQCN, seconds, under the plan in force and the next.
struct ForecastBand {
    now: BTreeMap<JobId, f64>,
    then: BTreeMap<JobId, f64>,
}

impl ForecastBand {
    fn of_job(&self, id: &JobId) -> ValueChange<f64> {
        let [before, after] =
            [&self.now, &self.then].map(|longer| longer.get(id).copied().unwrap_or(0.0));
        ValueChange { before, after }
    }
}

/// Iteration times that differ by a smaller share are equal: the fluid model's ticks are as coarse.
const SAME_TOLERANCE: f64 = 1e-3;

/// Jobs that change, and the other jobs.
fn job_changes(
    plans: [&Plan; 2],
    forecasts: [&PlanForecast; 2],
    band: Option<&ForecastBand>,
) -> (Vec<JobChange>, Vec<JobChange>) {
    let names: BTreeSet<&JobId> =
        plans.iter().flat_map(|plan| &plan.jobs).map(|job| &job.id).collect();
    let changes = names.into_iter().map(|id| {
        let levels = plans.map(|plan| plan.job(id).map(|(_, job)| job.level));
        let seconds = forecasts.map(|forecast| forecast.seconds(id));
        let bands = forecasts.map(|forecast| forecast.iteration(id).map(SecondsBand::of));
        let shifts = plans.map(|plan| plan.job(id)?.1.start_shift.map(StartShiftDocument::from));
        JobChange {
            id: id.to_string(),
            level: ValueChange { before: levels[0], after: levels[1] },
            iteration_seconds: ValueChange { before: seconds[0], after: seconds[1] },
            iteration_band: ValueChange { before: bands[0], after: bands[1] },
            start_shift: ValueChange { before: shifts[0], after: shifts[1] },
            dcqcn_excess_seconds: band.map(|band| band.of_job(id)),
        }
    });
    changes.partition(is_changed)
}

fn is_changed(job: &JobChange) -> bool {
    let ValueChange { before, after } = job.iteration_seconds;
    let both = before.zip(after);
    let is_near = both.is_some_and(|(a, b)| (a - b).abs() <= SAME_TOLERANCE * a.max(b));
    job.level.before != job.level.after
        || job.start_shift.before != job.start_shift.after
        || (before != after && !is_near)
}

/// The assumption of the forecast that nobody can check: the paths of flows with a choice and
/// without a pin. Their hash includes the queue pair, which only hosts know.
fn ecmp_finding(before: &PlanDocument, after: &PlanDocument) -> Option<Finding> {
    let [before, after] = [before, after].map(|plan| {
        let flows = plan.flows.iter();
        // Under one leaf there is no choice: host, leaf, host.
        flows.filter(|flow| !flow.pinned && flow.path.len() > 3).count()
    });
    let text = format!(
        "{before} flows before and {after} after are left to ECMP; the forecast assumes the paths \
         of the plan, and their hash may take others"
    );
    (before + after > 0).then(|| Finding::info("forecast", text))
}

fn flow_changes(before: &PlanDocument, after: &PlanDocument) -> Vec<FlowChange> {
    let had: BTreeMap<_, _> = before.flows.iter().map(|flow| (flow_key(flow), flow)).collect();
    let pairs = after.flows.iter().filter_map(|flow| Some((*had.get(&flow_key(flow))?, flow)));
    let differ = pairs.filter(|(a, b)| (&a.links, a.pinned) != (&b.links, b.pinned));
    let changes = differ.map(|(before, after)| FlowChange {
        job: after.job.clone(),
        src: after.src.clone(),
        dst: after.dst.clone(),
        udp_src_port: after.udp_src_port,
        path: ValueChange { before: before.path.clone(), after: after.path.clone() },
        pinned: ValueChange { before: before.pinned, after: after.pinned },
    });
    changes.collect()
}

/// What identifies a flow in both plans: the port that sends it, the NIC that receives it, and its
/// UDP port, if it has one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ComparedFlow<'a> {
    src: (&'a str, u32, Option<u32>),
    dst: (&'a str, u32),
    udp_src_port: Option<u16>,
}

fn flow_key(flow: &PlannedFlowDocument) -> ComparedFlow<'_> {
    ComparedFlow {
        src: (&flow.src, flow.src_nic, flow.src_port),
        dst: (&flow.dst, flow.dst_nic),
        udp_src_port: flow.udp_src_port,
    }
}

/// Table updates of the switches of the second fabric, which may be in the first by another id.
fn switch_changes(
    [known, fabric]: [&Fabric; 2],
    before: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    after: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> Vec<SwitchChange> {
    let nothing = Arc::default();
    let changes = after.iter().map(|(switch, desired)| {
        let known = known.switch_named(&fabric.switch(*switch).name);
        let actual = known.and_then(|known| before.get(&known)).unwrap_or(&nothing);
        let p4info = &pipeline_at(fabric, *switch).program().p4info;
        let updates = p4::diff_tables(p4info, desired, actual);
        SwitchChange {
            name: fabric.switch(*switch).name.clone(),
            entries: updates.iter().map(|update| p4info.display(update).to_string()).collect(),
        }
    });
    changes.filter(|change| !change.entries.is_empty()).collect()
}
