//! What switches count while jobs train packet by packet, as their gNMI servers would report it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::gnmi::{FabricCounters, InterfaceCounters, QueueCounters, SwitchCounters};
use emulator::{HostCluster, TimeScale};
use switch::QueueCounts;
use topology::{Fabric, LinkId, SwitchId};

use crate::demo::ServedTestbed;
use command_io::CommandError;

/// Reads the counters of all switches at one instant.
pub(super) struct FabricReader {
    scale: TimeScale,
    read_at: f64,
    pub(super) counters: FabricCounters,
}

impl FabricReader {
    pub(super) fn new(scale: TimeScale) -> Self {
        Self { scale, read_at: 0.0, counters: FabricCounters::default() }
    }

    /// Reads so much virtual time after the reading before. The time is that of the jobs, so rates
    /// are those of their links divided by the scale; bytes are multiplied by it.
    pub(super) async fn read_counters(
        &mut self,
        stage: &ServedTestbed<'_>,
        fabric: &Fabric,
        step: Duration,
    ) -> Result<(), CommandError> {
        self.read_at += step.as_secs_f64() * self.scale.factor();
        let queues = stage.testbed().queue_counts().await.map_err(CommandError::failed)?;
        let mut before = Arc::unwrap_or_clone(std::mem::take(&mut self.counters));
        let switches = fabric.switch_ids().map(|switch| {
            let later = self.switch_counters(fabric, switch, &queues);
            match before.remove(&switch) {
                Some(earlier) => (switch, later.since(earlier)),
                None => (switch, later),
            }
        });
        let read: BTreeMap<SwitchId, SwitchCounters> = switches.collect();
        self.counters = Arc::new(read);
        Ok(())
    }

    /// The counters of a switch; `queues` has what each link has sent.
    fn switch_counters(
        &self,
        fabric: &Fabric,
        switch: SwitchId,
        queues: &[Vec<QueueCounts>],
    ) -> SwitchCounters {
        let mut counters = SwitchCounters { read_at: self.read_at, ..SwitchCounters::default() };
        let sent = |link: LinkId| queues[link.index()].iter().map(|queue| queue.sent.bytes).sum();
        for (port, link) in &fabric.switch(switch).ports {
            let interface = InterfaceCounters {
                received_bytes: Some(self.real_bytes(sent(link.reverse()))),
                sent_bytes: Some(self.real_bytes(sent(*link))),
                ..InterfaceCounters::default()
            };
            counters.interfaces.insert(*port, interface);
            for (level, queue) in (0..).zip(&queues[link.index()]) {
                let counted = QueueCounters {
                    sent_bytes: Some(self.real_bytes(queue.sent.bytes)),
                    waiting_bytes: Some(queue.depth.bytes),
                    pauses_received: Some(queue.pauses),
                    ..QueueCounters::default()
                };
                counters.queues.insert((*port, level), counted);
            }
        }
        counters
    }

    fn real_bytes(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.scale.factor()) as u64
    }
}

/// Iterations that each job has completed.
pub(super) async fn completed_iterations(
    stage: &ServedTestbed<'_>,
) -> Result<Vec<usize>, CommandError> {
    let hosts = stage.testbed().host_cluster();
    let completed = hosts.with_endpoint(|cluster: &mut HostCluster, _, _| {
        cluster.training_jobs().map(|job| job.completed_iterations()).collect()
    });
    completed.await.map_err(CommandError::failed)
}
