//! What a change of policy would do, before anything is written.
//!
//! Pure: a [`PlanRequest`] about the policy that is proposed, and what is in force. The decision:
//! what is shown is made by the same planner, lowering and difference as what would be written, and
//! told in the words of the documents, so that a person and a program read the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fluid::FluidError;
use p4::SwitchTables;
use planner::{JobId, Plan, PlanDocument, PlannedFlowDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, Finding, SwitchId};

use crate::forecast::{PlanForecast, forecast_plan};
use crate::pipelines::{default_pipeline, lower_plan};
use crate::state::{PlanRequest, PlanRollout};

/// What a change of policy would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyPreview {
    /// What the policy says differently, field by field.
    pub policy: Vec<String>,
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
    /// What an operator should know.
    pub findings: Vec<Finding>,
}

/// What something is and would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValueChange<T> {
    /// Now.
    pub before: T,
    /// Then.
    pub after: T,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobChange {
    /// Its name.
    pub id: String,
    /// Its level; none where it is not planned.
    pub level: ValueChange<Option<u8>>,
    /// Seconds of an iteration by the fluid model; none where it ends none.
    pub iteration_seconds: ValueChange<Option<f64>>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowChange {
    /// Its job.
    pub job: String,
    /// Sending host.
    pub src: String,
    /// Receiving host.
    pub dst: String,
    /// UDP source port.
    pub udp_src_port: u16,
    /// Hosts and switches on its way.
    pub path: ValueChange<Vec<String>>,
    /// Whether switches are told.
    pub pinned: ValueChange<bool>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchChange {
    /// Its name.
    pub name: String,
    /// What would be written, in order.
    pub entries: Vec<String>,
}

/// What the answer to `question` would change of `present`, on switches that hold `tables`.
///
/// # Errors
/// A number of a job that makes no sense to the fluid model.
pub fn preview_policy(
    request: PlanRequest,
    present: &PlanRollout,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> Result<PolicyPreview, FluidError> {
    let (fabric, jobs) = (request.fabric.clone(), request.jobs.clone());
    let result = request.compute_plan();
    let now = forecast_plan(&present.fabric, &jobs, &present.plan)?;
    let then = forecast_plan(&fabric, &jobs, &result.plan)?;
    let before = PlanDocument::new(&present.fabric, &present.plan, &present.report);
    let after = PlanDocument::new(&fabric, &result.plan, &result.report);
    let lowered = lower_plan(&present.wiring, &fabric, &result.plan);
    let (jobs, unchanged) = job_changes(&present.plan, &result.plan, &now, &then);
    let mut findings = result.report.findings.clone();
    findings.extend(ecmp_finding(&before, &after));
    Ok(PolicyPreview {
        policy: Vec::new(),
        jobs,
        unchanged,
        flows: flow_changes(&before, &after),
        switches: switch_changes(&fabric, tables, &lowered),
        gpu_utilization: ValueChange { before: now.gpu_utilization, after: then.gpu_utilization },
        findings,
    })
}

/// Iteration times that differ by less are the same: the model's own ticks.
const SAME_TOLERANCE: f64 = 1e-3;

/// Jobs that change, and those that do not.
fn job_changes(
    before: &Plan,
    after: &Plan,
    now: &PlanForecast,
    then: &PlanForecast,
) -> (Vec<JobChange>, Vec<JobChange>) {
    let names: BTreeSet<&JobId> =
        before.jobs.iter().chain(&after.jobs).map(|job| &job.id).collect();
    let level = |plan: &Plan, id: &JobId| plan.job(id).map(|(_, job)| job.level);
    let seconds = |forecast: &PlanForecast, id: &JobId| forecast.iteration_seconds.get(id).copied();
    let change = |id: &JobId| JobChange {
        id: id.to_string(),
        level: ValueChange { before: level(before, id), after: level(after, id) },
        iteration_seconds: ValueChange { before: seconds(now, id), after: seconds(then, id) },
    };
    let differs = |job: &JobChange| {
        let ValueChange { before, after } = job.iteration_seconds;
        let both = before.zip(after);
        let is_same = both.is_some_and(|(a, b)| (a - b).abs() <= SAME_TOLERANCE * a.max(b));
        job.level.before != job.level.after || (before != after && !is_same)
    };
    names.into_iter().map(change).partition(differs)
}

/// What the forecast takes for granted and nobody knows: where flows with a choice go that switches
/// are not told of. Their hash takes in what only the hosts know (the queue pair).
fn ecmp_finding(before: &PlanDocument, after: &PlanDocument) -> Option<Finding> {
    let left = |plan: &PlanDocument| {
        let flows = plan.flows.iter();
        // Under one leaf there is no choice: host, leaf, host.
        flows.filter(|flow| !flow.pinned && flow.path.len() > 3).count()
    };
    let (before, after) = (left(before), left(after));
    let text = format!(
        "{before} flows before and {after} after are left to ECMP; the forecast supposes the paths \
         of the plan, and their hash may take others"
    );
    (before + after > 0).then(|| Finding::info("forecast", text))
}

fn flow_changes(before: &PlanDocument, after: &PlanDocument) -> Vec<FlowChange> {
    let key = |flow: &PlannedFlowDocument| {
        let (src, dst) = (flow.src.clone(), flow.dst.clone());
        (src, flow.src_nic, dst, flow.dst_nic, flow.udp_src_port)
    };
    let had: BTreeMap<_, _> = before.flows.iter().map(|flow| (key(flow), flow)).collect();
    let pairs = after.flows.iter().filter_map(|flow| Some((*had.get(&key(flow))?, flow)));
    let differ = pairs.filter(|(a, b)| (&a.links, a.pinned) != (&b.links, b.pinned));
    let change = |(before, after): (&PlannedFlowDocument, &PlannedFlowDocument)| FlowChange {
        job: after.job.clone(),
        src: after.src.clone(),
        dst: after.dst.clone(),
        udp_src_port: after.udp_src_port,
        path: ValueChange { before: before.path.clone(), after: after.path.clone() },
        pinned: ValueChange { before: before.pinned, after: after.pinned },
    };
    differ.map(change).collect()
}

fn switch_changes(
    fabric: &Fabric,
    before: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    after: &BTreeMap<SwitchId, SwitchTables>,
) -> Vec<SwitchChange> {
    let p4info = default_pipeline().program().p4info;
    let nothing = Arc::default();
    let change = |(switch, desired): (&SwitchId, &SwitchTables)| {
        let actual = before.get(switch).unwrap_or(&nothing);
        let updates = p4::diff_tables(&p4info, desired, actual);
        SwitchChange {
            name: fabric.switch(*switch).name.clone(),
            entries: updates.iter().map(|update| p4info.display(update).to_string()).collect(),
        }
    };
    let changes = after.iter().map(change);
    changes.filter(|change| !change.entries.is_empty()).collect()
}
