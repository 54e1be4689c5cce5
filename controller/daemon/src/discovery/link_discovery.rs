//! Discovery beside a running controller: probes in rounds, and what becomes of them.
//!
//! The task is given what sessions hear and says what they shall send; an [`TopologyObserver`] is
//! in between. Differences from the document become findings, and cables that disappear go to
//! [`liveness`](crate::liveness). The decision: only what was seen before can be
//! missed. Where the controller never heard a probe, the fault may lie in the way of the probe, so
//! that is told and traffic stays; and when more than half of all cables fall silent in one round,
//! it is the controller that has lost its hearing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use p4::codec::{PacketIn, PacketOut};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, LinkId, Severity, SwitchId};
use tracing::{info, warn};

use super::probe::ProbeKey;
use super::topology_learner::TopologyLearner;
use super::{ObservedTopology, SwitchPort, TopologyObserver, compare_cabling, neighbour_packets};
use crate::config;
use crate::liveness::{FabricPart, PartHealth};
use crate::pipeline::SwitchPipeline;
use crate::pipelines::pipeline_at;
use crate::southbound::arbitration::Mastership;
use crate::southbound::{PacketIo, PacketOutRound, StatusBoard, SwitchPacket};
use crate::state::EventSubmission;
use crate::state::PlanRollout;
use crate::supervision::TaskSupervisor;

/// Ports that no document has are probed in every so many rounds.
const SURVEY: u64 = 8;

/// What is seen, and how it differs from the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryReport {
    /// What is seen.
    pub topology: ObservedTopology,
    /// How it differs.
    pub findings: Vec<Finding>,
}

/// The task.
pub(crate) struct LinkDiscovery {
    limits: config::DiscoveryConfig,
    received: mpsc::Receiver<SwitchPacket>,
    rounds: watch::Sender<Arc<PacketOutRound>>,
    reports: watch::Sender<Arc<DiscoveryReport>>,
}

/// What the task looks at, and whom it tells how cables look.
#[derive(Clone)]
pub(crate) struct DiscoveryInputs {
    /// The fabric as the document has it.
    pub(crate) rollout: watch::Receiver<Option<PlanRollout>>,
    /// Which switches listen.
    pub(crate) board: StatusBoard,
    /// Who hears of cables.
    pub(crate) events: mpsc::Sender<EventSubmission>,
}

/// What is known of one fabric.
struct FabricObservation {
    fabric: Fabric,
    observer: TopologyObserver,
    /// Since when each switch sends and listens.
    listening_since: BTreeMap<SwitchId, Instant>,
    rounds: u64,
    /// Cables that were seen both ways, and how they look.
    cables: BTreeMap<LinkId, PartHealth>,
    /// Until then, cables of another fabric may be called by these names.
    ambiguous_until: Option<Instant>,
}

impl LinkDiscovery {
    /// A task with a queue of `queue` packets, and the packet I/O of its sessions.
    pub(crate) fn new(limits: &config::DiscoveryConfig, queue: usize) -> (Self, PacketIo) {
        let (packet_io, received, rounds) = PacketIo::new(queue);
        let discovery =
            Self { limits: limits.clone(), received, rounds, reports: watch::Sender::default() };
        (discovery, packet_io)
    }

    /// The latest report, whenever it changes.
    pub(crate) fn report_receiver(&self) -> watch::Receiver<Arc<DiscoveryReport>> {
        self.reports.subscribe()
    }

    /// Probes until `stop`, if discovery is enabled.
    pub(crate) async fn run(
        mut self,
        around: DiscoveryInputs,
        supervisor: TaskSupervisor,
        stop: CancellationToken,
    ) {
        if self.limits.is_enabled {
            let running = supervisor.run_restarting("discovery", &mut self, |task| {
                task.run_rounds(around.clone()).boxed()
            });
            stop.run_until_cancelled(running).await;
        }
    }

