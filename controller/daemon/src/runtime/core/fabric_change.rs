//! Other fabrics while the controller runs: those that discovery finds, that an operator gives, or
//! that the leader has stored.
//!
//! The decision: everything that is known goes over by name. A job keeps its plan, a part that has
//! failed stays out of use, and a session whose switch has the same place and address goes on.

use std::collections::BTreeSet;

use planner::JobId;
use tokio::time::Instant;
use topology::spec::{FabricDocument, explicit_document};
use topology::{AvailabilityChange, Fabric, Finding};

use super::{Core, refused_unstored};
use crate::fabric_history::{FabricHistory, is_same};
use crate::runtime::archive::or_finding;
use crate::runtime::log::log_finding;
use crate::standing_findings::StandingFindings;
use crate::state::{ConsideredFabric, Effects, FabricProposal, State, StateEvent};
use crate::store::StoreRecord;

/// The cause of the finding about the fabric file.
const OTHER_FILE: &str = "fabric file";

impl Core {
    /// What would follow from a fabric.
    ///
    /// # Errors
    /// Why it would be refused.
    pub(super) fn consider_fabric(&self, fabric: &Fabric) -> Result<ConsideredFabric, Finding> {
        let (next, lost_jobs) = self.consider_event(self.fabric_event(fabric))?;
        let request = next.current_request().settled();
        Ok(ConsideredFabric { request, jobs: self.state.state().running_jobs(), lost_jobs })
    }

    /// The state after an event on another fabric, and the jobs that it loses.
    ///
    /// # Errors
    /// Why it would be refused.
    fn consider_event(&self, event: StateEvent) -> Result<(State, Vec<JobId>), Finding> {
        if self.state.archive().learns_fabric() {
            return Err(learns_finding());
        }
        let mut next = self.state.state().clone();
        if let Some(refusal) = next.step(event).refusal {
            return Err(refusal);
        }
        let kept: BTreeSet<JobId> = next.running_jobs().into_iter().map(|job| job.id).collect();
        let jobs = self.state.state().running_jobs().into_iter().map(|job| job.id);
        let lost = jobs.filter(|job| !kept.contains(job)).collect();
        Ok((next, lost))
    }

    /// Stores a fabric that an operator gives, then has it in force: all of it, or nothing.
    pub(super) async fn apply_fabric(&mut self, proposal: FabricProposal, now: Instant) -> Effects {
        let FabricProposal { fabric, signature, is_of_file, force } = proposal;
        let generation = self.state.state().generation();
        let refuse = |refusal: Finding| Effects {
            cause: "a fabric",
            generation,
            ..Effects::from_refusal(refusal)
        };
        if let Some(refusal) = self.cluster.refusal_about("fabric") {
            return refuse(refusal);
        }
        let event = self.fabric_event(&fabric);
        let next = match self.consider_event(event.clone()) {
            Err(refusal) => return refuse(refusal),
            // Nothing is stored yet, so a refusal leaves neither a revision nor a policy without
            // drains.
            Ok((_, lost)) if !lost.is_empty() && !force => return refuse(lost_jobs_finding(&lost)),
            Ok((next, _)) => next,
        };
        let document = explicit_document(&fabric);
        let history = FabricHistory::clone(&self.state.fabric_history());
        let history = if is_of_file { history.with_file(document.clone()) } else { history };
        let changes = history.latest().is_none_or(|latest| !is_same(&latest.document, &document));
        let history = if changes { history.with_revision(document, signature) } else { history };
        // Together with the policy, which drains parts of this fabric and of no other.
        let policy = StoreRecord::Policy(Box::new(next.policy_history().latest().clone()));
        let records = vec![policy, StoreRecord::FabricHistory(Box::new(history.clone()))];
        if let Err(reason) = self.state.archive_mut().store_records(records).await {
            return refuse(refused_unstored("fabric", &reason));
        }
        report_other_file(&history, &self.findings);
        self.state.publish_fabric_history(history);
        if !changes {
            return Effects { cause: "a fabric", generation, ..Effects::default() };
        }
        Effects { record: None, ..self.step_to_fabric(event, now).await }
    }

