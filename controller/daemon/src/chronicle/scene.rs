//! What can be seen of a controller at one instant, and what two such looks differ in.
//!
//! Pure. The decision: everything is told by comparison, in one order (who leads, the policy, parts
//! of the fabric, jobs, the plan, switches, drains, findings), so that no event can be forgotten
//! where something changes, and what did not change is not told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use planner::{JobId, Plan, PlannedFlow, PlannedJob};
use topology::{Fabric, Finding, LinkId, NicId, SwitchId};

use super::happening::{Kind, Move};
use crate::ledger::{Edition, ITSELF};
use crate::northbound::answers::stations;
use crate::preview::Change;
use crate::runtime::{Drainage, Timing};
use crate::southbound::SwitchStatus;
use crate::southbound::mandate::Mandate;
use crate::state::Realise;

/// Moves that are told one by one.
const SHOWN: usize = 8;

/// One look.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) realised: Option<Realise>,
    /// Jobs that are being profiled.
    pub(super) profiled: BTreeSet<JobId>,
    /// The editions of the policy from the latest of the look before on, the earliest first, each
    /// with what it changed.
    pub(super) chapters: Vec<(Edition, Vec<String>)>,
    /// The sessions.
    pub(super) lines: Vec<Line>,
    pub(super) findings: BTreeSet<Finding>,
    pub(super) mandate: Mandate,
    pub(super) timing: Option<Timing>,
    pub(super) drainage: Drainage,
}

/// What is looked at of a session.
#[derive(Clone, Debug)]
pub(super) struct Line {
    switch: SwitchId,
    name: String,
    is_primary: bool,
    verified: Option<u64>,
    drifted: u64,
}

impl Line {
    pub(super) fn of(switch: SwitchId, status: &SwitchStatus) -> Self {
        Self {
            switch,
            name: status.name.clone(),
            is_primary: status.standing.is_primary(),
            verified: status.verified.map(|verified| verified.generation),
            drifted: status.drifted,
        }
    }
}

impl Scene {
    /// The number of the latest edition; 0 where none was seen.
    pub(super) fn edition(&self) -> u64 {
        self.chapters
            .last()
            .map_or(0, |(edition, _)| edition.number)
    }

    /// What has happened since an earlier look.
    pub(super) fn since(&self, before: &Self) -> Vec<Kind> {
        let mut told = Vec::new();
        told.extend(self.leadership(before));
        told.extend(self.policy(before));
        told.extend(self.parts(before));
        told.extend(self.jobs(before));
        told.extend(self.adopted(before));
        told.extend(self.drift(before));
        told.extend(self.verified(before));
        told.extend(self.drained(before));
        told.extend(self.findings(before));
        told
    }

    /// Whether this controller writes to the switches; nothing before that is known. Where the
    /// switches elect, it does if most of them say so.
    fn leads(&self) -> Option<(bool, u64)> {
        match self.mandate {
            Mandate::Unknown => None,
            Mandate::Leader { term, .. } => Some((true, term)),
            Mandate::Standby { term, .. } => Some((false, term)),
            Mandate::Open { term } => {
                let won = self.lines.iter().filter(|line| line.is_primary).count();
                Some((2 * won > self.lines.len(), term))
            }
        }
    }

    /// Who has never led does not tell that it does not.
    fn leadership(&self, before: &Self) -> Option<Kind> {
        let (leads, term) = self.leads()?;
        let led = before.leads().is_some_and(|(led, _)| led);
        (leads != led).then_some(Kind::LeadershipChanged { leads, term })
    }

    /// What was in force when the chronicle began is no news.
    fn policy(&self, before: &Self) -> Vec<Kind> {
        let Some((latest, _)) = before.chapters.last() else {
            return Vec::new();
        };
        let mut had = latest;
        let mut told = Vec::new();
        for (edition, changes) in &self.chapters {
            told.extend(policy_step(had, edition, changes));
            had = edition;
        }
        told
    }

