//! What hostile callers cost a controller of 500 switches, 28 of which answer, and everybody else.
//!
//! Four times the same measurements are taken: repairs after a cable has failed, and the answer to
//! a reader of jobs. First nobody else calls; then 600 clients ask for previews, three send nested
//! YAML, and 4,000 connections are half-open or slow, while switches restart. The decision: the
//! controller, its northbound address and the reader are in this process, the switches in another
//! ([`Fleet`]), and the attackers in a third ([`AttackProcess`]), so that no runtime but the
//! controller's own is measured. All of them share the processors.

use std::net::SocketAddr;
use std::time::Duration;

use controller::config::{AccessRole, RawToken};
use controller::hexadecimal::encode_hex;
use controller::liveness::{FabricPart, PartHealth};
use controller::{Config, ControllerHandle, RawConfig, StateEvent, northbound};
use planner::Job;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, timeout};
use topology::{Fabric, FabricNode, HostId, LinkId, SwitchId, Tier};

use crate::attack::{AttackKind, AttackProcess, exchange};
use crate::fleet::{self, Fleet, FleetKind};
use crate::lab::{control, flow, job, without_hold_down};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// How long previews are asked for, and connections are held.
const ATTACK: Duration = Duration::from_secs(60);
/// How long everything else is measured.
const QUIET: Duration = Duration::from_secs(20);
/// Between two requests of the reader, and between two repairs.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than a plan for all switches takes.
const PLAN_DEADLINE: Duration = Duration::from_secs(300);
const JOBS: u32 = 100;

pub(crate) async fn measure() -> Result<(), Failed> {
    let mut fleet = Fleet::start(FleetKind::FewOfWide).await?;
    let controller = start_controller(&fleet.fabric).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let config = Config::try_from(closed())?;
    let server = northbound::start_server(listener, controller.access(), &config)?;
    let at = server.local_addr();
    println!(
        "tables of 500 switches, 28 of them verified; resident memory {} MiB",
        resident_mib()?
    );
    let measured = Measured { controller: &controller, fabric: &fleet.fabric.clone(), at };

    measured.watch("nobody else calls", QUIET, None).await?;
    let previews = AttackProcess::start(at, AttackKind::Previews).await?;
    measured.watch("600 clients ask for previews", ATTACK, Some(previews)).await?;
    let nested = AttackProcess::start(at, AttackKind::NestedYaml).await?;
    measured.watch("three clients send 400 kB of nested YAML", QUIET, Some(nested)).await?;
    let held = AttackProcess::start(at, AttackKind::HeldConnections).await?;
    let restarts = restart_switches(&mut fleet, &controller);
    let what = "2,000 half-open and 2,000 slow connections, and leaves restart";
    let (watched, restarted) = tokio::join!(measured.watch(what, ATTACK, Some(held)), restarts);
    watched?;
    restarted?.print("  a leaf that restarts, until it is verified again");
    controller.shutdown().await;
    Ok(())
}

struct Measured<'a> {
    controller: &'a ControllerHandle,
    fabric: &'a Fabric,
    at: SocketAddr,
}

impl Measured<'_> {
    /// Measures while an attack goes on, and prints the figures.
    async fn watch(
        &self,
        what: &str,
        lasts: Duration,
        attack: Option<AttackProcess>,
    ) -> Result<(), Failed> {
        println!("{what}");
        let ends = Instant::now() + lasts;
        let (repairs, reads, memory) = tokio::join!(
            repair_until(self.controller, self.fabric, ends),
            self.read_until(ends),
            peak_memory(ends)
        );
        repairs?.print("  a cable that fails, until its ports are verified out of use");
        reads?.print("  GET /v1/jobs of another caller");
        println!("  resident memory at most {} MiB", memory?);
        if let Some(attack) = attack {
            let refusals = attack.end().await?;
            if !refusals.is_empty() {
                refusals.print("  an attacker, until it is refused");
            }
        }
        Ok(())
    }

    async fn read_until(&self, ends: Instant) -> Result<Samples, Failed> {
        let mut samples = Samples::default();
        while Instant::now() < ends {
            let begun = Instant::now();
            let answer = exchange(self.at, 1, "GET /v1/jobs", "reader", "").await?;
            if !answer.starts_with("HTTP/1.1 200") {
                return Err(format!("the reader is refused: {answer}").into());
            }
            samples.push(begun.elapsed());
            sleep(PAUSE).await;
        }
        Ok(samples)
    }
}