    async fn run_rounds(&mut self, around: DiscoveryInputs) {
        let key = ProbeKey::random();
        let mut ticks = interval(self.limits.probe_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let assumptions = self.limits.assumptions;
        let mut learner =
            assumptions.map(|assumed| TopologyLearner::new(assumed, self.limits.stale_after));
        let mut watch: Option<FabricObservation> = None;
        loop {
            tokio::select! {
                biased;
                Some((switch, packet)) = self.received.recv() => {
                    if let Some(watch) = &mut watch {
                        watch.receive_packet(switch, &packet);
                    }
                }
                _ = ticks.tick() => {
                    let fabric = around.rollout.borrow().as_ref().map(|had| had.fabric.clone());
                    let Some(fabric) = fabric else { continue };
                    let same = watch.take().filter(|it| is_same_topology(&it.fabric, &fabric));
                    let mut now = same.unwrap_or_else(|| {
                        FabricObservation::new(fabric.clone(), &key, &self.limits)
                    });
                    now.fabric = fabric;
                    self.run_round(&mut now, learner.as_mut(), &around).await;
                    watch = Some(now);
                }
            }
        }
    }

    /// One round: evaluates the probes of earlier rounds and sends the next.
    async fn run_round(
        &self,
        watch: &mut FabricObservation,
        learner: Option<&mut TopologyLearner>,
        around: &DiscoveryInputs,
    ) {
        let now = Instant::now();
        watch.update_listeners(&around.board, now);
        let watched = watch.watched_switches(self.limits.stale_after, now);
        let mut found = watch.build_report(&watched, now);
        let mut events = Vec::new();
        if watch.ambiguous_until.is_none_or(|until| until <= now) {
            let changed = watch.cable_changes(&found.topology, &watched).into_iter();
            events.extend(changed.map(|(part, health)| EventSubmission::part_health(part, health)));
        }
        if let Some(learner) = learner {
            let lesson = learner.learn_topology(&watch.fabric, &found.topology, now);
            // Extra cables become part of the fabric, so they are no findings here.
            let is_learned = |about: &str| lesson.findings.iter().any(|one| one.about == about);
            found.findings.retain(|finding| {
                finding.severity == Severity::Error && !is_learned(&finding.about)
            });
            found.findings.extend(lesson.findings);
            if let Some(fabric) = lesson.fabric {
                watch.ambiguous_until = Some(now + self.limits.stale_after);
                events.push(EventSubmission::learned_fabric(fabric));
            }
        }
        found.findings.extend(watch.observer.claim_findings(&watch.fabric, now));
        for event in events {
            // An error means that the controller has stopped, and this task is about to.
            drop(around.events.send(event).await);
        }
        self.publish_report(found);
        self.rounds.send_replace(Arc::new(watch.next_round(&self.limits, now)));
    }

    fn publish_report(&self, found: DiscoveryReport) {
        let before = Arc::clone(&self.reports.borrow());
        if *before == found {
            return;
        }
        let had: BTreeSet<&Finding> = before.findings.iter().collect();
        let has: BTreeSet<&Finding> = found.findings.iter().collect();
        for Finding { about, text, .. } in has.difference(&had) {
            warn!(about, "{text}");
        }
        for Finding { about, text, .. } in had.difference(&has) {
            info!(about, "no more: {text}");
        }
        self.reports.send_replace(Arc::new(found));
    }
}

impl FabricObservation {
    fn new(fabric: Fabric, key: &ProbeKey, limits: &config::DiscoveryConfig) -> Self {
        // Every cable of a learned fabric was observed before.
        let cables = fabric.cables().filter(|cable| link_ends(&fabric, *cable).is_some());
        let seen = cables.filter(|_| limits.assumptions.is_some()).map(|cable| {
            let is_up = fabric.is_cable_up(cable);
            (cable, if is_up { PartHealth::Up } else { PartHealth::Down })
        });
        Self {
            cables: seen.collect(),
            observer: TopologyObserver::new(&fabric, key.clone(), limits.stale_after),
            fabric,
            listening_since: BTreeMap::new(),
            rounds: 0,
            ambiguous_until: None,
        }
    }

    fn receive_packet(&mut self, switch: SwitchId, packet: &PacketIn) {
        let port = packet.ingress_port.number();
        let at = SwitchPort { switch, port };
        self.observer.receive_frame(at, &packet.payload, Instant::now());
    }

    /// Notes which switches send and receive probes: those whose primary is here and whose tables
    /// are verified, among them the rows that punt probes to the controller.
    fn update_listeners(&mut self, board: &StatusBoard, now: Instant) {
        board.for_each_status(|switch, line| {
            let listens = matches!(line.mastership, Mastership::Primary { .. });
            match listens && line.verified.is_some() {
                true => drop(self.listening_since.entry(switch).or_insert(now)),
                // While tables change, the rows that punt probes stay in place.
                false if listens => {}
                false => drop(self.listening_since.remove(&switch)),
            }
        });
    }

    /// The switches that have listened for so long that silence proves something.
    fn watched_switches(&self, stale: Duration, now: Instant) -> BTreeSet<SwitchId> {
        let since = self.listening_since.iter();
        let long_enough = since.filter(|(_, since)| now.duration_since(**since) >= stale);
        long_enough.map(|(switch, _)| *switch).collect()
    }

    fn build_report(&self, watched: &BTreeSet<SwitchId>, now: Instant) -> DiscoveryReport {
        let observed = self.observer.observed_topology(now);
        let findings = compare_cabling(&self.fabric, &observed, watched);
        DiscoveryReport { topology: observed, findings }
    }

    /// Cables whose health has changed since the last round. Silence counts where both ends are
    /// `watched`.
    fn cable_changes(
        &mut self,
        observed: &ObservedTopology,
        watched: &BTreeSet<SwitchId>,
    ) -> Vec<(FabricPart, PartHealth)> {
        let cables = self.fabric.cables();
        let mut changes = Vec::new();
        for cable in cables {
            let Some((a, b)) = link_ends(&self.fabric, cable) else {
                continue;
            };
            let is_right = observed.links.get(&a) == Some(&b) && observed.links.get(&b) == Some(&a);
            if !is_right && ![a, b].iter().all(|end| watched.contains(&end.switch)) {
                continue;
            }
            let health = if is_right { PartHealth::Up } else { PartHealth::Down };
            match self.cables.get(&cable) {
                None if health == PartHealth::Down => {}
                Some(known) if *known == health => {}
                _ => changes.push((cable, health)),
            }
        }
        // Cables rarely fail together; an overloaded or paused controller misses probes of all.
        let silent = changes.iter().filter(|(_, health)| *health == PartHealth::Down).count();
        if 2 * silent > self.cables.len().max(2) {
            warn!(silent, "most cables fell silent at once; taken for the controller's own fault");
            return Vec::new();
        }
        self.cables.extend(changes.iter().copied());
        let parts = changes.into_iter();
        parts.map(|(cable, health)| (FabricPart::Cable(cable), health)).collect()
    }

