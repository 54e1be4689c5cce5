//! From a primary that ends to the first write of the controller that stood by.

use controller::northbound::{self, ApiServer};
use controller::southbound::arbitration::Mastership;
use controller::{Config, ControllerHandle, RawConfig, StateEvent};
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use tokio::net::TcpListener;
use tokio::time::Instant;
use topology::Fabric;

use crate::lab::{Lab, control, jobs, written};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

const ROUNDS: u32 = 20;

pub(crate) async fn measure() -> Result<(), Failed> {
    for dialect in [SwitchDialect::Specification, SwitchDialect::Bmv2] {
        let options = ServiceOptions { dialect, ..ServiceOptions::default() };
        let lab = Lab::large(options).await?;
        let mut times = Times::default();
        // Within a term the higher number leads, so whoever is started later stands by.
        let mut primary = numbered(&lab.fabric, ROUNDS + 1).await?;
        for number in (1..=ROUNDS).rev() {
            let standby = numbered(&lab.fabric, number).await?;
            times.take_over(primary, &standby).await?;
            primary = standby;
        }
        primary.shutdown().await;
        times.print(dialect);
    }
    measure_followers().await
}

/// A controller that others can follow.
struct ReplicatedController {
    controller: ControllerHandle,
    _server: ApiServer,
}

impl ReplicatedController {
    /// Starts a member that listens at `own` and follows whoever leads at `other`.
    async fn start(fabric: &Fabric, number: u32, [own, other]: [&str; 2]) -> Result<Self, Failed> {
        let members = vec![other.to_owned()];
        let controller = control(fabric, |raw| {
            (raw.election.controller, raw.follow.members) = (number, members);
        });
        let controller = controller.await?;
        let mut raw = RawConfig::default();
        raw.northbound.anyone = true;
        let listener = TcpListener::bind(own).await?;
        let config = Config::try_from(raw)?;
        let server = northbound::start_server(listener, controller.access(), &config)?;
        Ok(Self { controller, _server: server })
    }

    async fn leads(&self) -> Result<(), Failed> {
        let mut permit = self.controller.watch_permit();
        let leads = permit.wait_for(|permit| permit.may_write(Instant::now()));
        tokio::time::timeout(DEADLINE, leads).await??;
        Ok(())
    }
}

/// From a leader that is dropped to the follower that leads, and to every switch verified; the
/// follower continues from the plan of the leader and has nothing to write.
async fn measure_followers() -> Result<(), Failed> {
    let lab = Lab::large(ServiceOptions::default()).await?;
    let addresses = [free_address().await?, free_address().await?];
    let [first, second] = [&addresses[0], &addresses[1]].map(String::as_str);
    let (mut elected, mut verified) = (Samples::default(), Samples::default());
    let mut entries = 0;
    let mut follower = ReplicatedController::start(&lab.fabric, 1, [first, second]).await?;
    let mut leader = ReplicatedController::start(&lab.fabric, 2, [second, first]).await?;
    tokio::select! {
        led = leader.leads() => led?,
        led = follower.leads() => {
            led?;
            std::mem::swap(&mut leader, &mut follower);
        }
    }
    let jobs = StateEvent::JobsChanged(jobs(&lab.fabric));
    leader.controller.submit_event(jobs).await?;
    for _ in 0..ROUNDS {
        let generation = leader.controller.desired_tables().generation;
        leader.controller.await_verified(generation, DEADLINE).await?;
        let flows = leader.controller.current_rollout().ok_or("no plan")?.plan.flows.clone();
        let has_plan = follower.controller.await_rollout(|rollout| rollout.plan.flows == flows);
        tokio::time::timeout(DEADLINE, has_plan).await??;
        let before = written(&follower.controller);
        let begun = Instant::now();
        let number = leader.controller.access().controller_number();
        drop(leader);
        follower.leads().await?;
        elected.push(begun.elapsed());
        let generation = follower.controller.desired_tables().generation;
        follower.controller.await_verified(generation, DEADLINE).await?;
        verified.push(begun.elapsed());
        entries += written(&follower.controller) - before;
        let addresses = if number == 1 { [first, second] } else { [second, first] };
        leader = follower;
        follower = ReplicatedController::start(&lab.fabric, number, addresses).await?;
    }
    elected.print("follower, from the end of the leader until it leads");
    verified.print("follower, from the end of the leader until all is verified");
    println!("entries written by followers that led: {entries}");
    Ok(())
}

async fn free_address() -> Result<String, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string())
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
