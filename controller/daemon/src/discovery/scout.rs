//! Discovery beside a running controller: probes in rounds, and what becomes of them.
//!
//! The task is given what sessions hear and says what they shall send; an [`Observer`] is in
//! between. Differences from the document go to whoever looks, cables that were seen and are not
//! any more to [`liveness`](crate::liveness). The decision: only what was seen before can be
//! missed. Where the controller never heard a probe, the fault may lie in the way of the probe, so
//! that is told and traffic stays; and when more than half of all cables fall silent in one round,
//! it is the controller that has lost its hearing.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use p4::codec::{Outlet, PacketIn, PacketOut};
use p4::fabric::Port;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, LinkId, Severity, SwitchId};
use tracing::{info, warn};

use super::growth::Growth;
use super::probe::Key;
use super::{End, Observer, Sight, arp, compare};
use crate::config;
use crate::liveness::{Health, Part};
use crate::runtime::Submission;
use crate::southbound::Board;
use crate::southbound::arbitration::Standing;
use crate::southbound::connection::Say;
use crate::state::Realise;

/// Ports that no document has are probed in every so many rounds.
const SURVEY: u64 = 8;

/// A packet that a session heard.
type Heard = (SwitchId, PacketIn);

/// What sessions have of discovery: where to put the packets that they hear, and which to send.
#[derive(Clone, Debug)]
pub(crate) struct Antenna {
    heard: mpsc::Sender<Heard>,
    rounds: watch::Receiver<Arc<Round>>,
}

impl Antenna {
    /// Takes a packet from a switch; one too many is lost, as on any wire.
    pub(crate) fn hear(&self, switch: SwitchId, packet: PacketIn) {
        drop(self.heard.try_send((switch, packet)));
    }

    /// Says on a switch's stream what is to be sent there, round after round.
    pub(crate) async fn speak(&self, switch: SwitchId, say: mpsc::Sender<Say>) -> Infallible {
        let mut rounds = self.rounds.clone();
        while rounds.changed().await.is_ok() {
            let round = Arc::clone(&rounds.borrow_and_update());
            for packet in round.of(switch) {
                // The stream has ended, which its session hears.
                drop(say.send(Say::Packet(packet.clone())).await);
            }
        }
        std::future::pending().await
    }
}

/// What the sessions are to send now.
#[derive(Clone, Debug, Default)]
struct Round {
    packets: BTreeMap<SwitchId, Vec<PacketOut>>,
}

impl Round {
    /// What one of them is to send.
    fn of(&self, switch: SwitchId) -> &[PacketOut] {
        self.packets.get(&switch).map_or(&[], Vec::as_slice)
    }
}

/// What is seen, and how it differs from the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// What is seen.
    pub sight: Sight,
    /// How it differs.
    pub findings: Vec<Finding>,
}

/// The task.
pub(crate) struct Scout {
    limits: config::Discovery,
    heard: mpsc::Receiver<Heard>,
    rounds: watch::Sender<Arc<Round>>,
    found: watch::Sender<Arc<Discovery>>,
}

/// What the task looks at, and whom it tells how cables look.
pub(crate) struct Surroundings {
    /// The fabric as the document has it.
    pub(crate) realised: watch::Receiver<Option<Realise>>,
    /// Which switches listen.
    pub(crate) board: Board,
    /// Who hears of cables.
    pub(crate) events: mpsc::Sender<Submission>,
}

/// What is known of one fabric.
struct Watch {
    fabric: Fabric,
    observer: Observer,
    /// Since when each switch sends and listens.
    since: BTreeMap<SwitchId, Instant>,
    rounds: u64,
    /// Cables that were seen both ways, and how they look.
    cables: BTreeMap<LinkId, Health>,
    /// Until then, cables of another fabric may be called by these names.
    unsure: Option<Instant>,
}

impl Scout {
    /// One that waits for `queue` packets at most, and the antenna for its sessions.
    pub(crate) fn new(limits: &config::Discovery, queue: usize) -> (Self, Antenna) {
        let (to_scout, heard) = mpsc::channel(queue);
        let (rounds, to_sessions) = watch::channel(Arc::default());
        let scout = Self {
            limits: limits.clone(),
            heard,
            rounds,
            found: watch::Sender::default(),
        };
        let antenna = Antenna {
            heard: to_scout,
            rounds: to_sessions,
        };
        (scout, antenna)
    }

