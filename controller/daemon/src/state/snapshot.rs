//! A whole state as JSON, and back: the first line of a [recording](crate::recorder).
//!
//! Fabric, jobs and policy are documents; plans are ids and numbers. The decision: numbers of a
//! plan are kept bit for bit. The next plan starts from the last one, so a number that differs in
//! its last digit could lead to another plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::{
    ComparedInputs, CompressionMethod, CompressionReport, Job, JobId, JobsDocument,
    LearnedConnection, LoadBounds, Plan, PlanComparison, PlanDepth, PlanReport, PlannedFlow,
    PlannedJob, PlannedRule, StartShift,
};
use serde::{Deserialize, Serialize};
use topology::spec::{self, FabricDocument};
use topology::{AvailabilityChange, Fabric, FabricParts, LinkId, LinkPath, NicId, SwitchId};

use super::fabric_changes::has_part;
use super::{PlanResult, PlanRollout, RefinementState, ReportedJobs, State};
use crate::pipeline::SwitchReports;
use crate::pipelines::FabricWiring;
use crate::policy_history::{PolicyHistory, PolicyRevision};
use crate::store::{PlanBasis, jobs_document};

/// No counter of a run comes near it.
const COUNTER_MAX: u64 = 1 << 62;

/// A state as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSnapshot {
    levels: u8,
    is_probed: bool,
    /// Absent in recordings of earlier versions.
    #[serde(default)]
    learns_flows: bool,
    fabric: FabricRecord,
    /// Parts that work again, each with the latest generation that does not include it.
    returning: Vec<(AvailabilityChange, u64)>,
    jobs: JobsDocument,
    reported_jobs: ReportedJobsRecord,
    /// All kept revisions, the latest last.
    revisions: Vec<PolicyRevision>,
    before_trial: Option<PlanRecord>,
    resumed: Option<(u64, PlanRecord)>,
    pin_room: Option<(SwitchId, usize)>,
    inputs: u64,
    learned: u64,
    requested: Option<u64>,
    planned: u64,
    #[serde(default)]
    refinement: RefinementState,
    generation: u64,
    spent: u64,
    rollout: Option<RolloutRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    connections: Vec<LearnedConnection>,
}

/// The rollout in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RolloutRecord {
    /// Failures and drains of its fabric.
    changes: Vec<AvailabilityChange>,
    plan: PlanRecord,
}

/// A fabric with its failures and drains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FabricRecord {
    /// None for the empty fabric, with which a controller starts.
    document: Option<FabricDocument>,
    changes: Vec<AvailabilityChange>,
}

/// The reported jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportedJobsRecord {
    jobs: JobsDocument,
    profiled: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    distrusted: Vec<String>,
}

/// A plan, by ids and numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanRecord {
    generation: u64,
    levels: u8,
    jobs: Vec<PlannedJobRecord>,
    flows: Vec<PlannedFlowRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<PlannedRuleRecord>,
    /// Digests of the regions that were compared with their alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    compared_regions: Vec<u64>,
}

/// Decisions on one job: its name, number, rank and level, the bits of intensity, seconds at its
/// bottleneck, correction and priority, and those of its start shift, and whether it is sprayed. Plans of
/// earlier versions end before the last two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlannedJobRecord(
    String,
    u32,
    u32,
    u8,
    [u64; 4],
    #[serde(default)] Option<[u64; 3]>,
    #[serde(default)] bool,
);

/// Decisions on one flow: index of its job, sender, receiver, port, links, whether it is pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlannedFlowRecord(usize, NicId, NicId, Option<u16>, Vec<LinkId>, bool);

/// An adoption rule: index of its job, senders, receivers, ports of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlannedRuleRecord(usize, Vec<NicId>, Vec<NicId>, [Option<u16>; 2]);

/// An invalid value in a recording.
#[derive(Debug, thiserror::Error)]
#[error("{what} as recorded: {why}")]
pub struct SnapshotError {
    what: &'static str,
    why: String,
}

impl SnapshotError {
    /// The invalid part, and what is wrong with it.
    pub(crate) fn new(what: &'static str, why: &(impl ToString + ?Sized)) -> Self {
        Self { what, why: why.to_string() }
    }
}

