//! What a change of the policy costs that touches so many flows, in entries and in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::{ControllerHandle, StateEvent};
use p4::{ForwardingPipeline, SwitchTables};
use planner::{JobOverride, Policy};
use switch_server::p4runtime::ServiceOptions;
use topology::SwitchId;

use crate::lab::{Lab, control, jobs, ring, written};
use crate::{DEADLINE, Failed};

/// Flows of the jobs that the policy is about.
const FLOWS: [u32; 5] = [1, 2, 5, 10, 20];

pub(crate) async fn measure() -> Result<(), Failed> {
    let lab = Lab::large(ServiceOptions::default()).await?;
    let controller = control(&lab.fabric, |_| {}).await?;
    let mut all = jobs(&lab.fabric);
    all.extend(FLOWS.iter().map(|flows| {
        // A ring of n hosts has n flows; of two hosts' one is left out for a single flow.
        let mut job = ring(&lab.fabric, 100 + flows, (*flows).max(2));
        job.flows.truncate(*flows as usize);
        job
    }));
    let receipt = controller.submit_event(StateEvent::JobsChanged(all)).await?;
    controller.await_verified(receipt.generation, DEADLINE).await?;
    for flows in FLOWS {
        let policy = Policy { overrides: vec![exempt(100 + flows)], ..Policy::default() };
        change(&controller, flows, "to ECMP", policy).await?;
        change(&controller, flows, "back", Policy::default()).await?;
    }
    controller.shutdown().await;
    Ok(())
}

/// Flows of the job go by ECMP.
fn exempt(number: u32) -> JobOverride {
    JobOverride {
        pattern: format!("job{number}"),
        min_level: None,
        max_level: None,
        weight: 1.0,
        exempt: true,
        min_throughput: None,
    }
}

async fn change(
    controller: &ControllerHandle,
    flows: u32,
    what: &str,
    policy: Policy,
) -> Result<(), Failed> {
    let (entries, before) = (written(controller), controller.desired_tables().tables.clone());
    let receipt = controller.submit_event(StateEvent::PolicyChanged(policy)).await?;
    let timing = controller.await_verified(receipt.generation, DEADLINE).await?;
    let entries = written(controller) - entries;
    let different = different(&before, &controller.desired_tables().tables);
    let each = entries as f64 / f64::from(flows);
    let writing = timing.verified - timing.timestamps.lowered;
    println!(
        "policy puts a job of {flows:>2} flows {what:<7} entries written {entries:>3}, \
         of which differ {different:>3}, for each flow {each:>4.1}, lowered to verified {:.2} ms",
        writing.as_secs_f64() * 1e3
    );
    if entries != different {
        return Err(format!("{entries} entries written where {different} differ").into());
    }
    Ok(())
}

/// Entries in which two generations differ.
fn different(
    before: &BTreeMap<SwitchId, Arc<SwitchTables>>,
    after: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> u64 {
    let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    let pairs = after.iter().filter_map(|(switch, after)| Some((before.get(switch)?, after)));
    let updates = pairs.map(|(before, after)| p4::diff_tables(p4info, after, before).len() as u64);
    updates.sum()
}
