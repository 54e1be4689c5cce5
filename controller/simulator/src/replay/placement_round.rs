//! When the placement policy decides, and what its decisions change.

use std::collections::BTreeMap;

use super::{TraceReplay, TraceReplayError};
use placement::{PlacementDecision, RunningJob};

/// Jobs that lost GPUs and jobs that got some; a job that moves is in both lists.
#[derive(Debug, Default)]
pub(super) struct PlacementChanges {
    /// Jobs by number.
    pub(super) stopped: Vec<u32>,
    /// Jobs by number, with the time at which they are ready.
    pub(super) started: Vec<(u32, f64)>,
}

impl TraceReplay<'_> {
    /// Whether the policy decides now: at every event, or in rounds while there are jobs.
    pub(super) fn is_round_due(&mut self, is_event: bool) -> bool {
        let Some(length) = self.policy.round_seconds() else {
            return is_event;
        };
        let now = self.progress.now;
        let state = self.cluster_jobs.state_at(now);
        let is_empty = state.waiting.is_empty() && state.running.is_empty();
        let is_due = self.progress.round.is_some_and(|round| round <= now);
        self.progress.round = match self.progress.round {
            _ if is_empty => None,
            Some(round) if is_due => Some(round + length),
            Some(round) => Some(round),
            // Rounds are at multiples of their length, whenever the first job arrives.
            None => Some((now / length).floor().mul_add(length, length)),
        };
        is_due
    }

    /// Queries the placement policy and applies its decisions.
    pub(super) fn run_policy(
        &mut self,
        changes: &mut PlacementChanges,
    ) -> Result<(), TraceReplayError> {
        for number in self.active.keys() {
            let left = self.progress.records[*number as usize].left;
            if left > 0.0 {
                let seconds = left * self.alone[*number as usize];
                self.cluster_jobs.record_progress(*number, left, seconds)?;
            }
        }
        let now = self.progress.now;
        let before: BTreeMap<u32, RunningJob> =
            running_by_number(self.cluster_jobs.state_at(now).running);
        let decisions = self.policy.make_decisions(&self.cluster_jobs.state_at(now));
        let mut stalls = BTreeMap::new();
        for decision in &decisions {
            self.cluster_jobs.apply_decision(decision)?;
            match decision {
                PlacementDecision::Start(start) => {
                    stalls.insert(start.job, start.stall_seconds);
                }
                PlacementDecision::Refuse { job, .. } => {
                    self.progress.records[*job as usize].is_refused = true;
                }
                PlacementDecision::Suspend { .. } => {}
            }
        }
        let after = running_by_number(self.cluster_jobs.state_at(now).running);
        let left: Vec<u32> = differing_jobs(&before, &after);
        self.progress.suspensions += left.len() as u64;
        self.progress.is_idle = decisions.is_empty();
        changes.stopped.extend(left);
        for number in differing_jobs(&after, &before) {
            let record = &mut self.progress.records[number as usize];
            record.started_seconds.get_or_insert(now);
            let stall = stalls.get(&number).copied().unwrap_or_default();
            changes.started.push((number, now + stall));
        }
        Ok(())
    }
}

fn running_by_number(jobs: &[RunningJob]) -> BTreeMap<u32, RunningJob> {
    jobs.iter().map(|running| (running.request.job, running.clone())).collect()
}

/// Jobs that run in `these` and in `those` do not, or differently.
fn differing_jobs(
    these: &BTreeMap<u32, RunningJob>,
    those: &BTreeMap<u32, RunningJob>,
) -> Vec<u32> {
    these
        .iter()
        .filter(|(number, one)| {
            !those.get(number).is_some_and(|other| {
                (&one.gpus, &one.gpu_indices) == (&other.gpus, &other.gpu_indices)
                    && (one.group, &one.pace) == (other.group, &other.pace)
            })
        })
        .map(|(number, _)| *number)
        .collect()
}
