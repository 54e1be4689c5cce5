//! What switches that lie cost a controller of 32 switches, and the switches that do not.
//!
//! Cables of ten leaves fail one after the other, first while the last five leaves are away, then
//! while one of them tells one lie of [`LIES`], and then while each does. The decision: the liars
//! are served by a process of their own, which is this benchmark again with [`SERVE_LIARS`] as its
//! argument, so the memory is that of the controller and of the 27 switches beside it.

use std::process::Stdio;
use std::time::Duration;

use controller::StateEvent;
use switch::p4runtime::ServiceOptions;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use topology::{Fabric, FabricParts, Switch, Tier};

use crate::bounds::{peak_memory, repair_until, resident_mib};
use crate::lab::{Lab, control, jobs};
use crate::liar::{Lie, LineCounter, LyingSwitch};
use crate::{DEADLINE, Failed};

/// What the last leaves do.
const LIES: [Lie; 5] = [
    Lie::EndlessRead,
    Lie::ErrorFlood,
    Lie::FlippingMastership,
    Lie::DyingStream,
    Lie::OtherDevice,
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
    let liars = LiarProcess::start().await?;
    let lying = |which: &dyn Fn(Lie) -> bool| -> Vec<Option<String>> {
        let addresses = LIES.into_iter().zip(&liars.addresses);
        addresses.map(|(lie, address)| Some(address.clone()).filter(|_| which(lie))).collect()
    };
    watch("five leaves are away", &with_liars(&lab.fabric, &lying(&|_| false)), &lines).await?;
    for lie in LIES {
        let fabric = with_liars(&lab.fabric, &lying(&|one| one == lie));
        watch(&format!("four are away, and one lies: {lie:?}"), &fabric, &lines).await?;
    }
    watch("all five lie", &with_liars(&lab.fabric, &lying(&|_| true)), &lines).await
}

/// Measures a controller of such a fabric, and prints the figures.
async fn watch(what: &str, fabric: &Fabric, lines: &LineCounter) -> Result<(), Failed> {
    let controller = control(fabric, |raw| {
        raw.liveness.hold_down_ms = 1;
        raw.liveness.hold_down_longest_ms = 1;
    });
    let controller = controller.await?;
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs(fabric))).await?;
    let others = fabric.switches().len() - LIES.len();
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
    let mut switches = fabric.switches().to_vec();
    let leaves = switches.iter_mut().rev().filter(|switch: &&mut Switch| switch.tier == Tier::Leaf);
    for (leaf, address) in leaves.zip(addresses) {
        leaf.p4runtime.clone_from(address);
    }
    Fabric::new(FabricParts {
        name: fabric.name().to_owned(),
        hosts: fabric.hosts().to_vec(),
        nics: fabric.nics().to_vec(),
        switches,
        links: fabric.links().to_vec(),
    })
}

/// The process of the liars, which ends with this value.
struct LiarProcess {
    addresses: Vec<String>,
    _input: ChildStdin,
    _process: Child,
}

impl LiarProcess {
    async fn start() -> Result<Self, Failed> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(SERVE_LIARS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().ok_or("no standard input")?;
        let output = process.stdout.take().ok_or("no standard output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let line = line.ok_or("the liars are not served")?;
        let addresses = line.split(',').map(str::to_owned).collect();
        Ok(Self { addresses, _input: input, _process: process })
    }
}

/// What the process of the liars does.
pub(crate) async fn serve() -> Result<(), Failed> {
    let liars = LIES.map(LyingSwitch::new);
    let addresses = liars.iter().map(|liar| Ok(liar.serve()?.to_string()));
    println!("{}", addresses.collect::<std::io::Result<Vec<_>>>()?.join(","));
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    for (lie, liar) in LIES.iter().zip(&liars) {
        eprintln!("  {lie:?}: {} streams", liar.streams());
    }
    Ok(())
}
