//! When the placement policy decides, and what that changes.

use std::collections::BTreeMap;

use super::{Replay, ReplayError};
use crate::placement::{Decision, Running};

/// Who lost GPUs and who got some; a job that moves did both.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Jobs by number.
    pub(super) gone: Vec<u32>,
    /// Jobs by number, with the time at which they are ready.
    pub(super) come: Vec<(u32, f64)>,
}

impl Replay<'_> {
    /// Whether the policy decides now: at every event, or in rounds while there are jobs.
    pub(super) fn is_due(&mut self, is_event: bool) -> bool {
        let Some(length) = self.policy.round_seconds() else {
            return is_event;
        };
        let now = self.progress.now;
        let state = self.board.state(now);
        let is_empty = state.waiting.is_empty() && state.running.is_empty();
        let is_due = self.progress.round.is_some_and(|round| round <= now);
        self.progress.round = match self.progress.round {
            _ if is_empty => None,
            Some(round) if is_due => Some(round + length),
            Some(round) => Some(round),
            None => Some((now / length).floor().mul_add(length, length)),
        };
        is_due
    }

    /// Asks the policy and does what it says.
    pub(super) fn place(&mut self, changes: &mut Changes) -> Result<(), ReplayError> {
        for number in self.active.keys() {
            let left = self.progress.records[*number as usize].left;
            if left > 0.0 {
                let seconds = left * self.alone[*number as usize];
                self.board.progress(*number, left, seconds)?;
            }
        }
        let now = self.progress.now;
        let before: BTreeMap<u32, Running> = running(self.board.state(now).running);
        let decisions = self.policy.decide(&self.board.state(now));
        let mut stalls = BTreeMap::new();
        for decision in &decisions {
            self.board.apply(decision)?;
            match decision {
                Decision::Start(start) => drop(stalls.insert(start.job, start.stall_seconds)),
                Decision::Refuse { job, .. } => {
                    self.progress.records[*job as usize].is_refused = true;
                }
                Decision::Suspend { .. } => {}
            }
        }
        let after = running(self.board.state(now).running);
        let left: Vec<u32> = differing(&before, &after);
        self.progress.suspensions += left.len() as u64;
        self.progress.is_idle = decisions.is_empty();
        changes.gone.extend(left);
        for number in differing(&after, &before) {
            let record = &mut self.progress.records[number as usize];
            record.started_seconds.get_or_insert(now);
            let stall = stalls.get(&number).copied().unwrap_or_default();
            changes.come.push((number, now + stall));
        }
        Ok(())
    }
}

fn running(jobs: &[Running]) -> BTreeMap<u32, Running> {
    let by_number = |running: &Running| (running.request.job, running.clone());
    jobs.iter().map(by_number).collect()
}

/// Jobs that run in `these` and in `those` do not, or differently.
fn differing(these: &BTreeMap<u32, Running>, those: &BTreeMap<u32, Running>) -> Vec<u32> {
    let same = |one: &Running, other: &Running| {
        (&one.gpus, one.group, &one.pace) == (&other.gpus, other.group, &other.pace)
    };
    let differs = |(number, running): &(&u32, &Running)| {
        !those.get(number).is_some_and(|other| same(running, other))
    };
    these
        .iter()
        .filter(differs)
        .map(|(number, _)| *number)
        .collect()
}
