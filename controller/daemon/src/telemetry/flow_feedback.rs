//! What reporters learn of their flows: how each is known, and whether it has its path.
//!
//! Pure. The decision: a reporter gets one sentence for each job, and again only when the numbers
//! in it change, at most one in each interval of the task.

use std::collections::BTreeMap;

use planner::{FlowIdentity, JobId, Plan};
use topology::Finding;

use crate::state::PlanRollout;

/// What became of the flows of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FlowOutcome {
    announced: usize,
    pairs: usize,
    /// Flows of either kind that switches have a path for.
    with_path: usize,
    learned: usize,
}

impl FlowOutcome {
    fn finding(self, job: &JobId) -> Finding {
        let Self { announced, pairs, with_path, learned } = self;
        let text = format!(
            "{} flows: {announced} known by ports, {pairs} by NICs; {with_path} have paths of the \
             plan; {learned} other connections learned",
            announced + pairs
        );
        Finding::info(format!("job {job}"), text)
    }
}

/// What reporters were last sent.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowFeedback {
    sent: BTreeMap<JobId, FlowOutcome>,
}

impl FlowFeedback {
    /// Findings about the jobs for which a rollout changes the numbers.
    pub(super) fn follow_rollout(&mut self, rollout: &PlanRollout) -> Vec<(JobId, Finding)> {
        let outcomes = count_outcomes(rollout);
        let changed = outcomes.iter().filter(|(job, now)| self.sent.get(*job) != Some(*now));
        let findings = changed.map(|(job, now)| (job.clone(), now.finding(job))).collect();
        self.sent = outcomes;
        findings
    }
}

fn count_outcomes(rollout: &PlanRollout) -> BTreeMap<JobId, FlowOutcome> {
    let plan: &Plan = &rollout.plan;
    let mut outcomes = vec![FlowOutcome::default(); plan.jobs.len()];
    for flow in &plan.flows {
        let outcome = &mut outcomes[flow.job];
        match flow.identity() {
            FlowIdentity::Announced => outcome.announced += 1,
            FlowIdentity::Learned | FlowIdentity::Pair => outcome.pairs += 1,
        }
        outcome.with_path += usize::from(flow.pinned);
    }
    for flow in rollout.learned.iter() {
        outcomes[flow.job].learned += 1;
    }
    plan.jobs.iter().map(|job| job.id.clone()).zip(outcomes).collect()
}
