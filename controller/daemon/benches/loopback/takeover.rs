//! From a primary that ends to the first write of the controller that stood by.

use controller::southbound::arbitration::Mastership;
use controller::{ControllerHandle, StateEvent};
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use tokio::time::Instant;
use topology::Fabric;

use crate::lab::{Lab, control, jobs};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

const ROUNDS: u32 = 20;

pub(crate) async fn measure() -> Result<(), Failed> {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let options = ServiceOptions { dialect, ..ServiceOptions::default() };
        let lab = Lab::large(options).await?;
        let mut times = Times::default();
        // Within a term the higher number leads, so a controller that is started later stands by.
        let mut primary = numbered(&lab.fabric, ROUNDS + 1).await?;
        for number in (1..=ROUNDS).rev() {
            let standby = numbered(&lab.fabric, number).await?;
            times.take_over(primary, &standby).await?;
            primary = standby;
        }
        primary.shutdown().await;
        times.print(dialect);
    }
    Ok(())
}

/// A controller with a number and jobs of its own: one that takes over has something to write.
async fn numbered(fabric: &Fabric, number: u32) -> Result<ControllerHandle, Failed> {
    let controller = control(fabric, |raw| raw.election.controller = number).await?;
    let mut jobs = jobs(fabric);
    jobs.truncate(16 + number as usize % 8);
    controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
    Ok(controller)
}

#[derive(Default)]
struct Times {
    first: Samples,
    each: Samples,
    verified: Samples,
}

impl Times {
    async fn take_over(
        &mut self,
        primary: ControllerHandle,
        standby: &ControllerHandle,
    ) -> Result<(), Failed> {
        let generation = primary.desired_tables().generation;
        primary.await_verified(generation, DEADLINE).await?;
        let waits = |standing| matches!(standing, Mastership::Backup { .. });
        let board = standby.status_board();
        let waiting = board.wait_until(|lines| lines.values().all(|line| waits(line.mastership)));
        tokio::time::timeout(DEADLINE, waiting).await?;

        let begun = Instant::now();
        // Its streams end some time after this, so the figures are rather too large.
        drop(primary);
        let generation = standby.desired_tables().generation;
        let timing = standby.await_verified(generation, DEADLINE).await?;
        self.first.extend(timing.first_write.map(|at| at - begun));
        let lines = board.all_statuses();
        let writes = lines.values().filter_map(|line| line.verified?.first_write);
        self.each.extend(writes.map(|at| at - begun));
        self.verified.push(timing.verified - begun);
        Ok(())
    }

    fn print(&self, dialect: SwitchDialect) {
        self.first.print(&format!("take-over ({dialect:?}), first write"));
        self.each.print(&format!("take-over ({dialect:?}), first write to each switch"));
        self.verified.print(&format!("take-over ({dialect:?}), every switch verified"));
    }
}
