//! A whole state as text, and back: what a [recording](crate::recorder) begins with.
//!
//! Documents where people have words for it (fabric, jobs, policy), ids and numbers for plans. The
//! decision: numbers of a plan are kept bit for bit. The next plan is made from the last one, so a
//! number that differs in its last digit could lead to another plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{
    Bounds, Compression, CompressionReport, Job, JobId, JobsDocument, Plan, PlannedFlow,
    PlannedJob, PlannedRule, Report,
};
use serde::{Deserialize, Serialize};
use topology::spec::{self, FabricDocument};
use topology::{Change, Fabric, LinkId, NicId, Parts, Path, SwitchId};

use super::{Answer, Realise, State, Told};
use crate::ledger::{Edition, Ledger};
use crate::lower::Wiring;
use crate::store::jobs_document;

/// A state as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    levels: u8,
    is_probed: bool,
    fabric: FabricRecord,
    /// What works again and is not used yet, with the generation that does not know of it.
    returning: Vec<(Change, u64)>,
    jobs: JobsDocument,
    told: ToldRecord,
    /// The latest last.
    editions: Vec<Edition>,
    before_trial: Option<PlanRecord>,
    resumed: Option<(u64, PlanRecord)>,
    pin_room: Option<(SwitchId, usize)>,
    inputs: u64,
    learned: u64,
    asked: Option<u64>,
    planned: u64,
    generation: u64,
    spent: u64,
    decided: Option<DecidedRecord>,
}

/// What is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecidedRecord {
    /// What had befallen its fabric.
    changes: Vec<Change>,
    plan: PlanRecord,
}

/// A fabric, and what has befallen it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FabricRecord {
    /// None of the fabric without parts, with which a controller begins.
    document: Option<FabricDocument>,
    changes: Vec<Change>,
}

/// Jobs that tell of themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToldRecord {
    jobs: JobsDocument,
    profiled: Vec<String>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanRecord {
    generation: u64,
    levels: u8,
    jobs: Vec<JobRecord>,
    flows: Vec<FlowRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleRecord>,
}

/// Decisions on one job: its name, number, rank and level, and the bits of intensity, seconds at
/// its bottleneck, correction and priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct JobRecord(String, u32, u32, u8, [u64; 4]);

/// Decisions on one flow: place of its job, sender, receiver, port, links, whether it is pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FlowRecord(usize, NicId, NicId, u16, Vec<LinkId>, bool);

/// Flows that a job has not announced: place of their job, senders, receivers, ports of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RuleRecord(usize, Vec<NicId>, Vec<NicId>, [Option<u16>; 2]);

/// A recorded state that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{what} as recorded: {why}")]
pub struct SnapshotError {
    what: &'static str,
    why: String,
}

impl SnapshotError {
    /// The part that cannot be, and why.
    pub(crate) fn new(what: &'static str, why: &(impl ToString + ?Sized)) -> Self {
        let why = why.to_string();
        Self { what, why }
    }
}

impl FabricRecord {
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self {
            document: (!fabric.switches().is_empty()).then(|| spec::document(fabric)),
            changes: fabric.changes(),
        }
    }

    pub(crate) fn read(&self) -> Result<Fabric, SnapshotError> {
        changed(&self.sound()?, &self.changes)
    }

    /// The same before anything had befallen it.
    fn sound(&self) -> Result<Fabric, SnapshotError> {
        let Some(document) = &self.document else {
            return Ok(Fabric::new(Parts::default()));
        };
        let fabric = Fabric::try_from(document);
        fabric.map_err(|error| SnapshotError::new("the fabric", &error))
    }
}

