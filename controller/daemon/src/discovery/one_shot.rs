//! Discovery once, of a fabric that no controller runs: take part, probe, leave.
//!
//! Beside a running controller this finds nothing, because a switch takes packets from its primary
//! alone. The decision: a survey leaves switches as they were. It reads the program of a switch
//! before anything else, and takes part only where the switch runs the controller's program or no
//! program. Its first bid has no election id, so that nobody is outbid; where the switch has no
//! primary, it bids with the highest id that the switch has seen, so that its owner can come back
//! with it. It adds the rows that bring probes, ARP and neighbour discovery to it and takes them
//! away again.

use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::{BoxStream, select_all};
use p4::{TableEntry, TableScope, TableUpdate, UpdateKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use topology::{Fabric, Finding, SwitchId, error_chain};

use super::link_discovery::{documented_ports, host_requests};
use super::probe::ProbeKey;
use super::{ObservedTopology, SwitchPort, TopologyObserver};
use crate::config::{self, Config};
use crate::pipeline::SwitchPipeline;
use crate::pipelines::pipeline_of;
use crate::southbound::arbitration::ElectionId;
use crate::southbound::connection::{
    ExistingEntries, IncomingMessage, OutgoingMessage, SwitchConnection, SwitchNetwork,
};
use crate::southbound::{ClientError, MastershipStatus, SwitchTarget};

/// Probes from each port: enough that some may be lost.
const ROUNDS: u32 = 5;

/// Links and hosts that were observed, and what failed.
#[derive(Clone, Debug, PartialEq)]
pub struct OneShotDiscovery {
    /// What was seen when it ended.
    pub topology: ObservedTopology,
    /// The switches that took part.
    pub switches: Vec<SwitchId>,
    /// Why the others did not.
    pub findings: Vec<Finding>,
}

/// Why a switch did not take part.
#[derive(Debug, thiserror::Error)]
pub enum OneShotError {
    /// It cannot be reached, or a call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not say who its primary is.
    #[error("it did not answer the bid for mastership")]
    NoArbitrationAnswer,
    /// A controller runs it.
    #[error("another controller is its primary; query that one for its discovery report")]
    ControlledElsewhere,
    /// It runs something else.
    #[error("it runs another program than the controller's")]
    ForeignProgram,
}

/// A switch that takes part.
struct ProbeSession {
    switch: SwitchId,
    pipeline: &'static dyn SwitchPipeline,
    connection: Box<dyn SwitchConnection>,
    outbound: mpsc::Sender<OutgoingMessage>,
    inbound: BoxStream<'static, Result<IncomingMessage, ClientError>>,
    /// The last election id that it has bid with.
    bid: ElectionId,
    /// Whether another controller was seen to be primary.
    is_beaten: bool,
    /// The rows that were added.
    rows: Vec<TableEntry>,
}

/// Looks at the switches of `fabric`, whether it knows their cables or not, for so long.
pub async fn discover_once(
    network: &dyn SwitchNetwork,
    fabric: &Fabric,
    config: &Config,
    lasts: Duration,
) -> OneShotDiscovery {
    let targets = SwitchTarget::all_in_fabric(fabric);
    let entering = targets.iter().map(|target| ProbeSession::join_switch(network, target, config));
    let mut posts = Vec::new();
    let mut findings = Vec::new();
    for (target, entered) in targets.iter().zip(join_all(entering).await) {
        match entered {
            Ok(post) => posts.push(post),
            Err(error) => findings.push(Finding::error(&target.name, error_chain(&error))),
        }
    }
    let observed = collect_probes(&mut posts, fabric, &config.discovery, lasts).await;
    let switches = posts.iter().map(|post| post.switch).collect();
    for (post, left) in join_all(posts.into_iter().map(ProbeSession::remove_punts)).await {
        if let Err(error) = left {
            let text = format!("the rows of the survey are still there: {}", error_chain(&error));
            findings.push(Finding::error(&fabric.switch(post).name, text));
        }
    }
    OneShotDiscovery { topology: observed, switches, findings }
}

/// Rounds of probes, until the time is over.
async fn collect_probes(
    posts: &mut [ProbeSession],
    fabric: &Fabric,
    limits: &config::DiscoveryConfig,
    lasts: Duration,
) -> ObservedTopology {
    // Nothing expires before the end: a probe that arrived once proves its cable.
    let mut observer = TopologyObserver::new(fabric, ProbeKey::random(), 2 * lasts);
    let inbound = posts.iter_mut().map(|post| {
        let (switch, stream) = (post.switch, std::mem::replace(&mut post.inbound, silent_stream()));
        stream.map(move |message| (switch, message)).boxed()
    });
    let mut messages = select_all(inbound);
    let mut ticks = interval(lasts / ROUNDS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        tokio::select! {
            biased;
            Some((switch, message)) = messages.next() => {
                if let Ok(IncomingMessage::Packet(packet)) = message {
                    let port = SwitchPort { switch, port: packet.ingress_port.number() };
                    observer.receive_frame(port, &packet.payload, Instant::now());
                }
            }
            _ = ticks.tick() => {
                observer.begin_round();
                for post in posts.iter() {
                    post.send_probes(&observer, fabric, limits).await;
                }
            }
        }
    }
    observer.observed_topology(Instant::now())
}

fn silent_stream() -> BoxStream<'static, Result<IncomingMessage, ClientError>> {
    futures::stream::pending().boxed()
}