    fn parts(&self, before: &Self) -> Vec<Kind> {
        let Some(realised) = &self.realised else {
            return Vec::new();
        };
        let had = before.realised.as_ref();
        // Ids of another fabric mean other parts.
        let had = had.filter(|had| Arc::ptr_eq(&had.wiring, &realised.wiring));
        let fabric = &realised.fabric;
        let of_switch = |switch: SwitchId| {
            let now = realised.switch_state(switch);
            let state = change(had.map(|had| had.switch_state(switch)), now)?;
            let switch = fabric.switch(switch).name.clone();
            Some(Kind::SwitchChanged { switch, state })
        };
        let of_cable = |link: LinkId| {
            let now = realised.cable_state(link);
            let state = change(had.map(|had| had.cable_state(link)), now)?;
            let link = fabric.link_name(link);
            Some(Kind::CableChanged { link, state })
        };
        let switches = (0..fabric.switches().len()).map(SwitchId::from);
        let cables = (0..fabric.links().len()).step_by(2).map(LinkId::from);
        switches
            .filter_map(of_switch)
            .chain(cables.filter_map(of_cable))
            .collect()
    }

    fn jobs(&self, before: &Self) -> Vec<Kind> {
        let (had, has) = (before.planned(), self.planned());
        let left = had.keys().filter(|id| !has.contains_key(*id));
        let left = left.map(|id| Kind::JobLeft {
            job: id.to_string(),
        });
        let come = has.values().filter_map(|job| match had.get(&job.id) {
            None => Some(self.arrived(job)),
            Some(earlier) => self.changed(job, earlier, before),
        });
        left.chain(come).collect()
    }

    fn arrived(&self, job: &PlannedJob) -> Kind {
        Kind::JobArrived {
            job: job.id.to_string(),
            level: job.level,
            rank: job.rank,
            intensity: job.intensity,
            profiled: self.profiled.contains(&job.id),
        }
    }

    fn changed(&self, job: &PlannedJob, earlier: &PlannedJob, before: &Self) -> Option<Kind> {
        let level = Change {
            before: earlier.level,
            after: job.level,
        };
        let profiled = Change {
            before: before.profiled.contains(&job.id),
            after: self.profiled.contains(&job.id),
        };
        let is_same = level.before == level.after && profiled.before == profiled.after;
        (!is_same).then(|| Kind::JobChanged {
            job: job.id.to_string(),
            level,
            profiled,
            intensity: job.intensity,
        })
    }

    fn adopted(&self, before: &Self) -> Option<Kind> {
        let realised = self.realised.as_ref()?;
        let had = before.realised.as_ref();
        if had.is_some_and(|had| had.generation == realised.generation) {
            return None;
        }
        let had = had.filter(|had| Arc::ptr_eq(&had.wiring, &realised.wiring));
        let moved = had.map_or_else(Vec::new, |had| moved(&had.plan, &realised.plan));
        let shown = moved.iter().take(SHOWN);
        Some(Kind::PlanAdopted {
            generation: realised.generation,
            jobs: realised.plan.jobs.len(),
            flows: realised.plan.flows.len(),
            moved: moved.len(),
            moves: shown
                .map(|pair| told_move(&realised.fabric, &realised.plan, *pair))
                .collect(),
        })
    }

    fn drift(&self, before: &Self) -> Vec<Kind> {
        let had: BTreeMap<&str, u64> = before
            .lines
            .iter()
            .map(|line| (line.name.as_str(), line.drifted))
            .collect();
        let repaired = |line: &Line| {
            // A session that begins anew counts anew.
            let earlier = had.get(line.name.as_str()).copied().unwrap_or(0);
            let entries = line.drifted.saturating_sub(earlier);
            let switch = line.name.clone();
            (entries > 0).then_some(Kind::DriftRepaired { switch, entries })
        };
        self.lines.iter().filter_map(repaired).collect()
    }

    /// The generation that every switch that is not down is seen to hold.
    fn held(&self) -> Option<u64> {
        let realised = self.realised.as_ref()?;
        let fabric = &realised.fabric;
        // The board may be of the next fabric already.
        let exists = |line: &&Line| line.switch.index() < fabric.switches().len();
        let is_up = |line: &&Line| fabric.is_switch_up(line.switch);
        let mut held = self.lines.iter().filter(exists).filter(is_up);
        let holds = |line: &Line| {
            line.verified
                .is_some_and(|seen| seen >= realised.generation)
        };
        (!self.lines.is_empty() && held.all(holds)).then_some(realised.generation)
    }

