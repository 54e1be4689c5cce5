//! The state of fabric and controller at one instant, and the events between two snapshots.
//!
//! Pure. The decision: all events come from a comparison, in one order (leadership, policy, parts
//! of the fabric, jobs, the plan, switches, drains, findings), so that no place where something
//! changes can forget to report it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use planner::{JobId, PlannedFlow, PlannedJob};
use topology::{Finding, LinkId, NicId, SwitchId};

use super::event::{EventKind, FlowMove};
use crate::fabric_history::FabricHistory;
use crate::policy_history::{AUTOMATIC_AUTHOR, PolicyRevision};
use crate::preview::ValueChange;
use crate::southbound::ChangeTiming;
use crate::southbound::SwitchStatus;
use crate::southbound::write_permit::WritePermit;
use crate::state::{DrainReport, PlanRollout, State};

/// Moved flows that an event lists.
const MOVES_SHOWN: usize = 8;

/// The state of fabric and controller at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSnapshot {
    pub(crate) rollout: Option<PlanRollout>,
    /// Jobs that are being profiled.
    pub(crate) profiled: BTreeSet<JobId>,
    /// The policy revisions from the latest of the previous snapshot on, the earliest first, each
    /// with its changes.
    pub(crate) revisions: Vec<(PolicyRevision, Vec<String>)>,
    /// The fabrics that operators gave.
    pub(crate) fabrics: Arc<FabricHistory>,
    pub(crate) sessions: Vec<SessionSummary>,
    pub(crate) findings: BTreeSet<Finding>,
    pub(crate) permit: WritePermit,
    pub(crate) timing: Option<ChangeTiming>,
    pub(crate) drainage: DrainReport,
}