impl ProbeSession {
    async fn join_switch(
        network: &dyn SwitchNetwork,
        target: &SwitchTarget,
        config: &Config,
    ) -> Result<Self, OneShotError> {
        let limits = &config.southbound;
        let pipeline = pipeline_of(target.address.pipeline);
        let connection = network.connect_switch(&target.address, limits).await?;
        has_program(&*connection, pipeline).await?;
        let conversation = connection.open_stream(ElectionId::NONE).await?;
        let mut post = Self {
            switch: target.switch,
            pipeline,
            connection,
            outbound: conversation.outgoing,
            inbound: conversation.incoming,
            bid: ElectionId::NONE,
            is_beaten: false,
            rows: Vec::new(),
        };
        let won = timeout(limits.rpc_deadline, post.win_election()).await;
        won.map_err(|_| match post.is_beaten {
            true => OneShotError::ControlledElsewhere,
            false => OneShotError::NoArbitrationAnswer,
        })??;
        post.install_punts().await?;
        Ok(post)
    }

    /// Becomes primary where nobody is. A switch reports its last primary for a while after that
    /// one has left.
    async fn win_election(&mut self) -> Result<(), OneShotError> {
        loop {
            let message = self.inbound.next().await.ok_or(OneShotError::NoArbitrationAnswer)??;
            let IncomingMessage::Mastership(status) = message else {
                continue;
            };
            self.bid = match status {
                // bmv2 takes a bid without an election id for one with the lowest.
                MastershipStatus::Primary if self.bid == ElectionId::NONE => ElectionId::LOWEST,
                MastershipStatus::Primary => return Ok(()),
                MastershipStatus::Backup { .. } => {
                    self.is_beaten = true;
                    continue;
                }
                // A server that wants an id above all that it has seen.
                MastershipStatus::NoPrimary { highest } if highest == self.bid => {
                    ElectionId(highest.0.saturating_add(1))
                }
                MastershipStatus::NoPrimary { highest } => highest.max(ElectionId::LOWEST),
            };
            let sent = self.outbound.send(OutgoingMessage::Bid(self.bid)).await;
            sent.map_err(|_| OneShotError::NoArbitrationAnswer)?;
        }
    }

    /// Adds what brings probes here.
    async fn install_punts(&mut self) -> Result<(), OneShotError> {
        let program = self.pipeline.program();
        // Once more: until the bid was won, another controller may have pushed its own.
        if !has_program(&*self.connection, self.pipeline).await? {
            let pushing = self.connection.push_pipeline(program, self.bid, ExistingEntries::Drop);
            pushing.await?;
        }
        let asked = TableScope::whole_tables(self.pipeline.punt_tables().iter().copied().collect());
        let held = self.connection.read_tables(program, &asked).await?;
        let rows = self.pipeline.punts().into_iter().map(TableEntry::with_signature);
        self.rows = rows.filter(|row| held.get(&row.key).is_none()).collect();
        self.write_rows(UpdateKind::Insert).await
    }

    async fn send_probes(
        &self,
        observer: &TopologyObserver,
        fabric: &Fabric,
        limits: &config::DiscoveryConfig,
    ) {
        let mut all = documented_ports(fabric, self.switch);
        all.extend(0..limits.ports);
        let switch = self.switch;
        let probes = all.into_iter().filter_map(|port| {
            self.pipeline.packet_out(port, observer.encode_probe(SwitchPort { switch, port }))
        });
        for packet in probes.chain(host_requests(fabric, switch)) {
            // A closed stream is reported by the receiving side.
            drop(self.outbound.send(OutgoingMessage::Packet(packet)).await);
        }
    }

    async fn remove_punts(mut self) -> (SwitchId, Result<(), OneShotError>) {
        let left = self.write_rows(UpdateKind::Delete).await;
        (self.switch, left)
    }

    async fn write_rows(&mut self, kind: UpdateKind) -> Result<(), OneShotError> {
        let updates: Vec<TableUpdate> =
            self.rows.iter().map(|entry| TableUpdate { kind, entry: entry.clone() }).collect();
        if updates.is_empty() {
            return Ok(());
        }
        let written = self.connection.write_updates(&updates, self.bid).await?;
        written.map_err(|error| {
            OneShotError::Client(ClientError::Call {
                call: "Write",
                code: tonic::Code::Unknown,
                message: error.to_string(),
            })
        })
    }
}

/// Whether a switch runs the program of `pipeline`; otherwise it runs none.
async fn has_program(
    switch: &dyn SwitchConnection,
    pipeline: &dyn SwitchPipeline,
) -> Result<bool, OneShotError> {
    match switch.read_program().await? {
        None => Ok(false),
        Some(running) if running.cookie == Some(pipeline.program().cookie) => Ok(true),
        Some(_) => Err(OneShotError::ForeignProgram),
    }
}