    fn verified(&self, before: &Self) -> Option<Kind> {
        let generation = self.held().filter(|held| before.held() != Some(*held))?;
        let timing = self
            .timing
            .filter(|timing| timing.generation == generation)?;
        Some(Kind::PlanVerified {
            generation,
            seconds: timing.total().as_secs_f64(),
        })
    }

    fn drained(&self, before: &Self) -> Option<Kind> {
        let complete = self.drainage.complete.iter();
        let news = complete.filter(|part| !before.drainage.complete.contains(*part));
        let parts: Vec<String> = news.cloned().collect();
        (!parts.is_empty()).then_some(Kind::DrainCompleted { parts })
    }

    fn findings(&self, before: &Self) -> Vec<Kind> {
        let raised = self.findings.difference(&before.findings).cloned();
        let cleared = before.findings.difference(&self.findings).cloned();
        raised
            .map(|finding| Kind::FindingRaised { finding })
            .chain(cleared.map(|finding| Kind::FindingCleared { finding }))
            .collect()
    }

    fn planned(&self) -> BTreeMap<&JobId, &PlannedJob> {
        let jobs = self.realised.iter().flat_map(|had| &had.plan.jobs);
        jobs.map(|job| (&job.id, job)).collect()
    }
}

/// What an edition is after the one before it; the same one again may have been confirmed.
fn policy_step(had: &Edition, edition: &Edition, changes: &[String]) -> Option<Kind> {
    let number = edition.number;
    if number == had.number {
        let is_confirmed = had.trial.is_some() && edition.trial.is_none();
        return is_confirmed.then_some(Kind::PolicyConfirmed { edition: number });
    }
    let trial = had.trial.as_ref().filter(|_| edition.trial.is_none());
    let is_back = trial.is_some_and(|trial| trial.before == edition.content);
    let (who, why) = (edition.signature.who.clone(), edition.signature.why.clone());
    Some(match (is_back, who.as_str()) {
        (true, ITSELF) => Kind::PolicyExpired {
            edition: number,
            ended: had.number,
        },
        (true, _) => Kind::PolicyReverted {
            edition: number,
            taken_back: had.number,
            who,
            why,
        },
        (false, _) => Kind::PolicyApplied {
            edition: number,
            who,
            why,
            trial_until_ms: edition.trial.as_ref().map(|trial| trial.until_ms),
            changes: changes.to_vec(),
        },
    })
}

/// How a part is told to have changed. A part that was not seen before is only told of if something
/// is the matter with it.
fn change(before: Option<&str>, after: &str) -> Option<Change<String>> {
    let before = before.unwrap_or("up");
    (before != after).then(|| Change {
        before: before.to_owned(),
        after: after.to_owned(),
    })
}

/// Flows of both plans that take another path in the second, as they are and were.
fn moved<'a>(before: &'a Plan, after: &'a Plan) -> Vec<(&'a PlannedFlow, &'a PlannedFlow)> {
    let had: BTreeMap<_, _> = before
        .flows
        .iter()
        .map(|flow| (key(before, flow), flow))
        .collect();
    let pairs = after
        .flows
        .iter()
        .filter_map(|flow| Some((*had.get(&key(after, flow))?, flow)));
    pairs.filter(|(a, b)| a.links != b.links).collect()
}

fn key<'a>(plan: &'a Plan, flow: &PlannedFlow) -> (&'a JobId, NicId, NicId, u16) {
    let job = &plan.jobs[flow.job].id;
    (job, flow.src, flow.dst, flow.udp_src_port)
}

fn told_move(fabric: &Fabric, plan: &Plan, (had, has): (&PlannedFlow, &PlannedFlow)) -> Move {
    let host = |nic| &fabric.host(fabric.nic(nic).host).name;
    Move {
        job: plan.jobs[has.job].id.to_string(),
        flow: format!("{}>{}:{}", host(has.src), host(has.dst), has.udp_src_port),
        path: Change {
            before: stations(fabric, &had.links),
            after: stations(fabric, &has.links),
        },
    }
}

#[cfg(test)]
mod tests;