impl FabricRecord {
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self {
            document: (!fabric.switches().is_empty()).then(|| spec::explicit_document(fabric)),
            changes: fabric.availability_changes(),
        }
    }

    pub(crate) fn to_fabric(&self) -> Result<Fabric, SnapshotError> {
        apply_changes(&self.pristine_fabric()?, &self.changes)
    }

    /// The fabric without failures and drains.
    fn pristine_fabric(&self) -> Result<Fabric, SnapshotError> {
        let Some(document) = &self.document else {
            return Ok(Fabric::new(FabricParts::default()));
        };
        let fabric = Fabric::try_from(document);
        fabric.map_err(|error| SnapshotError::new("the fabric", &error))
    }
}

impl ReportedJobsRecord {
    pub(crate) fn new(fabric: &Fabric, reported: &ReportedJobs) -> Self {
        Self {
            jobs: jobs_document(fabric, &reported.jobs),
            profiled: reported.profiled.iter().map(ToString::to_string).collect(),
            distrusted: reported.distrusted.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn to_reported_jobs(&self, fabric: &Fabric) -> Result<ReportedJobs, SnapshotError> {
        Ok(ReportedJobs {
            jobs: jobs_from_document(&self.jobs, fabric)?,
            profiled: self.profiled.iter().map(|name| JobId::from(name.as_str())).collect(),
            distrusted: self.distrusted.iter().map(|name| JobId::from(name.as_str())).collect(),
        })
    }
}

impl PlanRecord {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            generation: plan.generation,
            levels: plan.levels,
            jobs: plan.jobs.iter().map(PlannedJobRecord::new).collect(),
            flows: plan.flows.iter().map(PlannedFlowRecord::new).collect(),
            rules: plan.rules.iter().map(PlannedRuleRecord::new).collect(),
            compared_regions: plan.compared_inputs.0.iter().copied().collect(),
        }
    }

    pub(crate) fn to_plan(&self) -> Result<Plan, SnapshotError> {
        Ok(Plan {
            generation: self.generation,
            levels: self.levels,
            jobs: self.jobs.iter().map(PlannedJobRecord::to_job).collect(),
            flows: self.flows.iter().map(PlannedFlowRecord::to_flow).collect::<Result<_, _>>()?,
            rules: self.rules.iter().map(PlannedRuleRecord::to_rule).collect(),
            compared_inputs: ComparedInputs(self.compared_regions.iter().copied().collect()),
            counted_pairs: Vec::new(),
        })
    }
}

impl PlannedJobRecord {
    fn new(job: &PlannedJob) -> Self {
        let numbers = [job.intensity, job.bottleneck_seconds, job.correction, job.priority];
        let id = job.id.to_string();
        let shift = job.start_shift.map(|shift| {
            [shift.seconds, shift.period_seconds, shift.most_wait_seconds].map(f64::to_bits)
        });
        Self(id, job.number, job.rank, job.level, numbers.map(f64::to_bits), shift, job.sprayed)
    }

    fn to_job(&self) -> PlannedJob {
        let Self(id, number, rank, level, bits, shift, sprayed) = self;
        let [intensity, bottleneck_seconds, correction, priority] = bits.map(f64::from_bits);
        PlannedJob {
            id: JobId::from(id.as_str()),
            number: *number,
            intensity,
            bottleneck_seconds,
            correction,
            priority,
            rank: *rank,
            level: *level,
            start_shift: shift.map(|bits| {
                let [seconds, period_seconds, most_wait_seconds] = bits.map(f64::from_bits);
                StartShift { seconds, period_seconds, most_wait_seconds }
            }),
            sprayed: *sprayed,
        }
    }
}

impl PlannedFlowRecord {
    fn new(flow: &PlannedFlow) -> Self {
        let links = flow.links.to_vec();
        Self(flow.job, flow.src, flow.dst, flow.udp_src_port, links, flow.pinned)
    }

    fn to_flow(&self) -> Result<PlannedFlow, SnapshotError> {
        let Self(job, src, dst, udp_src_port, links, pinned) = self;
        let path = LinkPath::new(links);
        Ok(PlannedFlow {
            job: *job,
            src: *src,
            dst: *dst,
            udp_src_port: *udp_src_port,
            links: path.ok_or_else(|| SnapshotError::new("a path", "it has too many links"))?,
            pinned: *pinned,
        })
    }
}

