//! What a run does where controllers follow each other: one that is killed is no member any more,
//! and an operator has one lead where none can.

use tokio::time::Instant;

use controller::{ControllerHandle, LeadChange};

use super::fake_disk::FakeDisk;
use super::fake_network::lock_mutex;
use super::fault_schedule::LeadershipMode;
use super::scenario_run::{CALM, ScenarioRun};

impl ScenarioRun {
    pub(super) fn kill_controller(&mut self, controller: u32) {
        let mut testbed = lock_mutex(&self.testbed);
        testbed.members.remove(&controller);
        testbed.paused.remove(&controller);
        testbed.with_disk(controller, FakeDisk::unmount);
        // Whoever leads next need not know of a term that nobody is in.
        testbed.written_term.take_if(|written| written.controller == controller);
        drop(testbed);
        drop(self.controllers.remove(&controller));
    }

    /// Has a controller lead as an operator does, where none leads of those that follow each other:
    /// those that have begun anew have no state. Whether controllers follow each other.
    pub(super) async fn have_newcomer_lead(&self) -> Result<bool, String> {
        let follows = self.led == LeadershipMode::Followers;
        let is_led = self.controllers.values().any(may_write);
        let is_due = self.request_at.get().is_none_or(|at| at <= Instant::now());
        let first = self.controllers.values().next();
        if let Some(first) = first.filter(|_| follows && !is_led && is_due) {
            self.request_at.set(Some(Instant::now() + CALM));
            first
                .access()
                .change_lead(LeadChange::Take)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(follows)
    }
}

/// Whether a controller may write to the switches that have it for their primary.
pub(super) fn may_write(controller: &ControllerHandle) -> bool {
    controller.watch_permit().borrow().may_write(Instant::now())
}