    /// Adopts a fabric that discovery found.
    pub(super) async fn adopt_learned(&mut self, fabric: Fabric, now: Instant) -> Effects {
        let record = StoreRecord::Fabric(Box::new(explicit_document(&fabric)));
        let effects = self.step_to_fabric(self.fabric_event(&fabric), now).await;
        let mut effects = self.store_effects(effects).await;
        if effects.refusal.is_none() {
            effects.findings.extend(self.state.archive_mut().store_or_report(record).await);
        }
        effects
    }

    /// The step to another fabric, on which failures are known as before.
    pub(super) async fn step_to_fabric(&mut self, event: StateEvent, now: Instant) -> Effects {
        let before = self.state.state().fabric().clone();
        let effects = self.step_state(event);
        if effects.refusal.is_none() {
            let fabric = self.state.state().fabric().clone();
            // Before sessions of the next fabric report, or failures of the old one would be
            // forgotten.
            self.observer.adopt_fabric(&before, &fabric, now);
            // From now on ids mean the parts of the next fabric: no session may report under those
            // of another.
            self.publisher.stop_stale_sessions(&fabric).await;
        }
        effects
    }

    /// The event with which everything continues on another fabric.
    pub(super) fn fabric_event(&self, fabric: &Fabric) -> StateEvent {
        let known = self.state.state().fabric();
        let failures: Vec<AvailabilityChange> = failures_of(known, fabric).collect();
        self.state.event_on_fabric(fabric.with_changes(failures))
    }

    /// The fabric of the leader, where it is another one than here.
    pub(super) fn adopt_stored_history(&mut self, findings: &mut Vec<Finding>) -> Option<Fabric> {
        let stored = self.state.archive().stored_fabric_history()?.clone();
        let in_force = self.state.fabric_history();
        let document = stored.latest()?.document.clone();
        let is_other = in_force.latest().is_none_or(|latest| latest.document != document);
        let file = in_force.file().clone();
        let history = stored.with_file(file);
        report_other_file(&history, &self.findings);
        self.state.publish_fabric_history(history);
        let fabric = is_other.then(|| fabric_of(&document)).transpose();
        or_finding(fabric, findings).flatten()
    }
}

/// The fabric of a stored document.
///
/// # Errors
/// Another version wrote it, and this one reads it otherwise.
pub(in crate::runtime) fn fabric_of(document: &FabricDocument) -> Result<Fabric, String> {
    Fabric::try_from(document).map_err(|error| error.to_string())
}

/// Reports that the fabric in force is not that of the file, until they are equal.
pub(in crate::runtime) fn report_other_file(history: &FabricHistory, findings: &StandingFindings) {
    let Some(latest) = history.latest().filter(|_| !history.holds_file()) else {
        return findings.clear_finding(OTHER_FILE);
    };
    let text = format!(
        "the fabric in force is revision {}, applied by {}, and not what the file says; write it \
         there (crux fabric show --format toml), or apply the file (crux fabric apply)",
        latest.number, latest.metadata.author
    );
    let finding = Finding::warning("fabric", text);
    log_finding(&finding);
    findings.report_finding(OTHER_FILE, finding);
}

/// What has failed in `known` and exists in `fabric`, by name.
fn failures_of<'a>(
    known: &'a Fabric,
    fabric: &'a Fabric,
) -> impl Iterator<Item = AvailabilityChange> + 'a {
    let switches = known.switch_ids().filter(|switch| !known.is_switch_up(*switch));
    let switches = switches.filter_map(|id| fabric.switch_named(&known.switch(id).name));
    let cables = known.cables().filter(|link| !known.is_cable_up(*link));
    let cables = cables.filter_map(|link| fabric.link_named(&known.link_name(link)));
    let switches = switches.map(AvailabilityChange::SwitchDown);
    switches.chain(cables.map(AvailabilityChange::LinkDown))
}

fn learns_finding() -> Finding {
    let text = "refused: this controller finds the fabric by itself (discovery.learn); connect what \
                is new, and it is found";
    Finding::error("fabric", text)
}

fn lost_jobs_finding(jobs: &[JobId]) -> Finding {
    let jobs: Vec<&str> = jobs.iter().map(|job| job.as_str()).collect();
    let text = format!(
        "refused: it lacks hosts or NICs of running jobs ({}); end them first, or repeat it with \
         --force",
        jobs.join(", ")
    );
    Finding::error("fabric", text)
}
