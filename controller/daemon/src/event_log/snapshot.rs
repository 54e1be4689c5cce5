//! What can be seen of a controller at one instant, and what two such looks differ in.
//!
//! Pure. The decision: everything is told by comparison, in one order (who leads, the policy, parts
//! of the fabric, jobs, the plan, switches, drains, findings), so that no event can be forgotten
//! where something changes, and what did not change is not told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use planner::{JobId, Plan, PlannedFlow, PlannedJob};
use topology::{Fabric, Finding, LinkId, NicId, SwitchId};

use super::event::{EventKind, FlowMove};
use crate::policy_history::{AUTOMATIC_AUTHOR, PolicyRevision};
use crate::preview::ValueChange;
use crate::southbound::ChangeTiming;
use crate::southbound::SwitchStatus;
use crate::southbound::write_permit::WritePermit;
use crate::state::{DrainProgress, PlanRollout, State};

/// Moves that are told one by one.
const MOVES_SHOWN: usize = 8;

/// One look.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSnapshot {
    pub(crate) rollout: Option<PlanRollout>,
    /// Jobs that are being profiled.
    pub(crate) profiled: BTreeSet<JobId>,
    /// The revisions of the policy from the latest of the look before on, the earliest first, each
    /// with what it changed.
    pub(crate) revisions: Vec<(PolicyRevision, Vec<String>)>,
    /// The sessions.
    pub(crate) sessions: Vec<SessionSummary>,
    pub(crate) findings: BTreeSet<Finding>,
    pub(crate) permit: WritePermit,
    pub(crate) timing: Option<ChangeTiming>,
    pub(crate) drainage: DrainProgress,
}

/// What is looked at of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionSummary {
    switch: SwitchId,
    name: String,
    is_primary: bool,
    verified: Option<u64>,
    drifted: u64,
}

impl SessionSummary {
    pub(crate) fn from_status(switch: SwitchId, status: &SwitchStatus) -> Self {
        Self {
            switch,
            name: status.name.clone(),
            is_primary: status.mastership.is_primary(),
            verified: status.verified.map(|verified| verified.generation),
            drifted: status.drifted,
        }
    }
}

impl EventSnapshot {
    /// The number of the latest revision; 0 where none was seen.
    pub(crate) fn latest_revision(&self) -> u64 {
        self.revisions.last().map_or(0, |(revision, _)| revision.number)
    }

    /// What has happened since an earlier look.
    pub(crate) fn events_since(&self, before: &Self) -> Vec<EventKind> {
        let mut told = Vec::new();
        told.extend(self.leadership_event(before));
        told.extend(self.policy_events(before));
        told.extend(self.element_events(before));
        told.extend(self.job_events(before));
        told.extend(self.adoption_event(before));
        told.extend(self.drift_events(before));
        told.extend(self.verification_event(before));
        told.extend(self.drain_event(before));
        told.extend(self.finding_events(before));
        told
    }

    /// Whether this controller writes to the switches; nothing before that is known. Where the
    /// switches elect, it does if most of them say so.
    fn leadership_state(&self) -> Option<(bool, u64)> {
        match self.permit {
            WritePermit::Unknown => None,
            WritePermit::Leader { term, .. } => Some((true, term)),
            WritePermit::Standby { term, .. } => Some((false, term)),
            WritePermit::Open { term } => {
                let won = self.sessions.iter().filter(|line| line.is_primary).count();
                Some((2 * won > self.sessions.len(), term))
            }
        }
    }

    /// Who has never led does not tell that it does not.
    fn leadership_event(&self, before: &Self) -> Option<EventKind> {
        let (leads, term) = self.leadership_state()?;
        let led = before.leadership_state().is_some_and(|(led, _)| led);
        (leads != led).then_some(EventKind::LeadershipChanged { is_leader: leads, term })
    }

    /// What was in force when the chronicle began is no news.
    fn policy_events(&self, before: &Self) -> Vec<EventKind> {
        let Some((latest, _)) = before.revisions.last() else {
            return Vec::new();
        };
        let mut had = latest;
        let mut told = Vec::new();
        for (revision, changes) in &self.revisions {
            told.extend(revision_event(had, revision, changes));
            had = revision;
        }
        told
    }