impl PlannedRuleRecord {
    fn new(rule: &PlannedRule) -> Self {
        let ports = [rule.sport, rule.dport];
        Self(rule.job, rule.senders.clone(), rule.receivers.clone(), ports)
    }

    fn to_rule(&self) -> PlannedRule {
        let Self(job, senders, receivers, [sport, dport]) = self;
        PlannedRule {
            job: *job,
            senders: senders.clone(),
            receivers: receivers.clone(),
            sport: *sport,
            dport: *dport,
        }
    }
}

impl StateSnapshot {
    /// Takes a snapshot of a state.
    pub(crate) fn new(state: &State) -> Self {
        let mut revisions: Vec<PolicyRevision> =
            (state.history.revisions_with_changes().into_iter())
                .map(|(revision, _)| revision.clone())
                .collect();
        revisions.reverse();
        Self {
            levels: state.levels,
            is_probed: state.reports.probes,
            learns_flows: state.reports.unknown_flows,
            fabric: FabricRecord::new(&state.fabric),
            returning: state.returning.pending_changes().collect(),
            jobs: jobs_document(&state.fabric, &state.jobs),
            reported_jobs: ReportedJobsRecord::new(&state.fabric, &state.reported),
            revisions,
            before_trial: state.before_trial.as_deref().map(PlanRecord::new),
            resumed: state.resumed.as_ref().map(|(at, had)| (*at, PlanRecord::new(had))),
            pin_room: state.basis.pin_room,
            inputs: state.inputs,
            learned: state.learned,
            requested: state.requested,
            planned: state.planned,
            refinement: state.refinement,
            generation: state.generation,
            spent: state.spent,
            rollout: state.rollout.as_ref().map(|rollout| RolloutRecord {
                changes: rollout.fabric.availability_changes(),
                plan: PlanRecord::new(&rollout.plan),
            }),
            connections: state.basis.connections.clone(),
        }
    }

    /// Restores the state.
    ///
    /// # Errors
    /// A part of the snapshot is invalid.
    pub(crate) fn restore_state(&self) -> Result<State, SnapshotError> {
        let mut state = State::new(self.levels, self.generation);
        state.reports = SwitchReports { probes: self.is_probed, unknown_flows: self.learns_flows };
        state.fabric = self.fabric.to_fabric()?;
        let wiring = FabricWiring::new(&state.fabric)
            .map_err(|error| SnapshotError::new("the fabric", &error))?;
        state.wiring = Arc::new(wiring.with_reports(state.reports));
        for (change, generation) in &self.returning {
            check_change(change, &state.fabric)?;
            state.returning.record_change(*change, &state.fabric, *generation);
        }
        state.jobs = jobs_from_document(&self.jobs, &state.fabric)?;
        state.reported = self.reported_jobs.to_reported_jobs(&state.fabric)?;
        state.history = history_from_revisions(&self.revisions)?;
        let content = &state.history.latest().content;
        state.policy = content
            .validate("policy", self.levels)
            .and_then(|policy| policy.check_on(&state.fabric).map(|()| policy))
            .map_err(|error| SnapshotError::new("the policy", &error))?;
        if let Some(plan) = &self.before_trial {
            state.before_trial = Some(Arc::new(plan.to_plan()?));
        }
        if let Some((inputs, plan)) = &self.resumed {
            state.resumed = Some((*inputs, Arc::new(plan.to_plan()?)));
        }
        state.basis =
            Arc::new(PlanBasis { connections: self.connections.clone(), pin_room: self.pin_room });
        (state.inputs, state.learned) = (self.inputs, self.learned);
        (state.requested, state.planned) = (self.requested, self.planned);
        state.refinement = self.refinement;
        state.spent = self.spent;
        if let Some(rollout) = &self.rollout {
            state.rollout = Some(self.restore_rollout(&state, rollout)?);
        }
        self.check_counters()?;
        match state.broken_invariant() {
            Some(broken) => Err(SnapshotError::new("the state", &broken)),
            None => Ok(state),
        }
    }

    /// Refuses counters that would overflow by what is recorded after them.
    fn check_counters(&self) -> Result<(), SnapshotError> {
        let revisions = self.revisions.iter().map(|revision| revision.number);
        let counters = [self.inputs, self.requested.unwrap_or(0), self.generation, self.spent];
        match revisions.chain(counters).find(|counter| *counter > COUNTER_MAX) {
            Some(counter) => {
                Err(SnapshotError::new("a counter", &format!("{counter} is no count")))
            }
            None => Ok(()),
        }
    }