/// The part of a session's status that leads to events.
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
    /// The number of the latest revision; 0 without any.
    pub(crate) fn latest_revision(&self) -> u64 {
        self.revisions.last().map_or(0, |(revision, _)| revision.number)
    }

    /// The events since an earlier snapshot.
    pub(crate) fn events_since(&self, before: &Self) -> Vec<EventKind> {
        let mut events = Vec::new();
        events.extend(self.leadership_event(before));
        events.extend(self.policy_events(before));
        events.extend(self.fabric_events(before));
        events.extend(self.element_events(before));
        events.extend(self.job_events(before));
        events.extend(self.adoption_event(before));
        events.extend(self.drift_events(before));
        events.extend(self.verification_event(before));
        events.extend(self.drain_events(before));
        events.extend(self.finding_events(before));
        events
    }

    /// Whether this controller leads, and its term; none before that is known. Where the switches
    /// elect, it leads if it is primary at more than half of them.
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

    /// A controller that has never led reports no lost leadership.
    fn leadership_event(&self, before: &Self) -> Option<EventKind> {
        let (leads, term) = self.leadership_state()?;
        let led = before.leadership_state().is_some_and(|(led, _)| led);
        (leads != led).then_some(EventKind::LeadershipChanged { is_leader: leads, term })
    }

    /// The revision in force at the first snapshot is no event.
    fn policy_events(&self, before: &Self) -> Vec<EventKind> {
        let Some((latest, _)) = before.revisions.last() else {
            return Vec::new();
        };
        let mut had = latest;
        let mut events = Vec::new();
        for (revision, changes) in &self.revisions {
            events.extend(revision_event(had, revision, changes));
            had = revision;
        }
        events
    }

    /// The fabric in force at the first snapshot is no event.
    fn fabric_events(&self, before: &Self) -> Vec<EventKind> {
        let Some(known) = before.fabrics.latest().map(|latest| latest.number) else {
            return Vec::new();
        };
        let new = self.fabrics.revisions().iter().filter(|revision| revision.number > known);
        let events = new.map(|revision| EventKind::FabricApplied {
            revision: revision.number,
            author: revision.metadata.author.clone(),
            reason: revision.metadata.reason.clone(),
            changes: revision.changes.clone(),
        });
        events.collect()
    }

    fn element_events(&self, before: &Self) -> Vec<EventKind> {
        let Some(rollout) = &self.rollout else {
            return Vec::new();
        };
        let fabric = &rollout.fabric;
        let mut events = Vec::new();
        for switch in fabric.switch_ids() {
            let name = &fabric.switch(switch).name;
            let earlier = before.rollout.as_ref().and_then(|had| {
                let switch = had.fabric.switch_named(name)?;
                Some(had.switch_state(switch))
            });
            if let Some(state) = state_change(earlier, rollout.switch_state(switch)) {
                let switch = fabric.switch(switch).name.clone();
                events.push(EventKind::SwitchChanged { switch, state });
            }
        }
        for link in fabric.cables() {
            let earlier = before.rollout.as_ref().and_then(|had| {
                let link = if Arc::ptr_eq(&had.wiring, &rollout.wiring) {
                    link
                } else {
                    had.fabric.link_named(&fabric.link_name(link))?
                };
                Some(had.cable_state(link))
            });
            if let Some(state) = state_change(earlier, rollout.cable_state(link)) {
                events.push(EventKind::CableChanged { link: fabric.link_name(link), state });
            }
        }
        events
    }

    fn job_events(&self, before: &Self) -> Vec<EventKind> {
        let (had, has) = (before.planned_jobs(), self.planned_jobs());
        let gone = had.keys().filter(|id| !has.contains_key(*id));
        let left = gone.map(|id| EventKind::JobLeft { job: id.to_string() });
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
        if before.rollout.as_ref().is_some_and(|had| had.generation == rollout.generation) {
            return None;
        }
        let had = before.rollout.as_ref();
        let moved = had.map_or_else(Vec::new, |had| moved_flows(had, rollout));
        let moves = had.map_or_else(Vec::new, |had| {
            let shown = moved.iter().take(MOVES_SHOWN);
            shown.map(|pair| describe_move([had, rollout], pair)).collect()
        });
        // The first plan of a run is compared with the last of the run before by its report alone.
        let since_start = before.rollout.is_none().then(|| rollout.report.moved.len());
        Some(EventKind::PlanAdopted {
            generation: rollout.generation,
            jobs: rollout.plan.jobs.len(),
            flows: rollout.plan.flows.len(),
            moved: since_start.unwrap_or(moved.len()),
            moves,
        })
    }

    fn drift_events(&self, before: &Self) -> Vec<EventKind> {
        let had: BTreeMap<&str, u64> =
            before.sessions.iter().map(|line| (line.name.as_str(), line.drifted)).collect();
        let mut events = Vec::new();
        for session in &self.sessions {
            // A session that restarts counts from 0 again, so its count may have fallen.
            let earlier = had.get(session.name.as_str()).copied().unwrap_or(0);
            let entries = session.drifted.saturating_sub(earlier);
            if entries > 0 {
                events.push(EventKind::DriftRepaired { switch: session.name.clone(), entries });
            }
        }
        events
    }

    /// The generation that every switch that is not down is seen to hold.
    fn verified_generation(&self) -> Option<u64> {
        let rollout = self.rollout.as_ref()?;
        let (fabric, generation) = (&rollout.fabric, rollout.generation);
        let is_held = self.sessions.iter().all(|session| {
            // The status board may be of the next fabric already.
            session.switch.index() >= fabric.switches().len()
                || !fabric.is_switch_up(session.switch)
                || session.verified.is_some_and(|verified| verified >= generation)
        });
        (is_held && !self.sessions.is_empty()).then_some(generation)
    }

    fn verification_event(&self, before: &Self) -> Option<EventKind> {
        let generation = self
            .verified_generation()
            .filter(|held| before.verified_generation() != Some(*held))?;
        let timing = self.timing.filter(|timing| timing.generation == generation)?;
        Some(EventKind::PlanVerified { generation, seconds: timing.total_duration().as_secs_f64() })
    }

    fn drain_events(&self, before: &Self) -> impl Iterator<Item = EventKind> {
        let complete = self.drainage.complete.iter();
        let added = complete.filter(|(part, _)| !before.drainage.complete.contains_key(*part));
        let mut parts: BTreeMap<bool, Vec<String>> = BTreeMap::new();
        for (part, counted) in added {
            parts.entry(*counted).or_default().push(part.clone());
        }
        parts.into_iter().map(|(counted, parts)| EventKind::DrainCompleted { parts, counted })
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

/// The event of a revision that follows `had`. One of the same number is `had`, perhaps confirmed.
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

/// The change of a part's state, if it changed. A part without an earlier state counts as up.
fn state_change(earlier: Option<&str>, after: &str) -> Option<ValueChange<String>> {
    let before = earlier.unwrap_or("up");
    (before != after).then(|| ValueChange { before: before.to_owned(), after: after.to_owned() })
}

/// A flow as in two plans, each on its fabric.
type FlowPair<'a> = (&'a PlannedFlow, &'a PlannedFlow);

/// Flows that take another path in the second plan, perhaps to another port of their receiver.
fn moved_flows<'a>(before: &'a PlanRollout, after: &'a PlanRollout) -> Vec<FlowPair<'a>> {
    let ids = SharedIds::new(before, after);
    let to = |port: NicId| after.fabric.first_port(port);
    let keyed = before.plan.flows.iter().filter_map(|flow| {
        let (src, dst) = (ids.nic(flow.src)?, to(ids.nic(flow.dst)?));
        Some(((&before.plan.jobs[flow.job].id, src, dst, flow.udp_src_port), flow))
    });
    let had: BTreeMap<_, _> = keyed.collect();
    let pairs = after.plan.flows.iter().filter_map(|flow| {
        let job = &after.plan.jobs[flow.job].id;
        Some((*had.get(&(job, flow.src, to(flow.dst), flow.udp_src_port))?, flow))
    });
    let is_moved = |(had, has): &FlowPair<'_>| {
        let kept = had.links.iter().map(|link| ids.link(*link));
        !kept.eq(has.links.iter().map(|link| Some(*link)))
    };
    pairs.filter(is_moved).collect()
}

