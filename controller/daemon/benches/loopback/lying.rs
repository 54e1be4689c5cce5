//! What switches that lie cost a controller of 32 switches, and the switches that do not.
//!
//! Cables of ten leaves fail one after the other, first while the last six leaves are away, then
//! while one of them departs from P4Runtime as [`VIOLATIONS`] say, and then while each does. The
//! decision: the liars are served by a process of their own, which is this benchmark again with
//! [`SERVE_LIARS`] as its argument, so the memory is that of the controller and of the 26 switches
//! beside it.

use std::time::Duration;

use controller::StateEvent;
use switch_server::p4runtime::ServiceOptions;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};
use topology::{Fabric, Tier};

use crate::bounds::{peak_memory, repair_until, resident_mib};
use crate::lab::{Lab, control, jobs, without_hold_down};
use crate::liar::{LyingSwitch, ProtocolViolation};
use crate::line_counter::LineCounter;
use crate::serving_process::ServingProcess;
use crate::{DEADLINE, Failed};

/// What the last leaves do.
const VIOLATIONS: [ProtocolViolation; 6] = [
    ProtocolViolation::EndlessRead,
    ProtocolViolation::EndlessReadOfManyTables,
    ProtocolViolation::ErrorFlood,
    ProtocolViolation::FlippingMastership,
    ProtocolViolation::DyingStream,
    ProtocolViolation::OtherDevice,
];

/// The argument of the process that lies.
pub(crate) const SERVE_LIARS: &str = "--serve-liars";

/// How long cables fail in each run.
const LASTS: Duration = Duration::from_secs(30);
/// After the start, connections to liars end often until each is left alone for longer.
const SETTLING: Duration = Duration::from_secs(5);

pub(crate) async fn measure() -> Result<(), Failed> {
    let lines = LineCounter::default();
    tracing::subscriber::set_global_default(lines.clone())?;
    let lab = Lab::large(ServiceOptions::default()).await?;
    let liars = ServingProcess::start(SERVE_LIARS).await?;
    let lying = |which: &dyn Fn(ProtocolViolation) -> bool| -> Vec<Option<String>> {
        let addresses = VIOLATIONS.into_iter().zip(&liars.addresses);
        addresses.map(|(lie, address)| Some(address.clone()).filter(|_| which(lie))).collect()
    };
    watch("six leaves are away", &with_liars(&lab.fabric, &lying(&|_| false)), &lines).await?;
    for lie in VIOLATIONS {
        let fabric = with_liars(&lab.fabric, &lying(&|one| one == lie));
        watch(&format!("five are away, and one lies: {lie:?}"), &fabric, &lines).await?;
    }
    watch("all six lie", &with_liars(&lab.fabric, &lying(&|_| true)), &lines).await
}

/// Measures a controller of such a fabric, and prints the figures.
async fn watch(what: &str, fabric: &Fabric, lines: &LineCounter) -> Result<(), Failed> {
    let controller = control(fabric, without_hold_down).await?;
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs(fabric))).await?;
    let others = fabric.switches().len() - VIOLATIONS.len();
    let verified = controller.status_board().wait_until(|statuses| {
        let held = statuses.values().filter(|one| one.holds_generation(receipt.generation));
        held.count() >= others
    });
    timeout(DEADLINE, verified).await?;
    sleep(SETTLING).await;
    println!("{what}");
    println!("  resident memory {} MiB at first", resident_mib()?);
    let ends = Instant::now() + LASTS;
    lines.take_lines();
    let (repairs, memory) =
        tokio::join!(repair_until(&controller, fabric, ends), peak_memory(ends));
    repairs?.print("  a cable that fails, until its ports are verified out of use");
    println!("  resident memory at most {} MiB", memory?);
    let lines = lines.take_lines();
    let total: u64 = lines.values().sum();
    let rate = |lines: u64| lines as f64 / LASTS.as_secs_f64();
    println!("  lines of the log at level info and above: {:.2} a second", rate(total));
    for (place, count) in lines {
        println!("    {place:<40} {:>8.2}", rate(count));
    }
    controller.shutdown().await;
    Ok(())
}

/// The fabric with these addresses for its last leaves.
fn with_liars(fabric: &Fabric, addresses: &[Option<String>]) -> Fabric {
    let mut parts = fabric.parts().clone();
    let leaves = parts.switches.iter_mut().rev().filter(|switch| switch.tier == Tier::Leaf);
    for (leaf, address) in leaves.zip(addresses) {
        leaf.p4runtime.clone_from(address);
    }
    Fabric::new(parts)
}

/// What the process of the liars does.
pub(crate) async fn serve() -> Result<(), Failed> {
    let liars = VIOLATIONS.map(LyingSwitch::new);
    let addresses = liars.iter().map(|liar| Ok(liar.serve()?.to_string()));
    println!("{}", addresses.collect::<std::io::Result<Vec<_>>>()?.join(","));
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    for (lie, liar) in VIOLATIONS.iter().zip(&liars) {
        eprintln!("  {lie:?}: {} streams", liar.streams());
    }
    Ok(())
}