    fn restore_rollout(
        &self,
        state: &State,
        had: &RolloutRecord,
    ) -> Result<PlanRollout, SnapshotError> {
        let plan = Arc::new(had.plan.to_plan()?);
        Ok(PlanRollout {
            generation: self.generation,
            fabric: apply_changes(&self.fabric.pristine_fabric()?, &had.changes)?,
            returning: state.returning.part_set(),
            wiring: Arc::clone(&state.wiring),
            report: Arc::new(empty_report(false)),
            learned: Arc::new(state.place_connections(&plan)),
            basis: Arc::clone(&state.basis),
            plan,
        })
    }
}

/// What a recording has of a plan that was computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedPlan {
    /// How many events it took into account.
    pub(crate) inputs: u64,
    /// Whether candidates were compared for it.
    pub(crate) is_refined: bool,
    /// Whether it was made from nothing.
    pub(crate) is_settled: bool,
    /// Whether they should have been.
    pub(crate) is_provisional: bool,
}

impl PlanResult {
    /// A recorded result, whose request is not in the recording.
    pub(crate) fn from_recording(recorded: RecordedPlan, plan: Plan) -> Self {
        let RecordedPlan { inputs, is_refined, is_settled, is_provisional } = recorded;
        let depth = match (is_settled, is_refined) {
            (true, _) => PlanDepth::Settled,
            (false, true) => PlanDepth::Full,
            (false, false) => PlanDepth::Quick,
        };
        let report = empty_report(is_provisional);
        Self { inputs, depth, plan: Arc::new(plan), report: Arc::new(report) }
    }

    /// Whether candidates were compared for it.
    pub(crate) fn is_refined(&self) -> bool {
        self.depth != PlanDepth::Quick
    }

    /// Whether it was made from nothing.
    pub(crate) fn is_settled(&self) -> bool {
        self.depth == PlanDepth::Settled
    }

    /// How many events it takes into account.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs
    }
}

impl State {
    /// The rollout in force.
    pub(crate) fn current_rollout(&self) -> Option<&PlanRollout> {
        self.rollout.as_ref()
    }
}

/// The history of these revisions, of which the last one is in force.
pub(crate) fn history_from_revisions(
    revisions: &[PolicyRevision],
) -> Result<PolicyHistory, SnapshotError> {
    let (latest, earlier) = (revisions.split_last())
        .ok_or_else(|| SnapshotError::new("the policy", "there is no revision"))?;
    Ok(PolicyHistory::new(latest.clone(), earlier.iter().cloned()))
}

/// The jobs of a document, resolved on their fabric.
pub(crate) fn jobs_from_document(
    document: &JobsDocument,
    fabric: &Fabric,
) -> Result<Vec<Job>, SnapshotError> {
    let resolved = document.resolve_jobs(fabric, "the recording");
    resolved.map(|resolved| resolved.jobs).map_err(|error| SnapshotError::new("jobs", &error))
}

fn apply_changes(fabric: &Fabric, changes: &[AvailabilityChange]) -> Result<Fabric, SnapshotError> {
    changes.iter().try_for_each(|change| check_change(change, fabric))?;
    Ok(fabric.with_changes(changes.iter().copied()))
}

fn check_change(change: &AvailabilityChange, fabric: &Fabric) -> Result<(), SnapshotError> {
    if has_part(fabric, *change) {
        Ok(())
    } else {
        Err(SnapshotError::new("the fabric", &format!("{change:?}: no such part")))
    }
}

/// The report on a plan whose reasons are not recorded.
fn empty_report(is_provisional: bool) -> PlanReport {
    PlanReport {
        comparison: PlanComparison { is_provisional, ..PlanComparison::default() },
        links: Vec::new(),
        compression: CompressionReport {
            method: CompressionMethod::default(),
            levels: 0,
            cut_weight: 0.0,
            total_weight: 0.0,
        },
        bounds: LoadBounds { max_load: 0.0, max_load_lower_bound: 0.0 },
        findings: Vec::new(),
        moved: Vec::new(),
        unpinned: BTreeMap::new(),
        rationales: Vec::new(),
    }
}
