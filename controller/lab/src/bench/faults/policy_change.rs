//! A policy that an operator applies while faults happen, and a check of the response.
//!
//! It begins when the schedule before it has converged. The decision: the outcome is checked once
//! the faults have ended, no revision is on trial, and all switches have been stable for a while.
//! Until then a repair may be in progress, and switches may differ. The policy history is the only
//! source for the policy in force; the switches must hold exactly that, and the operator's response
//! must agree.

use std::time::Duration;

use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest,
};
use controller::policy_history::{PolicyContent, RevisionMetadata};
use controller::{ControllerAccess, PolicyProposal, StateEvent};
use planner::{OverrideDocument, Policy, PolicyDocument};
use tokio::time::{Instant, sleep, timeout};

use super::controller_setup::{build_job, controller_config};
use super::fault_schedule::{FaultStep, LeadershipMode};
use super::planted_bug::PlantedBug;
use super::scenario_run::{CALM, CALM_TIMEOUT, POLL_INTERVAL, ScenarioRun};

/// Jobs that run meanwhile; the last is the most intense.
const JOBS: u32 = 4;

/// The policy before and the new one.
struct PolicyTransition {
    old: Policy,
    new: Policy,
}

/// The response that the operator received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorAnswer {
    Applied,
    RolledBack,
    /// No response that decides: the controller is gone, or could not store the revision.
    Unknown,
}

impl PolicyTransition {
    /// A transition to another number of levels, with the most intense job at the lowest.
    fn from_policy(old: &Policy) -> Result<Self, String> {
        let mut document = PolicyDocument::from(old);
        document.levels = Some(old.levels % 8 + 1);
        document.jobs = vec![OverrideDocument {
            pattern: format!("job:{}", build_job(JOBS - 1).id),
            level: Some(0),
            ..OverrideDocument::default()
        }];
        let new = document.to_policy("change");
        Ok(Self { old: old.clone(), new: new.map_err(|error| error.to_string())? })
    }

    fn apply_request(&self) -> Result<ApplyPolicyRequest, String> {
        let document = PolicyDocument::from(&self.new);
        let text = serde_json::to_string(&document).map_err(|error| error.to_string())?;
        let file = "change.json".to_owned();
        Ok(ApplyPolicyRequest {
            change: PreviewPolicyRequest {
                policy: Some(DocumentFile { file, text }),
                ..PreviewPolicyRequest::default()
            },
            author: "operator".to_owned(),
            ..ApplyPolicyRequest::default()
        })
    }

    /// Which of the two policies this content is.
    fn matching_policy(&self, content: &PolicyContent) -> Option<&Policy> {
        let mut both = [&self.old, &self.new].into_iter();
        both.find(|policy| PolicyContent::from(*policy) == *content)
    }
}

impl ScenarioRun {
    /// Applies a policy at the leader while `steps` happen, over the time `until`.
    pub(super) async fn run_policy_change(
        &mut self,
        steps: &[(u64, FaultStep)],
        until: Duration,
    ) -> Result<(), String> {
        self.facts.jobs = (0..JOBS).map(build_job).collect();
        self.submit_jobs().await?;
        self.await_stable(&[]).await?;
        let change = PolicyTransition::from_policy(&self.facts.policy)?;
        let (asked, leader) = self.find_leader()?;
        let access = leader.access().clone();
        let verify = controller_config(asked, 1, self.led)?;
        let applying = tokio::spawn(apply_as_operator(
            access,
            NorthboundService::new(leader.access().clone(), &verify),
            change.apply_request()?,
            self.planted_bug,
            verify.verify_deadline,
        ));
        self.play_lossy_steps(steps, until).await?;
        let kill = FaultStep::Kill { controller: asked };
        let survives = steps.iter().all(|(_, step)| *step != kill);
        self.end_faults().await?;
        let answer = timeout(CALM_TIMEOUT, applying)
            .await
            .map_err(|_| "the operator waits for an answer".to_owned())?
            .map_err(|_| "applying panicked".to_owned())??;
        self.await_stable(&[&change]).await?;
        self.check_answer(&change, answer, asked, survives).await
    }

