//! The scheduler (Crius), in rounds: spread jobs are gathered, waiting jobs are fitted in order
//! of arrival, and what is then idle makes running jobs faster.
//!
//! A job that fits while an earlier one waits runs *opportunistically*: the earlier one may have
//! its GPUs as soon as that is enough. Who runs so is nothing to remember: it came later than
//! somebody who waits.

use std::collections::BTreeSet;

use super::deadline::{Deadlines, ROUND_SECONDS};
use super::search::{MOST_GPUS, Search};
use crate::placement::allocation::{self, Allocation, Held, Stall};
use crate::placement::throughput::Throughputs;
use crate::placement::{Cluster, Decision, Policy, Request, State, fcfs, queue};

/// Which of its means the scheduler uses; all but in an ablation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Jobs may have other numbers of GPUs than they asked for.
    pub scaling: bool,
    /// Jobs may have other kinds of GPU than they asked for.
    pub moving: bool,
    /// Jobs may run while earlier ones wait for the same kind.
    pub opportunism: bool,
    /// Small jobs may move together to make room.
    pub merging: bool,
}

impl Abilities {
    /// All of them.
    pub const ALL: Self = Self {
        scaling: true,
        moving: true,
        opportunism: true,
        merging: true,
    };
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Crius {
    /// How fast it thinks models are.
    pub table: Throughputs,
    /// What a start or other GPUs cost.
    pub stall: Stall,
    /// Which of its means it uses.
    pub abilities: Abilities,
    /// When jobs must be over.
    pub deadlines: Deadlines,
}

impl Crius {
    /// The scheduler with all its means, and no deadlines.
    pub fn new(table: Throughputs) -> Self {
        Self {
            table,
            stall: Stall::PRUNED,
            abilities: Abilities::ALL,
            deadlines: Deadlines::default(),
        }
    }

    /// The refusal of a job that could not run on anything that it may be given.
    fn refusal(&self, cluster: &Cluster, request: &Request) -> Option<Decision> {
        let too_large = queue::refusal(cluster, request.job, request.gpus);
        too_large.or_else(|| (!self.possible(request)).then(|| fcfs::refusal(request)))
    }

    fn possible(&self, request: &Request) -> bool {
        let most = MOST_GPUS.max(request.gpus);
        let powers = (0..u32::BITS).map(|power| 1 << power);
        let mut counts = powers.take_while(|gpus| *gpus <= most);
        let runs = |kind, gpus| {
            let shape = self.table.best_shape(kind, gpus)?;
            self.table.speed(request, shape)
        };
        counts.any(|gpus| (0..self.table.kinds()).any(|kind| runs(kind, gpus).is_some()))
    }

    /// The schedule with a waiting job in it: beside all others, or instead of some that came
    /// later.
    fn fitted<'l>(
        &self,
        search: Search<'_>,
        allocation: &Allocation<'l>,
        request: &Request,
    ) -> Option<Allocation<'l>> {
        if let Some(fitted) = search.fit(allocation, request) {
            return Some(fitted);
        }
        let came_later = |held: &&Held| arrival(&held.request) > arrival(request);
        let later: Vec<Held> = allocation.held().filter(came_later).cloned().collect();
        if later.is_empty() {
            return None;
        }
        let mut without = allocation.clone();
        for held in &later {
            without.release(held.request.job);
        }
        let mut fitted = search.fit(&without, request)?;
        for held in later {
            fitted.restore(held);
        }
        Some(fitted)
    }

    /// Fits waiting jobs, the earliest first; a job like one that found no room is not tried.
    fn restart<'l>(
        &self,
        search: Search<'_>,
        mut allocation: Allocation<'l>,
        waiting: &[&Request],
    ) -> Allocation<'l> {
        let mut in_vain: BTreeSet<(Option<&str>, u32, u32)> = BTreeSet::new();
        let mut blocked = BTreeSet::new();
        for request in waiting {
            let kind = allocation::kind(request);
            let like = (request.model.as_deref(), kind, request.gpus);
            let held_back = !self.abilities.opportunism && blocked.contains(&kind);
            if held_back || in_vain.contains(&like) {
                continue;
            }
            match self.fitted(search, &allocation, request) {
                Some(fitted) => allocation = fitted,
                None => {
                    in_vain.insert(like);
                    blocked.insert(kind);
                }
            }
        }
        allocation
    }
}