    /// What is found, as it changes.
    pub(crate) fn found(&self) -> watch::Receiver<Arc<Discovery>> {
        self.found.subscribe()
    }

    /// Probes until `stop`, if that is wanted.
    pub(crate) async fn run(mut self, around: Surroundings, stop: CancellationToken) {
        if self.limits.is_enabled {
            stop.run_until_cancelled(self.look(around)).await;
        }
    }

    async fn look(&mut self, around: Surroundings) {
        let key = Key::random();
        let mut ticks = interval(self.limits.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let growth = |assumed| Growth::new(assumed, self.limits.stale);
        let mut growth = self.limits.assumed.map(growth);
        let mut watch: Option<Watch> = None;
        loop {
            tokio::select! {
                biased;
                Some((switch, packet)) = self.heard.recv() => {
                    if let Some(watch) = &mut watch {
                        watch.hear(switch, &packet);
                    }
                }
                _ = ticks.tick() => {
                    let fabric = around.realised.borrow().as_ref().map(|had| had.fabric.clone());
                    let Some(fabric) = fabric else { continue };
                    let begin = |fabric| Watch::new(fabric, &key, &self.limits);
                    let known = watch.take().filter(|watch| is_same(&watch.fabric, &fabric));
                    let mut now = known.unwrap_or_else(|| begin(fabric.clone()));
                    now.fabric = fabric;
                    self.tick(&mut now, growth.as_mut(), &around).await;
                    watch = Some(now);
                }
            }
        }
    }

    /// One round: what became of those before, and the next probes.
    async fn tick(&self, watch: &mut Watch, growth: Option<&mut Growth>, around: &Surroundings) {
        let now = Instant::now();
        watch.listen(&around.board, now);
        let mut found = watch.judge(self.limits.stale, now);
        let mut news = Vec::new();
        if watch.unsure.is_none_or(|until| until <= now) {
            let changed = watch.changed(&found.sight).into_iter();
            news.extend(changed.map(|(part, health)| Submission::seen(part, health)));
        }
        if let Some(growth) = growth {
            let lesson = growth.look(&watch.fabric, &found.sight, now);
            // What is extra becomes part of the fabric.
            let is_wrong = |finding: &Finding| finding.severity == Severity::Error;
            found.findings.retain(is_wrong);
            found.findings.extend(lesson.findings);
            if let Some(fabric) = lesson.fabric {
                watch.unsure = Some(now + self.limits.stale);
                news.push(Submission::learned(fabric));
            }
        }
        for news in news {
            // The controller has stopped; this task will be, too.
            drop(around.events.send(news).await);
        }
        self.tell(found);
        self.rounds
            .send_replace(Arc::new(watch.round(&self.limits)));
    }

    fn tell(&self, found: Discovery) {
        let before = Arc::clone(&self.found.borrow());
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
        self.found.send_replace(Arc::new(found));
    }
}

impl Watch {
    fn new(fabric: Fabric, key: &Key, limits: &config::Discovery) -> Self {
        // What was learned was seen.
        let cables = (0..fabric.links().len()).step_by(2).map(LinkId::from);
        let seen = cables.filter(|_| limits.assumed.is_some()).map(|cable| {
            let is_up = fabric.is_cable_up(cable);
            (cable, if is_up { Health::Up } else { Health::Down })
        });
        Self {
            cables: seen.collect(),
            fabric,
            observer: Observer::new(key.clone(), limits.stale),
            since: BTreeMap::new(),
            rounds: 0,
            unsure: None,
        }
    }

    fn hear(&mut self, switch: SwitchId, packet: &PacketIn) {
        let port = packet.ingress_port.number();
        let at = End { switch, port };
        self.observer.hear(at, &packet.payload, Instant::now());
    }

    /// Notes which switches send and listen: those whose primary is here and whose tables were seen
    /// to be right, the rows that bring probes here among them.
    fn listen(&mut self, board: &Board, now: Instant) {
        board.for_each(|switch, line| {
            let listens = matches!(line.standing, Standing::Primary { .. });
            match listens && line.verified.is_some() {
                true => drop(self.since.entry(switch).or_insert(now)),
                // While tables change, what was heard goes on being heard.
                false if listens => {}
                false => drop(self.since.remove(&switch)),
            }
        });
    }

