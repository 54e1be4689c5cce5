//! How fast the controller writes, beside a bare client that sends the same batches to the same
//! switch.
//!
//! In each round both add some thousand pins to the one switch and take them away again, in turn.
//! The controller's time is that of the pass from its first write to its last answer, without the
//! reads around it; encoding is in it. The bare client writes twice: with requests that were made
//! beforehand, and with requests that it makes when it sends them, as the controller does. The
//! decision: the switch is a process of its own, and both clients are tasks of one runtime, so that
//! neither shares its threads with the switch.

use std::sync::Arc;
use std::time::Duration;

use controller::southbound::ReconcilePass;
use controller::{ControllerHandle, RawConfig, StateEvent};
use p4::{ForwardingPipeline, SwitchTables, TableUpdate};
use planner::Job;
use tokio::io::AsyncReadExt;
use topology::{Fabric, HostId, SwitchId};

use crate::bare::Bare;
use crate::bmv2::SimpleSwitch;
use crate::lab::{Lab, control, flow, job, parts, small};
use crate::protection::ConnectionSecurity;
use crate::serving_process::ServingProcess;
use crate::{DEADLINE, Failed};

const ROUNDS: u64 = 41;
const PINS: u32 = 8_000;
const BATCH: usize = 500;
const OUTSTANDING: usize = 4;
const LEAF: SwitchId = SwitchId(0);

/// The argument of the process that serves one leaf, and that of one whose connections are secured.
pub(crate) const SERVE_LEAF: [(&str, ConnectionSecurity); 2] = [
    ("--serve-leaf", ConnectionSecurity::Clear),
    ("--serve-secured-leaf", ConnectionSecurity::Secured),
];

pub(crate) async fn measure(protection: ConnectionSecurity) -> Result<(), Failed> {
    let (fabric, _process) = start_leaf(protection).await?;
    let switch = format!("embedded switch{}", protection.label());
    compare(&switch, &fabric, protection).await?;
    if protection == ConnectionSecurity::Secured {
        return Ok(());
    }
    match SimpleSwitch::start()? {
        Some(bmv2) => compare("simple_switch_grpc", &bmv2.fabric, protection).await,
        None => {
            println!("simple_switch_grpc is not on PATH");
            Ok(())
        }
    }
}

/// A fabric of which one leaf is served, by a process of its own.
async fn start_leaf(protection: ConnectionSecurity) -> Result<(Fabric, ServingProcess), Failed> {
    let argument = SERVE_LEAF.iter().find(|(_, served)| *served == protection);
    let (argument, _) = argument.ok_or("no process serves such a leaf")?;
    let process = ServingProcess::start(argument).await?;
    let mut parts = parts(&small())?;
    let leaf = parts.switches.get_mut(LEAF.index()).ok_or("the fabric has no leaf")?;
    leaf.p4runtime = process.addresses.first().cloned();
    Ok((Fabric::new(parts), process))
}