    fn element_events(&self, before: &Self) -> Vec<EventKind> {
        let Some(rollout) = &self.rollout else {
            return Vec::new();
        };
        let had = before.rollout.as_ref();
        // Ids of another fabric mean other parts.
        let had = had.filter(|had| Arc::ptr_eq(&had.wiring, &rollout.wiring));
        let fabric = &rollout.fabric;
        let of_switch = |switch: SwitchId| {
            let now = rollout.switch_state(switch);
            let state = state_change(had.map(|had| had.switch_state(switch)), now)?;
            let switch = fabric.switch(switch).name.clone();
            Some(EventKind::SwitchChanged { switch, state })
        };
        let of_cable = |link: LinkId| {
            let now = rollout.cable_state(link);
            let state = state_change(had.map(|had| had.cable_state(link)), now)?;
            let link = fabric.link_name(link);
            Some(EventKind::CableChanged { link, state })
        };
        let switches = fabric.switch_ids();
        let cables = fabric.cables();
        switches.filter_map(of_switch).chain(cables.filter_map(of_cable)).collect()
    }

    fn job_events(&self, before: &Self) -> Vec<EventKind> {
        let (had, has) = (before.planned_jobs(), self.planned_jobs());
        let left = had.keys().filter(|id| !has.contains_key(*id));
        let left = left.map(|id| EventKind::JobLeft { job: id.to_string() });
        let come = has.values().filter_map(|job| match had.get(&job.id) {
            None => Some(self.job_arrival(job)),
            Some(earlier) => self.job_change(job, earlier, before),
        });
        left.chain(come).collect()
    }

    fn job_arrival(&self, job: &PlannedJob) -> EventKind {
        EventKind::JobArrived {
            job: job.id.to_string(),
            level: job.level,
            rank: job.rank,
            intensity: job.intensity,
            profiled: self.profiled.contains(&job.id),
        }
    }

    fn job_change(
        &self,
        job: &PlannedJob,
        earlier: &PlannedJob,
        before: &Self,
    ) -> Option<EventKind> {
        let level = ValueChange { before: earlier.level, after: job.level };
        let profiled = ValueChange {
            before: before.profiled.contains(&job.id),
            after: self.profiled.contains(&job.id),
        };
        let is_same = level.before == level.after && profiled.before == profiled.after;
        (!is_same).then(|| EventKind::JobChanged {
            job: job.id.to_string(),
            level,
            profiled,
            intensity: job.intensity,
        })
    }

    fn adoption_event(&self, before: &Self) -> Option<EventKind> {
        let rollout = self.rollout.as_ref()?;
        let had = before.rollout.as_ref();
        if had.is_some_and(|had| had.generation == rollout.generation) {
            return None;
        }
        let had = had.filter(|had| Arc::ptr_eq(&had.wiring, &rollout.wiring));
        let moved = had.map_or_else(Vec::new, |had| moved_flows(&had.plan, &rollout.plan));
        let shown = moved.iter().take(MOVES_SHOWN);
        Some(EventKind::PlanAdopted {
            generation: rollout.generation,
            jobs: rollout.plan.jobs.len(),
            flows: rollout.plan.flows.len(),
            moved: moved.len(),
            moves: shown
                .map(|pair| describe_move(&rollout.fabric, &rollout.plan, *pair))
                .collect(),
        })
    }

    fn drift_events(&self, before: &Self) -> Vec<EventKind> {
        let had: BTreeMap<&str, u64> =
            before.sessions.iter().map(|line| (line.name.as_str(), line.drifted)).collect();
        let repaired = |line: &SessionSummary| {
            // A session that begins anew counts anew.
            let earlier = had.get(line.name.as_str()).copied().unwrap_or(0);
            let entries = line.drifted.saturating_sub(earlier);
            let switch = line.name.clone();
            (entries > 0).then_some(EventKind::DriftRepaired { switch, entries })
        };
        self.sessions.iter().filter_map(repaired).collect()
    }

    /// The generation that every switch that is not down is seen to hold.
    fn verified_generation(&self) -> Option<u64> {
        let rollout = self.rollout.as_ref()?;
        let fabric = &rollout.fabric;
        // The board may be of the next fabric already.
        let exists = |line: &&SessionSummary| line.switch.index() < fabric.switches().len();
        let is_up = |line: &&SessionSummary| fabric.is_switch_up(line.switch);
        let mut held = self.sessions.iter().filter(exists).filter(is_up);
        let holds =
            |line: &SessionSummary| line.verified.is_some_and(|seen| seen >= rollout.generation);
        (!self.sessions.is_empty() && held.all(holds)).then_some(rollout.generation)
    }

    fn verification_event(&self, before: &Self) -> Option<EventKind> {
        let generation = self
            .verified_generation()
            .filter(|held| before.verified_generation() != Some(*held))?;
        let timing = self.timing.filter(|timing| timing.generation == generation)?;
        Some(EventKind::PlanVerified { generation, seconds: timing.total_duration().as_secs_f64() })
    }