/// The ids of what two fabrics have both: in the second, by those in the first. None where they are
/// the same fabric.
struct SharedIds(Option<IdMaps>);

struct IdMaps {
    nics: Vec<Option<NicId>>,
    links: Vec<Option<LinkId>>,
}

impl SharedIds {
    fn new(before: &PlanRollout, after: &PlanRollout) -> Self {
        if Arc::ptr_eq(&before.wiring, &after.wiring) {
            return Self(None);
        }
        let (known, fabric) = (&before.fabric, &after.fabric);
        let nics = known.nic_ids().map(|nic| {
            let host = fabric.host_named(&known.host(known.nic(nic).host).name)?;
            fabric.host_port(host, known.host_port_number(nic))
        });
        let links = known.link_ids().map(|link| fabric.link_named(&known.link_name(link)));
        Self(Some(IdMaps { nics: nics.collect(), links: links.collect() }))
    }

    fn nic(&self, nic: NicId) -> Option<NicId> {
        self.0.as_ref().map_or(Some(nic), |ids| ids.nics[nic.index()])
    }

    fn link(&self, link: LinkId) -> Option<LinkId> {
        self.0.as_ref().map_or(Some(link), |ids| ids.links[link.index()])
    }
}

fn describe_move([before, rollout]: [&PlanRollout; 2], (earlier, now): &FlowPair<'_>) -> FlowMove {
    FlowMove {
        job: rollout.plan.jobs[now.job].id.to_string(),
        flow: now.name_in(&rollout.fabric),
        path: ValueChange {
            before: before.fabric.path_node_names(&earlier.links),
            after: rollout.fabric.path_node_names(&now.links),
        },
    }
}

/// The revisions from number `known` on, the earliest first, each with its changes.
pub(crate) fn revisions_from(state: &State, known: u64) -> Vec<(PolicyRevision, Vec<String>)> {
    let mut added = Vec::new();
    for (revision, changes) in state.policy_history().revisions_with_changes() {
        if revision.number < known {
            break;
        }
        added.push((revision.clone(), changes));
    }
    added.reverse();
    added
}

#[cfg(test)]
mod tests;