/// What the process of the leaf does, until its standard input ends.
pub(crate) async fn serve(protection: ConnectionSecurity) -> Result<(), Failed> {
    let lab = Lab::of_one_leaf(protection.service_options()?).await?;
    println!("{}", lab.fabric.switch(LEAF).p4runtime.as_deref().unwrap_or_default());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Seconds that it took to add and to remove, round by round.
#[derive(Default)]
struct Seconds {
    added: Vec<f64>,
    removed: Vec<f64>,
}

impl Seconds {
    fn push(&mut self, added: Duration, removed: Duration) {
        self.added.push(added.as_secs_f64());
        self.removed.push(removed.as_secs_f64());
    }
}

async fn compare(
    what: &str,
    fabric: &Fabric,
    protection: ConnectionSecurity,
) -> Result<(), Failed> {
    let [mut ours, mut prepared, mut bare] = [(); 3].map(|()| Seconds::default());
    let mut updates = 0;
    for round in 1..=ROUNDS {
        // Each leads in a later term than the one before.
        let writer = Writer::start(fabric, 2 * round, protection).await?;
        let (without, added) = writer.turn_to(vec![pins(fabric)]).await?;
        let (with, removed) = writer.turn_to(Vec::new()).await?;
        writer.controller.shutdown().await;
        ours.push(added.write, removed.write);
        updates = added.updates;

        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        let [add, remove] = [(&with, &without), (&without, &with)]
            .map(|(wanted, held)| p4::diff_tables(p4info, wanted, held));
        let client = Bare::connect(fabric.switch(LEAF), 2 * round + 1, protection).await?;
        // A task, as the controller's session is: what runs on the main thread has a thread more.
        let written = tokio::spawn(write_twice(client, add, remove)).await?;
        let [(added, removed), (bare_added, bare_removed)] = written?;
        prepared.push(added, removed);
        bare.push(bare_added, bare_removed);
    }
    print(what, "add", updates, [&ours.added, &prepared.added, &bare.added]);
    print(what, "remove", updates, [&ours.removed, &prepared.removed, &bare.removed]);
    Ok(())
}

/// Adds and removes with requests that were made beforehand, and again with others; reads between,
/// as the controller does, are not timed.
async fn write_twice(
    client: Bare,
    add: Vec<TableUpdate>,
    remove: Vec<TableUpdate>,
) -> Result<[(Duration, Duration); 2], Failed> {
    let added = client.write_prepared(&add, BATCH, OUTSTANDING).await?;
    client.read_tables().await?;
    let prepared = (added, client.write_prepared(&remove, BATCH, OUTSTANDING).await?);
    client.read_tables().await?;
    let added = client.write(&add, BATCH, OUTSTANDING).await?;
    client.read_tables().await?;
    let made = (added, client.write(&remove, BATCH, OUTSTANDING).await?);
    Ok([prepared, made])
}

/// Medians, and the median of the ratios of each round.
fn print(what: &str, kind: &str, updates: usize, seconds: [&Vec<f64>; 3]) {
    let [ours, prepared, bare] = seconds;
    let ratio_to = |client: &[f64]| {
        median(ours.iter().zip(client).map(|(ours, theirs)| theirs / ours).collect())
    };
    let ratios = [ratio_to(prepared), ratio_to(bare)];
    let rates = seconds.map(|seconds| updates as f64 / median(seconds.clone()) / 1e3);
    println!(
        "{what}, {kind} {updates} entries in batches of {BATCH}, {OUTSTANDING} at once: \
         controller {:.1} k/s, bare client {:.1} k/s, median ratio {:.3}; with requests made \
         beforehand {:.1} k/s, {:.3}",
        rates[0], rates[2], ratios[1], rates[1], ratios[0]
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A controller of one switch.
struct Writer {
    controller: ControllerHandle,
}

impl Writer {
    async fn start(
        fabric: &Fabric,
        term: u64,
        protection: ConnectionSecurity,
    ) -> Result<Self, Failed> {
        let mut secured = RawConfig::default();
        protection.protect_southbound(&mut secured)?;
        let change = |raw: &mut RawConfig| {
            raw.tls = secured.tls;
            raw.election.term = term;
            raw.reconcile.batch = BATCH;
            raw.reconcile.outstanding = OUTSTANDING;
        };
        let controller = control(fabric, change).await?;
        let generation = controller.desired_tables().generation;
        controller.await_verified(generation, DEADLINE).await?;
        Ok(Self { controller })
    }

    /// Has it write other jobs: the tables before, and how the pass went.
    async fn turn_to(&self, jobs: Vec<Job>) -> Result<(Arc<SwitchTables>, ReconcilePass), Failed> {
        let before = self.controller.desired_tables();
        let before = before.tables.get(&LEAF).ok_or("the leaf has no tables")?;
        let receipt = self.controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
        let verified = self.controller.await_verified(receipt.generation, DEADLINE);
        verified.await?;
        let line = self.controller.status_board().switch_status(LEAF);
        let pass = line.and_then(|line| line.last_pass).ok_or("no pass was made")?;
        Ok((Arc::clone(before), pass))
    }
}

/// A job with as many flows from the first leaf to the second as the switch shall hold pins.
fn pins(fabric: &Fabric) -> Job {
    let hosts = [HostId(0), HostId(2)];
    let nics = hosts.map(|host| fabric.host(host).nics[0]);
    job(1, hosts.into_iter(), (0..PINS).map(|port| flow(nics, port)))
}