    fn judge(&self, stale: std::time::Duration, now: Instant) -> Discovery {
        let sight = self.observer.sight(now);
        let since = self.since.iter();
        let watched = since.filter(|(_, since)| now.duration_since(**since) >= stale);
        let watched = watched.map(|(switch, _)| *switch).collect();
        let findings = compare(&self.fabric, &sight, &watched);
        Discovery { sight, findings }
    }

    /// Cables that look different now.
    fn changed(&mut self, sight: &Sight) -> Vec<(Part, Health)> {
        let cables = (0..self.fabric.links().len()).step_by(2).map(LinkId::from);
        let mut changes = Vec::new();
        for cable in cables {
            let Some((a, b)) = ends(&self.fabric, cable) else {
                continue;
            };
            if ![a, b]
                .iter()
                .all(|end| self.since.contains_key(&end.switch))
            {
                continue;
            }
            let is_right = sight.links.get(&a) == Some(&b) && sight.links.get(&b) == Some(&a);
            let health = if is_right { Health::Up } else { Health::Down };
            match self.cables.get(&cable) {
                None if health == Health::Down => {}
                Some(known) if *known == health => {}
                _ => changes.push((cable, health)),
            }
        }
        let silent = changes
            .iter()
            .filter(|(_, health)| *health == Health::Down)
            .count();
        if 2 * silent > self.cables.len().max(2) {
            warn!(
                silent,
                "most cables fell silent at once; taken for the controller's own fault"
            );
            return Vec::new();
        }
        self.cables.extend(changes.iter().copied());
        let parts = changes.into_iter();
        parts
            .map(|(cable, health)| (Part::Cable(cable), health))
            .collect()
    }

    /// The next probes, and every so often questions to all hosts.
    fn round(&mut self, limits: &config::Discovery) -> Round {
        self.observer.begin_round();
        let is_survey = self.rounds.is_multiple_of(SURVEY);
        self.rounds += 1;
        let mut packets = BTreeMap::new();
        for switch in (0..self.fabric.switches().len()).map(SwitchId::from) {
            let mut ports = ports(&self.fabric, switch);
            ports.extend(self.observer.ports(switch));
            if is_survey {
                ports.extend(0..limits.ports);
            }
            let probe = |port: &u16| {
                packet(
                    *port,
                    self.observer.probe(End {
                        switch,
                        port: *port,
                    }),
                )
            };
            let mut sent: Vec<PacketOut> = ports.iter().filter_map(probe).collect();
            if is_survey {
                sent.extend(questions(&self.fabric, switch));
            }
            packets.insert(switch, sent);
        }
        Round { packets }
    }
}

/// The ports of a switch that have a cable in the document.
pub(super) fn ports(fabric: &Fabric, switch: SwitchId) -> BTreeSet<u16> {
    let ports = fabric.switch(switch).ports.keys();
    ports.filter_map(|port| u16::try_from(*port).ok()).collect()
}

/// Questions to the hosts at a switch.
pub(super) fn questions(fabric: &Fabric, switch: SwitchId) -> impl Iterator<Item = PacketOut> {
    fabric.nics_on(switch).filter_map(|nic| {
        let nic = fabric.nic(nic);
        let port = fabric.link(nic.uplink).to.port;
        packet(u16::try_from(port).ok()?, arp::question(nic.ip))
    })
}

/// A frame out of a port; none out of the controller's own.
pub(super) fn packet(port: u16, payload: Vec<u8>) -> Option<PacketOut> {
    let port = Port::new(port.into())
        .ok()
        .filter(|port| *port != Port::CPU)?;
    let outlet = Outlet::Port(port);
    Some(PacketOut { outlet, payload })
}

/// The ports at both ends of a link between switches.
pub(super) fn ends(fabric: &Fabric, link: LinkId) -> Option<(End, End)> {
    let link = fabric.link(link);
    Some((end(link.from)?, end(link.to)?))
}

/// An end of a cable as a port of a switch.
pub(super) fn end(endpoint: topology::Endpoint) -> Option<End> {
    let switch = endpoint.node.switch()?;
    let port = u16::try_from(endpoint.port).ok()?;
    Some(End { switch, port })
}

/// Whether ids mean the same.
pub(super) fn is_same(a: &Fabric, b: &Fabric) -> bool {
    a.switches() == b.switches() && a.links() == b.links() && a.nics() == b.nics()
}