impl ToldRecord {
    pub(crate) fn new(fabric: &Fabric, told: &Told) -> Self {
        Self {
            jobs: jobs_document(fabric, &told.jobs),
            profiled: told.profiled.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn read(&self, fabric: &Fabric) -> Result<Told, SnapshotError> {
        let profiled = self.profiled.iter().map(|name| JobId::from(name.as_str()));
        let profiled: BTreeSet<JobId> = profiled.collect();
        let jobs = jobs_of(&self.jobs, fabric)?;
        Ok(Told { jobs, profiled })
    }
}

impl PlanRecord {
    pub(crate) fn new(plan: &Plan) -> Self {
        let job = |job: &PlannedJob| {
            let numbers = [
                job.intensity,
                job.bottleneck_seconds,
                job.correction,
                job.priority,
            ];
            let id = job.id.to_string();
            JobRecord(
                id,
                job.number,
                job.rank,
                job.level,
                numbers.map(f64::to_bits),
            )
        };
        let flow = |flow: &PlannedFlow| {
            let links = flow.links.to_vec();
            FlowRecord(
                flow.job,
                flow.src,
                flow.dst,
                flow.udp_src_port,
                links,
                flow.pinned,
            )
        };
        Self {
            generation: plan.generation,
            levels: plan.levels,
            jobs: plan.jobs.iter().map(job).collect(),
            flows: plan.flows.iter().map(flow).collect(),
            rules: plan.rules.iter().map(RuleRecord::new).collect(),
        }
    }

    pub(crate) fn read(&self) -> Result<Plan, SnapshotError> {
        let job = |JobRecord(id, number, rank, level, bits): &JobRecord| {
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
            }
        };
        let flow = |FlowRecord(job, src, dst, udp_src_port, links, pinned): &FlowRecord| {
            let long = || SnapshotError::new("a path", "it is longer than paths are");
            Ok(PlannedFlow {
                job: *job,
                src: *src,
                dst: *dst,
                udp_src_port: *udp_src_port,
                links: Path::new(links).ok_or_else(long)?,
                pinned: *pinned,
            })
        };
        Ok(Plan {
            generation: self.generation,
            levels: self.levels,
            jobs: self.jobs.iter().map(job).collect(),
            flows: self.flows.iter().map(flow).collect::<Result<_, _>>()?,
            rules: self.rules.iter().map(RuleRecord::read).collect(),
        })
    }
}

impl RuleRecord {
    fn new(rule: &PlannedRule) -> Self {
        let ports = [rule.sport, rule.dport];
        Self(
            rule.job,
            rule.senders.clone(),
            rule.receivers.clone(),
            ports,
        )
    }

