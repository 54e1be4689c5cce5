//! What switches report over gNMI: the states of their ports, and how they map DSCP to queues.
//!
//! P4Runtime has no port events, and a switch that runs SONiC reports them over gNMI alone. A task
//! for each switch whose address the fabric document has (`gnmi/switch_follower.rs`) subscribes to
//! `oper-status` and checks the maps of queues from time to time. What it sees of ports becomes
//! observations of cables (`gnmi/cable_ends.rs`), the same input that
//! [`liveness`](crate::liveness) has from probes and carriers; wrong maps become findings
//! (`gnmi/queue_maps.rs`), and what ports and queues count is published
//! (`gnmi/switch_counters.rs`). The decision: a switch that does not answer over gNMI says nothing
//! about its cables. They stay as they were seen last, a finding says that nobody looks, and what
//! it counts is not known.

mod backlogged_rates;
mod cable_ends;
mod interface_counters;
mod interface_table;
mod leaf_value;
mod neighbours;
mod queue_counters;
mod queue_maps;
mod queue_settings;
mod switch_counters;
mod switch_follower;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use planner::PolicyDocument;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, SwitchId};

use crate::config::{Config, GnmiConfig, SouthboundConfig};
use crate::standing_findings::StandingFindings;
use crate::state::{EventSubmission, PlanRollout};
use crate::supervision::TaskSupervisor;
pub use backlogged_rates::{BackloggedRates, DeliveredRate};
use cable_ends::CableEnds;
pub use interface_counters::{InterfaceCounters, PortInterfaceCounters};
pub use neighbours::{LldpTable, check_neighbours};
pub use queue_counters::{PortQueueCounters, QueueCounters};
pub use queue_maps::{QueueMaps, check_queue_maps};
pub use queue_settings::{ExpectedQueues, QueueSettings, check_queue_settings};
pub use switch_counters::{FabricCounters, PortRates, SwitchCounters};
use switch_follower::{SwitchFollower, SwitchReport};

/// What precedes the number of a finding about cables.
const NEIGHBOUR_CAUSE: &str = "gnmi neighbours/";
/// Reports that wait; the tasks of switches wait when it is full.
const REPORTS_WAITING: usize = 256;

/// The task that observes all switches.
pub(crate) struct GnmiMonitor {
    limits: GnmiConfig,
    southbound: SouthboundConfig,
    /// If configured; otherwise the fabric document says it.
    levels: Option<u8>,
    findings: StandingFindings,
    tasks: BTreeMap<GnmiTarget, FollowerTask>,
    cables: CableEnds,
    neighbours: BTreeMap<SwitchId, LldpTable>,
    counters: watch::Sender<FabricCounters>,
    /// When the clock of readings began.
    started: Instant,
}

/// A switch and its gNMI server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GnmiTarget {
    switch: SwitchId,
    name: String,
    /// `host:port`.
    address: String,
}

/// A follower and what it compares its switch with.
struct FollowerTask {
    expected: ExpectedQueues,
    task: JoinHandle<()>,
}

/// What the task looks at, and who hears of cables.
#[derive(Clone)]
pub(crate) struct GnmiInputs {
    pub(crate) rollout: watch::Receiver<Option<PlanRollout>>,
    pub(crate) events: mpsc::Sender<EventSubmission>,
}

impl GnmiMonitor {
    pub(crate) fn new(config: &Config, findings: StandingFindings) -> Self {
        Self {
            limits: config.gnmi,
            southbound: config.southbound.clone(),
            levels: config.levels,
            findings,
            tasks: BTreeMap::new(),
            cables: CableEnds::default(),
            neighbours: BTreeMap::new(),
            counters: watch::Sender::default(),
            started: Instant::now(),
        }
    }

    /// What switches count at their ports, as they report it.
    pub(crate) fn watch_counters(&self) -> watch::Receiver<FabricCounters> {
        self.counters.subscribe()
    }

    /// Observes until `stop`, if the configuration wants that.
    pub(crate) async fn run(
        mut self,
        inputs: GnmiInputs,
        supervisor: TaskSupervisor,
        stop: CancellationToken,
    ) {
        if self.limits.is_enabled {
            let running = supervisor.run_restarting("gNMI monitor", &mut self, |task| {
                task.run_loop(inputs.clone()).boxed()
            });
            stop.run_until_cancelled(running).await;
        }
    }

    async fn run_loop(&mut self, mut inputs: GnmiInputs) {
        self.stop_followers(&BTreeMap::new());
        let (to_monitor, mut reports) = mpsc::channel(REPORTS_WAITING);
        inputs.rollout.mark_changed();
        loop {
            let seen = tokio::select! {
                // Ports first: a plan may wait, the repair of a failure may not.
                biased;
                Some(report) = reports.recv() => self.take_report(report, &inputs.rollout),
                changed = inputs.rollout.changed() => match changed {
                    Ok(()) => {
                        let rollout = inputs.rollout.borrow_and_update().clone();
                        let followed = rollout
                            .map(|rollout| self.follow_fabric(&rollout.fabric, &to_monitor));
                        followed.unwrap_or_default()
                    }
                    Err(_) => return,
                },
            };
            for submission in seen {
                // An error means that the controller has stopped, and this task is about to.
                drop(inputs.events.send(submission).await);
            }
        }
    }

