//! A controller of 500 or 1,000 switches that all answer: its start, a cable that fails, a switch
//! of the middle tier whose cables all fail at once.
//!
//! The decision: the switches are one process of embedded ones ([`Fleet`]) that shares the
//! processors with the controller, so times are upper bounds of what the controller takes. Switches
//! are read at a tenth of the default rate: an embedded switch takes ten microseconds for an entry
//! that is read, so a hundred thousand a second would take one of two processors for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::liveness::{FabricPart, PartHealth};
use controller::{ChangeTiming, ControllerHandle, RawConfig, StateEvent};
use planner::{Job, Policy};
use tokio::time::{Instant, timeout};
use topology::{Fabric, FabricNode, HostId, LinkId, SwitchId, Tier};

use crate::Failed;
use crate::bounds::resident_mib;
use crate::fleet::{Fleet, FleetKind};
use crate::lab::{control, flow, job, without_hold_down, written};
use crate::samples::Samples;

/// Hosts of a job.
const JOB_HOSTS: u32 = 12;
/// Longer than a start takes.
const DEADLINE: Duration = Duration::from_secs(590);
/// Cables and spines that fail.
const CABLES: usize = 40;
const SPINES: usize = 2;
/// Entries that are read in a second, of spot checks and of full reads each.
const READ_RATE: usize = 5_000;

pub(crate) async fn measure(kind: FleetKind) -> Result<(), Failed> {
    let fleet = Fleet::start(kind).await?;
    let fabric = &fleet.fabric;
    let (switches, hosts) = (fabric.switches().len(), fabric.hosts().len());
    println!("{switches} switches, {hosts} hosts, {} links", fabric.links().len());
    let controller = start(fabric).await?;
    measure_cables(&controller, fabric).await?;
    measure_spines(&controller, fabric).await?;
    println!("resident memory at the end {} MiB", resident_mib()?);
    controller.shutdown().await;
    Ok(())
}

/// Starts a controller beside empty switches and prints how long it took.
async fn start(fabric: &Fabric) -> Result<ControllerHandle, Failed> {
    let begun = Instant::now();
    let change = |raw: &mut RawConfig| {
        without_hold_down(raw);
        raw.reconcile.read_entries_per_second = READ_RATE;
    };
    let controller = control(fabric, change).await?;
    println!("started after {:.2} s", begun.elapsed().as_secs_f64());
    let generation = controller.desired_tables().generation;
    controller.await_verified(generation, DEADLINE).await?;
    println!("program and routes verified after {:.2} s", begun.elapsed().as_secs_f64());
    let jobs = jobs(fabric);
    let count = jobs.len();
    let submitted = Instant::now();
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
    let timing = controller.await_verified(receipt.generation, DEADLINE).await?;
    let seconds = submitted.elapsed().as_secs_f64();
    let lowered = (timing.timestamps.lowered - timing.timestamps.planned).as_secs_f64() * 1e3;
    println!(
        "{count} jobs planned and verified {seconds:.2} s after they came; lowered in \
         {lowered:.0} ms"
    );
    println!("{} entries written, resident memory {} MiB", written(&controller), resident_mib()?);
    Ok(controller)
}

/// As many jobs as there are hosts for, each a ring over hosts that are far from each other.
fn jobs(fabric: &Fabric) -> Vec<Job> {
    let hosts = fabric.hosts().len() as u32;
    let count = hosts / JOB_HOSTS;
    let ring = |number: u32| {
        let host = |step: u32| HostId(number + step % JOB_HOSTS * count);
        let nic = |step: u32| fabric.host(host(step)).nics[0];
        let flow = |step: u32| flow([nic(step), nic(step + 1)], number % 0x3000);
        job(number, (0..JOB_HOSTS).map(host), (0..JOB_HOSTS).map(flow))
    };
    (0..count).map(ring).collect()
}

async fn measure_cables(controller: &ControllerHandle, fabric: &Fabric) -> Result<(), Failed> {
    let leaves: Vec<SwitchId> = fabric.switches_of_tier(Tier::Leaf).collect();
    let every = (leaves.len() / CABLES).max(1);
    let cables = leaves.into_iter().step_by(every).take(CABLES);
    let cables: Vec<LinkId> = cables.map(|leaf| fabric.up_links(leaf)[0]).collect();
    let [mut lowered, mut written_to, mut repaired, mut planned] =
        [(); 4].map(|()| Samples::default());
    for cable in &cables {
        let times = fail_cables(controller, &[*cable]).await?;
        lowered.push(times.lowered);
        written_to.push(times.written);
        repaired.push(times.repaired);
        planned.push(times.planned);
        mend_cables(controller, &[*cable]).await?;
    }
    lowered.print("a cable fails, ways around it lowered");
    written_to.print("a cable fails, every switch written to");
    repaired.print("a cable fails, every switch verified to go around it");
    planned.print("a cable fails, its plan and an empty change verified");
    Ok(())
}