    fn read(&self) -> PlannedRule {
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

impl Snapshot {
    /// The state as text.
    pub(crate) fn new(state: &State) -> Self {
        let plan = |plan: &Arc<Plan>| PlanRecord::new(plan);
        let decided = |realise: &Realise| DecidedRecord {
            changes: realise.fabric.changes(),
            plan: plan(&realise.plan),
        };
        let mut editions: Vec<Edition> = (state.ledger.history().into_iter())
            .map(|(edition, _)| edition.clone())
            .collect();
        editions.reverse();
        Self {
            levels: state.levels,
            is_probed: state.is_probed,
            fabric: FabricRecord::new(&state.fabric),
            returning: state.returning.parts().collect(),
            jobs: jobs_document(&state.fabric, &state.jobs),
            told: ToldRecord::new(&state.fabric, &state.told),
            editions,
            before_trial: state.before_trial.as_ref().map(plan),
            resumed: state.resumed.as_ref().map(|(at, had)| (*at, plan(had))),
            pin_room: state.pin_room,
            inputs: state.inputs,
            learned: state.learned,
            asked: state.asked,
            planned: state.planned,
            generation: state.generation,
            spent: state.spent,
            decided: state.decided.as_ref().map(decided),
        }
    }

    /// The state that the text tells of.
    ///
    /// # Errors
    /// It tells of none.
    pub(crate) fn restore(&self) -> Result<State, SnapshotError> {
        let mut state = State::new(self.levels, self.generation);
        state.is_probed = self.is_probed;
        state.fabric = self.fabric.read()?;
        let wiring = Wiring::new(&state.fabric);
        let wiring = wiring.map_err(|error| SnapshotError::new("the fabric", &error))?;
        state.wiring = Arc::new(match self.is_probed {
            true => wiring.probed(),
            false => wiring,
        });
        for (change, generation) in &self.returning {
            check(change, &state.fabric)?;
            state.returning.take(*change, &state.fabric, *generation);
        }
        state.jobs = jobs_of(&self.jobs, &state.fabric)?;
        state.told = self.told.read(&state.fabric)?;
        state.ledger = ledger_of(&self.editions)?;
        let policy = state.ledger.latest().content.validate("policy");
        let policy = policy.and_then(|policy| policy.check_on(&state.fabric).map(|()| policy));
        state.policy = policy.map_err(|error| SnapshotError::new("the policy", &error))?;
        let plan = |record: &PlanRecord| record.read().map(Arc::new);
        state.before_trial = self.before_trial.as_ref().map(plan).transpose()?;
        let resumed = self.resumed.as_ref();
        let resumed = resumed.map(|(at, record)| plan(record).map(|plan| (*at, plan)));
        state.resumed = resumed.transpose()?;
        state.pin_room = self.pin_room;
        (state.inputs, state.learned) = (self.inputs, self.learned);
        (state.asked, state.planned) = (self.asked, self.planned);
        state.spent = self.spent;
        let decided = self.decided.as_ref();
        state.decided = decided.map(|had| self.decided(&state, had)).transpose()?;
        Ok(state)
    }

    fn decided(&self, state: &State, had: &DecidedRecord) -> Result<Realise, SnapshotError> {
        Ok(Realise {
            generation: self.generation,
            fabric: changed(&self.fabric.sound()?, &had.changes)?,
            returning: state.returning.now(),
            wiring: Arc::clone(&state.wiring),
            plan: Arc::new(had.plan.read()?),
            report: Arc::new(untold()),
        })
    }
}

impl Answer {
    /// The answer to a question of which only the answer is known.
    pub(crate) fn recorded(inputs: u64, plan: Plan) -> Self {
        Self {
            inputs,
            plan: Arc::new(plan),
            report: Arc::new(untold()),
        }
    }

    /// How many events it takes into account.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs
    }
}

impl State {
    /// What is in force.
    pub(crate) fn decided(&self) -> Option<&Realise> {
        self.decided.as_ref()
    }
}

/// Those editions, of which the last one is in force.
pub(crate) fn ledger_of(editions: &[Edition]) -> Result<Ledger, SnapshotError> {
    let (latest, earlier) = (editions.split_last())
        .ok_or_else(|| SnapshotError::new("the policy", "there is no edition"))?;
    Ok(Ledger::new(latest.clone(), earlier.iter().cloned()))
}

/// Jobs on their fabric.
pub(crate) fn jobs_of(document: &JobsDocument, fabric: &Fabric) -> Result<Vec<Job>, SnapshotError> {
    let resolved = document.resolve(fabric, "the recording");
    let resolved = resolved.map_err(|error| SnapshotError::new("jobs", &error))?;
    Ok(resolved.jobs)
}

fn changed(fabric: &Fabric, changes: &[Change]) -> Result<Fabric, SnapshotError> {
    changes
        .iter()
        .try_for_each(|change| check(change, fabric))?;
    Ok(fabric.with(changes.iter().copied()))
}

/// Whether it can befall `fabric`.
fn check(change: &Change, fabric: &Fabric) -> Result<(), SnapshotError> {
    let is_there = match change {
        Change::LinkDown(link)
        | Change::LinkUp(link)
        | Change::DrainLink(link)
        | Change::UndrainLink(link) => link.index() < fabric.links().len(),
        Change::SwitchDown(switch)
        | Change::SwitchUp(switch)
        | Change::DrainSwitch(switch)
        | Change::UndrainSwitch(switch) => switch.index() < fabric.switches().len(),
    };
    let of_none = || SnapshotError::new("the fabric", &format!("{change:?} of no part"));
    is_there.then_some(()).ok_or_else(of_none)
}

/// The report on a plan whose reasons are not recorded.
fn untold() -> Report {
    Report {
        links: Vec::new(),
        compression: CompressionReport {
            method: Compression::default(),
            levels: 0,
            cut_weight: 0.0,
            total_weight: 0.0,
        },
        bounds: Bounds {
            max_load: 0.0,
            max_load_lower_bound: 0.0,
        },
        findings: Vec::new(),
        moved: Vec::new(),
        why: Vec::new(),
    }
}
