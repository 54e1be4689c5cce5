//! From 32 empty switches to every table of fabric and jobs verified.

use controller::StateEvent;
use switch_server::p4runtime::ServiceOptions;
use tokio::time::Instant;

use crate::lab::{Lab, control, jobs, written};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

const ROUNDS: usize = 10;

pub(crate) async fn measure() -> Result<(), Failed> {
    let (mut routed, mut planned) = (Samples::default(), Samples::default());
    let mut entries = 0;
    for _ in 0..ROUNDS {
        let lab = Lab::large(ServiceOptions::default()).await?;
        let jobs = jobs(&lab.fabric);
        let begun = Instant::now();
        let controller = control(&lab.fabric, |_| {}).await?;
        let generation = controller.desired_tables().generation;
        let timing = controller.await_verified(generation, DEADLINE).await?;
        routed.push(timing.verified - begun);
        let receipt = controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
        let verified = controller.await_verified(receipt.generation, DEADLINE);
        planned.push(verified.await?.verified - begun);
        entries = written(&controller);
        controller.shutdown().await;
    }
    routed.print("cold start of 32 switches, program and routes verified");
    planned.print("cold start of 32 switches, 24 jobs verified as well");
    println!("entries written in a cold start: {entries}");
    Ok(())
}
