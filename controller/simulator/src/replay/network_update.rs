//! The effect of an event on the jobs of the network: their schedule and their iteration times.

use std::collections::BTreeMap;

use fluid::FluidError;
use planner::Job;

use super::interference_groups::{self, InterferenceModel, JobTraffic, NetworkJob};
use super::placement_round::PlacementChanges;
use super::steady_state::{self, SteadyState};
use super::{ActiveJob, ReplaySetup, TraceReplay, TraceReplayError};
use crate::schedule::Schedule;
use placement::PlacementDecisionError;
use topology::Fabric;

impl ActiveJob {
    fn uses_network(&self) -> bool {
        !self.training.job.flows.is_empty()
    }
}

impl TraceReplay<'_> {
    /// Passes arrivals and departures to the scheduler, and updates the iteration times.
    pub(super) fn apply_changes(
        &mut self,
        changes: PlacementChanges,
    ) -> Result<(), TraceReplayError> {
        let mut is_changed = false;
        for number in changes.stopped {
            let gone = self.active.remove(&number);
            if gone.is_some_and(|active| active.uses_network()) {
                self.dispatcher.remove_job(number)?;
                is_changed = true;
            }
        }
        for (number, ready_seconds) in changes.started {
            let active = self.activate_job(number, ready_seconds)?;
            if active.uses_network() {
                self.dispatcher.add_job(number, active.training.job.clone())?;
                is_changed = true;
            }
            self.active.insert(number, active);
        }
        if is_changed {
            self.progress.schedules += 1;
            self.update_steady_states()?;
        }
        Ok(())
    }

    /// A running job on its GPUs.
    pub(super) fn activate_job(
        &mut self,
        number: u32,
        ready_seconds: f64,
    ) -> Result<ActiveJob, TraceReplayError> {
        let state = self.cluster_jobs.state_at(self.progress.now);
        let place = state
            .running
            .binary_search_by_key(&number, |running| running.request.job)
            .map_err(|_| PlacementDecisionError::NotRunning(number))?;
        let training = self.trainer.build_job(&state.running[place])?;
        let seconds = training.job.iteration_seconds(0.0);
        Ok(ActiveJob { ready_seconds, training, steady: SteadyState { seconds, uncertainty: 0.0 } })
    }

    /// Learns how long iterations take under the schedule of now, and under its alternatives.
    pub(super) fn update_steady_states(&mut self) -> Result<(), TraceReplayError> {
        let schedule = match &mut self.program {
            Some(program) => {
                program.schedule_jobs(self.dispatcher.input(), &self.setup.policy, None)?
            }
            None => self.dispatcher.current_schedule(),
        };
        let ReplaySetup { fabric, interference, .. } = self.setup;
        let jobs = self.dispatcher.jobs();
        let settled = self.settled.settle(fabric, *interference, jobs, &schedule)?;
        for (number, steady) in settled {
            if let Some(active) = self.active.get_mut(&number) {
                active.steady = steady;
            }
        }
        self.decide_alternatives()
    }
}

/// The interference groups of a schedule, with their steady states, by their first member.
#[derive(Clone, Debug, Default)]
pub(super) struct SettledNetwork {
    groups: BTreeMap<u32, SettledGroup>,
}

/// An interference group and the steady states of its members.
#[derive(Clone, Debug)]
struct SettledGroup {
    members: Vec<JobTraffic>,
    steady: Vec<SteadyState>,
}

impl SettledNetwork {
    /// The steady states of `jobs`, by number, under `schedule`. Groups that are as they were the
    /// last time are not simulated again. A job without a path is in no group: it makes no progress
    /// until the next schedule.
    pub(super) fn settle<'a>(
        &mut self,
        fabric: &Fabric,
        interference: InterferenceModel,
        jobs: impl Iterator<Item = (u32, &'a Job)> + Clone,
        schedule: &'a Schedule,
    ) -> Result<BTreeMap<u32, SteadyState>, FluidError> {
        let stuck = SteadyState { seconds: f64::INFINITY, uncertainty: 0.0 };
        let mut found: BTreeMap<u32, SteadyState> =
            jobs.clone().map(|(number, _)| (number, stuck)).collect();
        let connected = NetworkJob::connected_jobs(jobs, schedule);
        let mut before = std::mem::take(&mut self.groups);
        for members in interference_groups::find_groups(fabric, &connected, interference) {
            let first = members[0].job;
            let known = before.remove(&first).filter(|known| known.members == members);
            let settled = match known {
                Some(known) => known,
                None => SettledGroup {
                    steady: steady_state::find_steady_states(
                        fabric,
                        schedule.discipline,
                        &members,
                    )?,
                    members,
                },
            };
            let members = settled.members.iter().zip(&settled.steady);
            found.extend(members.map(|(member, steady)| (member.job, *steady)));
            self.groups.insert(first, settled);
        }
        Ok(found)
    }
}
