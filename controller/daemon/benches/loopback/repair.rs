//! From a link, or a port of a NIC with two, that fails to every switch verified to go around it.

use controller::liveness::{FabricPart, PartHealth};
use controller::{ControllerHandle, StateEvent};
use switch_server::p4runtime::ServiceOptions;
use tokio::time::Instant;
use topology::{LinkId, Tier};

use crate::lab::{Lab, await_use, control, jobs, without_hold_down, written};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// Generations that follow from a failure at once: its ports out of use, then all ways around it.
const REPAIR: u64 = 2;

pub(crate) async fn measure() -> Result<(), Failed> {
    let lab = Lab::large(ServiceOptions::default()).await?;
    let leaves = lab.fabric.switches_of_tier(Tier::Leaf);
    let cables: Vec<LinkId> =
        leaves.flat_map(|leaf| lab.fabric.up_links(leaf).iter().copied()).collect();
    measure_cables(&lab, &cables, "link failure").await
}

/// Both ports of the NIC of each host, one after the other.
pub(crate) async fn measure_ports() -> Result<(), Failed> {
    let lab = Lab::dual_homed(ServiceOptions::default()).await?;
    let cables: Vec<LinkId> = lab.fabric.nics().iter().map(|port| port.uplink).collect();
    measure_cables(&lab, &cables, "port failure").await
}

async fn measure_cables(lab: &Lab, cables: &[LinkId], what: &str) -> Result<(), Failed> {
    let controller = control(&lab.fabric, without_hold_down).await?;
    let jobs = StateEvent::JobsChanged(jobs(&lab.fabric));
    let generation = controller.submit_event(jobs).await?.generation;
    controller.await_verified(generation, DEADLINE).await?;
    let [mut protected, mut written_to, mut repaired] = [(); 3].map(|()| Samples::default());
    let before = written(&controller);
    for cable in cables {
        let generation = controller.desired_tables().generation;
        let begun = Instant::now();
        controller.report_health(FabricPart::Cable(*cable), PartHealth::Down).await?;
        let ports = controller.await_verified(generation + 1, DEADLINE).await?;
        protected.push(ports.verified - begun);
        let ways = controller.await_verified(generation + REPAIR, DEADLINE).await?;
        written_to.push(ways.written - begun);
        repaired.push(ways.verified - begun);
        mend(&controller, *cable).await?;
    }
    let entries = written(&controller) - before;
    protected.print(&format!("{what}, ports at both ends verified out of use"));
    written_to.print(&format!("{what}, every switch written to"));
    repaired.print(&format!("{what}, every switch verified to go around it"));
    let each = entries as f64 / cables.len() as f64;
    println!("entries written for a failure, its plan, and the return: {each:.1} on average");
    controller.shutdown().await;
    Ok(())
}

/// The cable works again and is used, and everything is planned and verified.
async fn mend(controller: &ControllerHandle, cable: LinkId) -> Result<(), Failed> {
    controller.report_health(FabricPart::Cable(cable), PartHealth::Up).await?;
    await_use(controller, cable).await
}