    /// Waits until all switches are converged under whichever policy is in force, and stay so. A
    /// new generation restarts the wait: a cable may be used again, or an update may come from the
    /// store.
    async fn await_stable(&mut self, changes: &[&PolicyTransition]) -> Result<(), String> {
        let deadline = Instant::now() + CALM_TIMEOUT;
        let mut calm: Option<(Instant, (u32, u64))> = None;
        loop {
            let whole = self.check_change_converged(changes).await;
            let leader = self.find_leader();
            let desired = leader
                .map(|(number, leader)| (number, leader.desired_tables().generation))
                .unwrap_or_default();
            match (whole, calm) {
                (Ok(()), Some((since, what))) if what == desired => {
                    if Instant::now() >= since + CALM {
                        return Ok(());
                    }
                }
                (Ok(()), _) => calm = Some((Instant::now(), desired)),
                (Err(why), Some((_, what))) if what == desired => {
                    return Err(format!("not stable: {why}"));
                }
                (Err(why), _) if Instant::now() >= deadline => return Err(why),
                (Err(_), _) => calm = None,
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Checks that no revision is on trial and that all switches implement the policy in force.
    async fn check_change_converged(
        &mut self,
        changes: &[&PolicyTransition],
    ) -> Result<(), String> {
        let (number, _) = self.find_leader()?;
        if let Some(change) = changes.first() {
            self.facts.policy = self.policy_in_force(change, number).await?;
        }
        self.check_converged()?;
        let (_, leader) = self.find_leader()?;
        let realised = leader.current_rollout().ok_or("there is no plan")?;
        let last = build_job(JOBS - 1).id;
        let lowered = changes.first().is_some_and(|change| self.facts.policy == change.new);
        match realised.plan.job(&last) {
            Some((_, planned)) if lowered && planned.level != 0 => {
                Err(format!("{last} has level {}", planned.level))
            }
            _ => Ok(()),
        }
    }

    /// The confirmed policy in force, by the history of a controller.
    async fn policy_in_force(
        &self,
        change: &PolicyTransition,
        controller: u32,
    ) -> Result<Policy, String> {
        let controller = self.controllers.get(&controller).ok_or("the controller is gone")?;
        let latest = controller
            .query_state(|state| state.policy_history().latest().clone())
            .await
            .map_err(|error| error.to_string())?;
        if latest.trial.is_some() {
            return Err("a revision is on trial".to_owned());
        }
        let found = change.matching_policy(&latest.content).cloned();
        found.ok_or_else(|| "a policy is in force that is neither old nor new".to_owned())
    }

    /// Checks that the response is true. Where switches elect and nothing is stored, each
    /// controller has its own policy, which is lost with it.
    async fn check_answer(
        &self,
        change: &PolicyTransition,
        answer: OperatorAnswer,
        asked: u32,
        survives: bool,
    ) -> Result<(), String> {
        let (leader, _) = self.find_leader()?;
        let in_force = match self.led {
            LeadershipMode::Etcd => {
                let mut all = Vec::new();
                for number in self.controllers.keys() {
                    all.push(self.policy_in_force(change, *number).await?);
                }
                if all.iter().any(|policy| *policy != all[0]) {
                    return Err("controllers differ in the policy in force".to_owned());
                }
                self.policy_in_force(change, leader).await?
            }
            LeadershipMode::Switches if survives => self.policy_in_force(change, asked).await?,
            // Nobody else had the change.
            LeadershipMode::Switches => return Ok(()),
        };
        match (answer, in_force == change.new) {
            (OperatorAnswer::Applied, false) => {
                Err("reported as applied, but the old policy is in force".to_owned())
            }
            (OperatorAnswer::RolledBack, true) => {
                Err("reported as rolled back, but the new policy is in force".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Applies a policy as an operator does.
async fn apply_as_operator(
    access: ControllerAccess,
    service: NorthboundService,
    order: ApplyPolicyRequest,
    planted_bug: PlantedBug,
    verify: Duration,
) -> Result<OperatorAnswer, String> {
    if planted_bug == PlantedBug::StopsHalfWay {
        return apply_without_rollback(&access, &service, &order, verify).await;
    }
    Ok(match service.apply_policy(&order).await {
        Ok(done) if done.applied => OperatorAnswer::Applied,
        // The answer says so where the rollback is not stored: the next leader may not know of it.
        Ok(done) if done.findings.iter().any(|finding| finding.about == "store") => {
            OperatorAnswer::Unknown
        }
        Ok(_) => OperatorAnswer::RolledBack,
        Err(_) => OperatorAnswer::Unknown,
    })
}

/// Applies it as a controller does that omits the rollback of an incomplete change.
async fn apply_without_rollback(
    access: &ControllerAccess,
    service: &NorthboundService,
    order: &ApplyPolicyRequest,
    verify: Duration,
) -> Result<OperatorAnswer, String> {
    let Some(text) = &order.change.policy else {
        return Ok(OperatorAnswer::Unknown);
    };
    let Ok(latest) = service.get_policy().await else {
        return Ok(OperatorAnswer::Unknown);
    };
    let policy: PolicyDocument =
        serde_json::from_str(&text.text).map_err(|error| error.to_string())?;
    let proposal = PolicyProposal {
        content: PolicyContent { policy, ..latest.content },
        signature: RevisionMetadata::default(),
        trial: None,
        // The campaign drains whatever it likes.
        force: true,
    };
    let proposed = access.submit_event(StateEvent::PolicyProposed(Box::new(proposal))).await;
    let Ok(receipt) = proposed else {
        return Ok(OperatorAnswer::Unknown);
    };
    Ok(match access.await_verified(receipt.generation, verify).await {
        Ok(_) => OperatorAnswer::Applied,
        Err(_) => OperatorAnswer::RolledBack,
    })
}