    fn drain_event(&self, before: &Self) -> Option<EventKind> {
        let complete = self.drainage.complete.iter();
        let added = complete.filter(|part| !before.drainage.complete.contains(*part));
        let parts: Vec<String> = added.cloned().collect();
        (!parts.is_empty()).then_some(EventKind::DrainCompleted { parts })
    }

    fn finding_events(&self, before: &Self) -> Vec<EventKind> {
        let raised = self.findings.difference(&before.findings).cloned();
        let cleared = before.findings.difference(&self.findings).cloned();
        raised
            .map(|finding| EventKind::FindingRaised { finding })
            .chain(cleared.map(|finding| EventKind::FindingCleared { finding }))
            .collect()
    }

    fn planned_jobs(&self) -> BTreeMap<&JobId, &PlannedJob> {
        let jobs = self.rollout.iter().flat_map(|had| &had.plan.jobs);
        jobs.map(|job| (&job.id, job)).collect()
    }
}

/// What a revision is after the one before it; the same one again may have been confirmed.
fn revision_event(
    had: &PolicyRevision,
    revision: &PolicyRevision,
    changes: &[String],
) -> Option<EventKind> {
    let number = revision.number;
    if number == had.number {
        let is_confirmed = had.trial.is_some() && revision.trial.is_none();
        return is_confirmed.then_some(EventKind::PolicyConfirmed { revision: number });
    }
    let trial = had.trial.as_ref().filter(|_| revision.trial.is_none());
    let is_back = trial.is_some_and(|trial| trial.before == revision.content);
    let (author, reason) = (revision.metadata.author.clone(), revision.metadata.reason.clone());
    Some(match (is_back, author.as_str()) {
        (true, AUTOMATIC_AUTHOR) => {
            EventKind::PolicyExpired { revision: number, expired: had.number }
        }
        (true, _) => EventKind::PolicyRolledBack {
            revision: number,
            rolled_back: had.number,
            author,
            reason,
        },
        (false, _) => EventKind::PolicyApplied {
            revision: number,
            author,
            reason,
            trial_until_ms: revision.trial.as_ref().map(|trial| trial.until_ms),
            changes: changes.to_vec(),
        },
    })
}

/// How a part is told to have changed. A part that was not seen before is only told of if something
/// is the matter with it.
fn state_change(before: Option<&str>, after: &str) -> Option<ValueChange<String>> {
    let before = before.unwrap_or("up");
    (before != after).then(|| ValueChange { before: before.to_owned(), after: after.to_owned() })
}

/// Flows of both plans that take another path in the second, as they are and were.
fn moved_flows<'a>(before: &'a Plan, after: &'a Plan) -> Vec<(&'a PlannedFlow, &'a PlannedFlow)> {
    let had: BTreeMap<_, _> =
        before.flows.iter().map(|flow| (flow_key(before, flow), flow)).collect();
    let pairs =
        after.flows.iter().filter_map(|flow| Some((*had.get(&flow_key(after, flow))?, flow)));
    pairs.filter(|(a, b)| a.links != b.links).collect()
}

fn flow_key<'a>(plan: &'a Plan, flow: &PlannedFlow) -> (&'a JobId, NicId, NicId, u16) {
    let job = &plan.jobs[flow.job].id;
    (job, flow.src, flow.dst, flow.udp_src_port)
}

fn describe_move(
    fabric: &Fabric,
    plan: &Plan,
    (had, has): (&PlannedFlow, &PlannedFlow),
) -> FlowMove {
    let host = |nic| &fabric.host(fabric.nic(nic).host).name;
    FlowMove {
        job: plan.jobs[has.job].id.to_string(),
        flow: format!("{}>{}:{}", host(has.src), host(has.dst), has.udp_src_port),
        path: ValueChange {
            before: fabric.path_node_names(&had.links),
            after: fabric.path_node_names(&has.links),
        },
    }
}

/// The revisions from number `known` on, the earliest first, each with what it changed.
pub(crate) fn revisions_from(state: &State, known: u64) -> Vec<(PolicyRevision, Vec<String>)> {
    let history = state.policy_history().revisions_with_changes().into_iter();
    let added = history.take_while(|(revision, _)| revision.number >= known);
    let mut added: Vec<_> = added.map(|(revision, changes)| (revision.clone(), changes)).collect();
    added.reverse();
    added
}

#[cfg(test)]
mod tests;