/// One cable fails after the other, of the first ten leaves.
pub(crate) async fn repair_until(
    controller: &ControllerHandle,
    fabric: &Fabric,
    ends: Instant,
) -> Result<Samples, Failed> {
    let leaves = fabric.switches_of_tier(Tier::Leaf).take(10);
    let cables: Vec<LinkId> =
        leaves.flat_map(|leaf| fabric.up_links(leaf).iter().copied()).collect();
    let mut samples = Samples::default();
    for cable in cables.iter().cycle() {
        if Instant::now() >= ends {
            break;
        }
        samples.push(repair_cable(controller, fabric, *cable).await?);
        controller.report_health(FabricPart::Cable(*cable), PartHealth::Up).await?;
        sleep(PAUSE).await;
    }
    Ok(samples)
}

/// How long it takes from the report that a cable has failed until the switches at both ends
/// are verified not to use it.
pub(crate) async fn repair_cable(
    controller: &ControllerHandle,
    fabric: &Fabric,
    cable: LinkId,
) -> Result<Duration, Failed> {
    let in_use = controller.await_rollout(|rollout| rollout.fabric.is_usable(cable));
    timeout(DEADLINE, in_use).await??;
    let begun = Instant::now();
    controller.report_health(FabricPart::Cable(cable), PartHealth::Down).await?;
    let protected = controller.await_rollout(|rollout| !rollout.fabric.is_up(cable));
    let generation = timeout(DEADLINE, protected).await??.generation;
    let link = fabric.link(cable);
    let ends = [link.from, link.to].map(|end| end.node);
    let board = controller.status_board();
    let verified = board.wait_until(|statuses| {
        let at_ends = statuses.iter().filter(|(id, _)| ends.contains(&FabricNode::Switch(**id)));
        at_ends.filter(|(_, status)| status.holds_generation(generation)).count() == ends.len()
    });
    timeout(DEADLINE, verified).await?;
    Ok(begun.elapsed())
}

async fn start_controller(fabric: &Fabric) -> Result<ControllerHandle, Failed> {
    let fast = |raw: &mut RawConfig| {
        *raw = closed();
        without_hold_down(raw);
    };
    let controller = control(fabric, fast).await?;
    let jobs = (0..JOBS).map(|number| pair_job(fabric, number)).collect();
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
    controller.await_verified(receipt.generation, PLAN_DEADLINE).await?;
    Ok(controller)
}

/// A job of two hosts on different leaves.
fn pair_job(fabric: &Fabric, number: u32) -> Job {
    let hosts = [HostId(number % 10), HostId(10 + number % 10)];
    let nics = hosts.map(|host| fabric.host(host).nics[0]);
    job(number, hosts.into_iter(), (0..4).map(|port| flow(nics, 4 * number + port)))
}

/// A configuration with one token for each kind of caller.
fn closed() -> RawConfig {
    let mut raw = RawConfig::default();
    let names = ["reader", "previewer0", "previewer1", "previewer2", "nester"];
    let tokens = names.map(|name| RawToken {
        name: name.to_owned(),
        role: AccessRole::Read,
        sha256: encode_hex(&Sha256::digest(name)),
        hosts: Vec::new(),
        tenants: Vec::new(),
    });
    raw.northbound.tokens = tokens.to_vec();
    raw
}

/// Restarts one leaf after the other; how long each takes until it is verified again.
async fn restart_switches(
    fleet: &mut Fleet,
    controller: &ControllerHandle,
) -> Result<Samples, Failed> {
    let (mut samples, ends) = (Samples::default(), Instant::now() + ATTACK);
    for switch in (10..fleet::LEAVES).map(SwitchId).cycle() {
        if Instant::now() >= ends {
            break;
        }
        let board = controller.status_board();
        let before = board.switch_status(switch).map_or(0, |status| status.failures);
        let begun = Instant::now();
        fleet.restart_switch(switch).await?;
        let is_back = board.wait_until(|statuses| {
            let status = statuses.get(&switch);
            status.is_some_and(|status| status.failures > before && status.verified.is_some())
        });
        timeout(DEADLINE, is_back).await?;
        samples.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    Ok(samples)
}

/// The most resident memory of this process until then, MiB.
pub(crate) async fn peak_memory(ends: Instant) -> Result<u64, Failed> {
    let mut peak = 0;
    while Instant::now() < ends {
        peak = peak.max(resident_mib()?);
        sleep(PAUSE).await;
    }
    Ok(peak)
}

pub(crate) fn resident_mib() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? / 1_024)
}