async fn measure_spines(controller: &ControllerHandle, fabric: &Fabric) -> Result<(), Failed> {
    let links: BTreeMap<SwitchId, Vec<LinkId>> = links_of_spines(fabric);
    let [mut reported, mut repaired] = [(); 2].map(|()| Samples::default());
    for links in links.values().take(SPINES) {
        let before = (written(controller), controller.desired_tables().generation);
        let times = fail_cables(controller, links).await?;
        let after = (written(controller), controller.desired_tables().generation);
        println!("{} entries written for {} plans", after.0 - before.0, after.1 - before.1);
        reported.push(times.reported);
        repaired.push(times.repaired);
        mend_cables(controller, links).await?;
    }
    let count = links.values().next().map_or(0, Vec::len);
    reported.print(&format!("{count} cables of a spine fail, until the last is reported"));
    repaired.print(&format!("{count} cables of a spine fail, all verified to go around it"));
    Ok(())
}

/// The cables of each spine that lead to leaves.
fn links_of_spines(fabric: &Fabric) -> BTreeMap<SwitchId, Vec<LinkId>> {
    let mut links: BTreeMap<SwitchId, Vec<LinkId>> = BTreeMap::new();
    for leaf in fabric.switches_of_tier(Tier::Leaf) {
        for up in fabric.up_links(leaf) {
            if let FabricNode::Switch(spine) = fabric.link(*up).to.node {
                links.entry(spine).or_default().push(*up);
            }
        }
    }
    links
}

/// Times after a failure was reported.
struct RepairTimes {
    /// The last failure is reported.
    reported: Duration,
    /// How long the lowering took, not from the report on.
    lowered: Duration,
    /// Every switch has answered what was written to go around it.
    written: Duration,
    /// Every switch is verified to go around it.
    repaired: Duration,
    /// What was planned then is verified as well, and the plan of an event that came last.
    planned: Duration,
}

async fn fail_cables(
    controller: &ControllerHandle,
    cables: &[LinkId],
) -> Result<RepairTimes, Failed> {
    let begun = Instant::now();
    report_cables(controller, cables, PartHealth::Down).await?;
    let reported = begun.elapsed();
    let timing = await_health(controller, cables, PartHealth::Down).await?;
    let repaired = begun.elapsed();
    settle(controller).await?;
    Ok(RepairTimes {
        reported,
        lowered: timing.timestamps.lowered - timing.timestamps.planned,
        written: timing.written - begun,
        repaired,
        planned: begun.elapsed(),
    })
}

async fn mend_cables(controller: &ControllerHandle, cables: &[LinkId]) -> Result<(), Failed> {
    report_cables(controller, cables, PartHealth::Up).await?;
    await_health(controller, cables, PartHealth::Up).await?;
    settle(controller).await
}

async fn report_cables(
    controller: &ControllerHandle,
    cables: &[LinkId],
    health: PartHealth,
) -> Result<(), Failed> {
    for cable in cables {
        controller.report_health(FabricPart::Cable(*cable), health).await?;
    }
    Ok(())
}

/// Waits until tables that were lowered with the health of cables are verified; returns when what
/// was.
async fn await_health(
    controller: &ControllerHandle,
    cables: &[LinkId],
    health: PartHealth,
) -> Result<ChangeTiming, Failed> {
    let shall_be_usable = health == PartHealth::Up;
    let is_published = controller.await_rollout(|rollout| {
        cables.iter().all(|cable| rollout.fabric.is_usable(*cable) == shall_be_usable)
    });
    timeout(DEADLINE, is_published).await??;
    // The first such tables may only take the ports out of use; the next ones are lowered.
    let mut changes = controller.status_board().subscribe();
    let lowered = loop {
        let desired = controller.desired_tables();
        if desired.lowered_generation == desired.generation {
            break desired.generation;
        }
        timeout(DEADLINE, changes.changed()).await??;
    };
    Ok(controller.await_verified(lowered, DEADLINE).await?)
}

/// Whatever is planned by then counts, so an empty event ends after all that came before it.
async fn settle(controller: &ControllerHandle) -> Result<(), Failed> {
    let event = StateEvent::PolicyChanged(Policy::default());
    let generation = controller.submit_event(event).await?.generation;
    controller.await_verified(generation, DEADLINE).await?;
    Ok(())
}