/// The order of arrival.
fn arrival(request: &Request) -> (u64, u32) {
    // Times are not negative, so that their bits are ordered as they are.
    (request.submitted_seconds.max(0.0).to_bits(), request.job)
}

impl Policy for Crius {
    fn decide(&mut self, state: &State<'_>) -> Vec<Decision> {
        let search = Search {
            abilities: self.abilities,
            deadlines: &self.deadlines,
            now_seconds: state.now_seconds,
        };
        let refused = |request: &&Request| self.refusal(state.cluster, request);
        let (never, possible): (Vec<&Request>, Vec<&Request>) = state
            .waiting
            .iter()
            .partition(|request| refused(request).is_some());
        let mut allocation = Allocation::of(state, &self.table);
        search.gather(&mut allocation);
        let mut allocation = self.restart(search, allocation, &possible);
        search.upgrade(&mut allocation);
        let refused = never.iter().filter_map(refused);
        refused
            .chain(allocation.decisions(state, self.stall))
            .collect()
    }

    fn round_seconds(&self) -> Option<f64> {
        Some(ROUND_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::allocation::tests::{Lab, request};
    use crate::placement::{Board, Gpus};

    /// Two hosts of two GPUs, and a model that gains from all of them.
    fn lab() -> Lab {
        let mut lab = Lab::new(&[(2, 2)]);
        lab.speeds("m", &[(1, 10.0), (2, 19.0), (4, 35.0)]);
        lab.speeds("whole", &[(4, 100.0)]);
        lab
    }

    fn decide(board: &mut Board, policy: &mut Crius) {
        let decisions = policy.decide(&board.state(0.0));
        for decision in decisions {
            board.apply(&decision).unwrap();
        }
    }

    fn running(board: &Board) -> Vec<(u32, u32)> {
        let running = board.state(0.0).running.iter();
        let count = |gpus: &Gpus| gpus.values().sum();
        running
            .map(|running| (running.request.job, count(&running.gpus)))
            .collect()
    }

    #[test]
    fn jobs_grow_while_gpus_are_idle_and_shrink_for_others() {
        let lab = lab();
        let (mut board, mut crius) = (lab.board(), Crius::new(lab.table.clone()));
        board.submit(request(1, 1, "m")).unwrap();
        decide(&mut board, &mut crius);
        assert_eq!(running(&board), [(1, 4)]);
        board.submit(request(2, 2, "m")).unwrap();
        decide(&mut board, &mut crius);
        assert_eq!(running(&board), [(1, 2), (2, 2)]);
        assert!(crius.decide(&board.state(0.0)).is_empty());
    }

    #[test]
    fn who_came_later_gives_way_to_who_came_first() {
        let lab = lab();
        let (mut board, mut crius) = (lab.board(), Crius::new(lab.table.clone()));
        board.submit(request(3, 4, "m")).unwrap();
        decide(&mut board, &mut crius);
        // It came first, and asks for all; no change of the other makes room.
        board.submit(request(2, 4, "whole")).unwrap();
        decide(&mut board, &mut crius);
        assert_eq!(running(&board), [(2, 4)]);
        // The other waits, and cannot do the same to it.
        assert!(crius.decide(&board.state(0.0)).is_empty());
    }

    #[test]
    fn a_job_that_never_fits_is_refused() {
        let lab = lab();
        let (mut board, mut crius) = (lab.board(), Crius::new(lab.table.clone()));
        board.submit(request(1, 1, "unknown")).unwrap();
        let decisions = crius.decide(&board.state(0.0));
        let [Decision::Refuse { job: 1, reason }] = &decisions[..] else {
            panic!("{decisions:?}");
        };
        assert_eq!(reason, "unknown cannot run on the GPUs that it may have");
    }
}