    /// The next probes, and in some rounds requests to all hosts.
    fn next_round(&mut self, limits: &config::DiscoveryConfig, now: Instant) -> PacketOutRound {
        self.observer.begin_round();
        let is_survey = self.rounds.is_multiple_of(SURVEY);
        if is_survey {
            let listening = &self.listening_since;
            let is_listening = |switch| listening.contains_key(&switch);
            self.observer.settle_claims(&self.fabric, is_listening, now);
        }
        self.rounds += 1;
        let mut packets = BTreeMap::new();
        for switch in self.fabric.switch_ids() {
            let mut ports = documented_ports(&self.fabric, switch);
            ports.extend(self.observer.observed_ports(switch));
            if is_survey {
                ports.extend(0..limits.ports);
            }
            let pipeline = pipeline_at(&self.fabric, switch);
            let probes = ports.into_iter().filter_map(|port| {
                let frame = self.observer.encode_probe(SwitchPort { switch, port });
                pipeline.packet_out(port, frame)
            });
            let mut sent: Vec<PacketOut> = probes.collect();
            if is_survey {
                sent.extend(host_requests(&self.fabric, switch));
                let disputed = self.observer.disputed_addresses(switch).into_iter();
                sent.extend(
                    disputed.filter_map(|(at, ip)| host_request(pipeline, at.port.into(), ip)),
                );
            }
            packets.insert(switch, sent);
        }
        PacketOutRound::new(packets)
    }
}

/// The ports of a switch that have a cable in the document.
pub(super) fn documented_ports(fabric: &Fabric, switch: SwitchId) -> BTreeSet<u16> {
    let ports = fabric.switch(switch).ports.keys();
    ports.filter_map(|port| u16::try_from(*port).ok()).collect()
}

/// ARP requests or neighbour solicitations to the hosts at a switch.
pub(super) fn host_requests(fabric: &Fabric, switch: SwitchId) -> impl Iterator<Item = PacketOut> {
    let nics = fabric.nics_on(switch).map(|nic| fabric.nic(nic));
    let pipeline = pipeline_at(fabric, switch);
    nics.filter_map(move |nic| host_request(pipeline, fabric.link(nic.uplink).to.port, nic.ip))
}

fn host_request(pipeline: &dyn SwitchPipeline, port: u32, ip: IpAddr) -> Option<PacketOut> {
    let request = neighbour_packets::encode_request(ip);
    pipeline.packet_out(u16::try_from(port).ok()?, request)
}

/// The ports at both ends of a link between switches.
pub(super) fn link_ends(fabric: &Fabric, link: LinkId) -> Option<(SwitchPort, SwitchPort)> {
    let link = fabric.link(link);
    Some((SwitchPort::at_endpoint(link.from)?, SwitchPort::at_endpoint(link.to)?))
}

/// Whether ids of one fabric are valid in the other.
pub(super) fn is_same_topology(a: &Fabric, b: &Fabric) -> bool {
    a.switches() == b.switches() && a.links() == b.links() && a.nics() == b.nics()
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::clos::{self, ClosSpec};

    const STALE: Duration = Duration::from_millis(700);

    /// After a fabric has grown, everything that was heard of the one before is gone; no cable
    /// fails for that.
    #[test]
    fn cables_fail_only_after_both_ends_have_listened() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let raw = config::RawDiscovery { enabled: true, learn: true, ..Default::default() };
        let limits = config::DiscoveryConfig::try_from(&raw).unwrap();
        let key = ProbeKey::new([1; 32]);
        let mut observation = FabricObservation::new(fabric.clone(), &key, &limits);
        let start = Instant::now();
        observation.listening_since = fabric.switch_ids().map(|switch| (switch, start)).collect();
        let links = fabric.link_ids().filter_map(|link| link_ends(&fabric, link));
        let mut observed = ObservedTopology { links: links.collect(), ..Default::default() };
        let cable = link_ends(&fabric, fabric.links_named("leaf1-spine1")[0]).unwrap();
        observed.links.remove(&cable.0);
        let watched = observation.watched_switches(STALE, start);
        assert_eq!(observation.cable_changes(&observed, &watched), []);
        let watched = observation.watched_switches(STALE, start + STALE);
        let changes = observation.cable_changes(&observed, &watched);
        assert!(matches!(changes[..], [(FabricPart::Cable(_), PartHealth::Down)]), "{changes:?}");
    }
}