    /// Follows the switches of a fabric. Its cables may have other ids than before, so that those
    /// that are down are reported again.
    fn follow_fabric(
        &mut self,
        fabric: &Fabric,
        to_monitor: &mpsc::Sender<SwitchReport>,
    ) -> Vec<EventSubmission> {
        let levels = self.levels.unwrap_or_else(|| PolicyDocument::default_levels(fabric));
        let targets = GnmiTarget::all_in_fabric(fabric, levels);
        self.stop_followers(&targets);
        for (target, expected) in targets {
            if self.tasks.contains_key(&target) {
                continue;
            }
            let follower = SwitchFollower {
                target: target.clone(),
                limits: self.limits,
                southbound: self.southbound.clone(),
                expected: expected.clone(),
                reports: to_monitor.clone(),
                started: self.started,
            };
            let task = tokio::spawn(follower.follow_until_closed());
            self.tasks.insert(target, FollowerTask { expected, task });
        }
        let Some(down) = self.cables.adopt_fabric(fabric) else {
            return Vec::new();
        };
        self.report_neighbours(fabric);
        let down = down.into_iter();
        down.map(|(part, health)| EventSubmission::part_health(part, health)).collect()
    }

    /// Stops following all switches but these, of which the same is expected. A task that has ended
    /// has panicked; it starts again.
    fn stop_followers(&mut self, targets: &BTreeMap<GnmiTarget, ExpectedQueues>) {
        let gone = self.tasks.extract_if(.., |target, follower| {
            targets.get(target) != Some(&follower.expected) || follower.task.is_finished()
        });
        for (target, follower) in gone {
            follower.task.abort();
            self.findings.clear_finding(&silence_cause(&target.name));
            self.findings.clear_causes(&queue_cause(&target.name));
            // Ids are those of the fabric of then.
            self.neighbours.remove(&target.switch);
            forget_counters(&self.counters, target.switch);
        }
    }

    fn take_report(
        &mut self,
        report: SwitchReport,
        rollout: &watch::Receiver<Option<PlanRollout>>,
    ) -> Vec<EventSubmission> {
        match report {
            SwitchReport::Ports(switch, ports) => {
                let seen = ports
                    .into_iter()
                    .filter_map(|(port, health)| self.cables.observe_port((switch, port), health));
                seen.map(|(part, health)| EventSubmission::part_health(part, health)).collect()
            }
            SwitchReport::Answers(name) => {
                self.findings.clear_finding(&silence_cause(&name));
                Vec::new()
            }
            SwitchReport::Silent(switch, name, why) => {
                forget_counters(&self.counters, switch);
                let text = format!(
                    "no port states over gNMI ({why}); failures of its cables are not seen there"
                );
                let finding = Finding::warning(name.clone(), text);
                self.findings.report_finding(silence_cause(&name), finding);
                Vec::new()
            }
            SwitchReport::Counters(switch, counters) => {
                self.counters.send_modify(|all| drop(Arc::make_mut(all).insert(switch, counters)));
                Vec::new()
            }
            SwitchReport::Neighbours(switch, table) => {
                if self.neighbours.get(&switch) != Some(&table) {
                    self.neighbours.insert(switch, table);
                    if let Some(rollout) = &*rollout.borrow() {
                        self.report_neighbours(&rollout.fabric);
                    }
                }
                Vec::new()
            }
            SwitchReport::QueueMaps(name, wrong) => {
                self.report_all(&queue_cause(&name), &wrong);
                Vec::new()
            }
        }
    }

    /// Reports the cables that lead elsewhere than in the document.
    fn report_neighbours(&mut self, fabric: &Fabric) {
        let wrong = check_neighbours(fabric, &self.neighbours);
        self.report_all(NEIGHBOUR_CAUSE, &wrong);
    }

    /// Reports findings of one cause, instead of those from before.
    fn report_all(&mut self, cause: &str, findings: &[Finding]) {
        self.findings.clear_causes(cause);
        for (place, finding) in findings.iter().enumerate() {
            self.findings.report_finding(format!("{cause}{place:03}"), finding.clone());
        }
    }
}

impl Drop for GnmiMonitor {
    fn drop(&mut self) {
        self.tasks.values().for_each(|follower| follower.task.abort());
    }
}

impl GnmiTarget {
    /// The switches with an address, and what plans of so many levels assume of each.
    fn all_in_fabric(fabric: &Fabric, levels: u8) -> BTreeMap<Self, ExpectedQueues> {
        let targets = fabric.switch_ids().filter_map(|switch| {
            let known = fabric.switch(switch);
            let address = known.gnmi.clone()?;
            let expected = ExpectedQueues::of_switch(fabric, switch, levels);
            Some((Self { switch, name: known.name.clone(), address }, expected))
        });
        targets.collect()
    }
}

fn forget_counters(counters: &watch::Sender<FabricCounters>, switch: SwitchId) {
    counters.send_if_modified(|all| Arc::make_mut(all).remove(&switch).is_some());
}

fn silence_cause(name: &str) -> String {
    format!("gnmi {name}")
}

fn queue_cause(name: &str) -> String {
    format!("gnmi queues {name}/")
}
