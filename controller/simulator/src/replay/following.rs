//! What an event changes for the jobs on the network: their schedule, and how long iterations take.

use super::meeting::{self, Scheduled};
use super::placing::Changes;
use super::steady::{self, Steady};
use super::{Active, Replay, ReplayError, Settled, Setup};
use crate::placement::BoardError;

impl Active {
    fn uses_network(&self) -> bool {
        !self.training.job.flows.is_empty()
    }
}

impl Replay<'_> {
    /// Tells the scheduler who came and went, and learns how long iterations take from now on.
    pub(super) fn follow(&mut self, changes: Changes) -> Result<(), ReplayError> {
        let mut is_changed = false;
        for number in changes.gone {
            let gone = self.active.remove(&number);
            if gone.is_some_and(|active| active.uses_network()) {
                self.dispatcher.depart(number)?;
                is_changed = true;
            }
        }
        for (number, ready_seconds) in changes.come {
            let active = self.activate(number, ready_seconds)?;
            if active.uses_network() {
                self.dispatcher
                    .arrive(number, active.training.job.clone())?;
                is_changed = true;
            }
            self.active.insert(number, active);
        }
        if is_changed {
            self.progress.schedules += 1;
            self.settle()?;
        }
        Ok(())
    }

    /// A job of the board, on its GPUs.
    pub(super) fn activate(
        &mut self,
        number: u32,
        ready_seconds: f64,
    ) -> Result<Active, ReplayError> {
        let state = self.board.state(self.progress.now);
        let place = state
            .running
            .binary_search_by_key(&number, |running| running.request.job)
            .map_err(|_| BoardError::NotRunning(number))?;
        let training = self.trainer.training(&state.running[place])?;
        let seconds = training.job.iteration_seconds(0.0);
        Ok(Active {
            ready_seconds,
            training,
            steady: Steady {
                seconds,
                unsure: 0.0,
            },
        })
    }

    /// Learns how long iterations take under the schedule of now.
    pub(super) fn settle(&mut self) -> Result<(), ReplayError> {
        let schedule = self.dispatcher.schedule();
        let scheduled = Scheduled::all(self.dispatcher.jobs(), &schedule);
        for (number, _) in self.dispatcher.jobs() {
            if let Some(active) = self.active.get_mut(&number) {
                active.steady.seconds = f64::INFINITY;
            }
        }
        let mut before = std::mem::take(&mut self.settled);
        let Setup {
            fabric, hindrance, ..
        } = self.setup;
        for members in meeting::neighbourhoods(fabric, &scheduled, *hindrance) {
            let first = members[0].job;
            let known = before
                .remove(&first)
                .filter(|known| known.members == members);
            let settled = match known {
                Some(known) => known,
                None => Settled {
                    steady: steady::settle(fabric, &members)?,
                    members,
                },
            };
            for (member, steady) in settled.members.iter().zip(&settled.steady) {
                if let Some(active) = self.active.get_mut(&member.job) {
                    active.steady = *steady;
                }
            }
            self.settled.insert(first, settled);
        }
        Ok(())
    }
}
