//! Discovery once, of a fabric that no controller runs: take part, probe, leave.
//!
//! Beside a running controller this finds nothing, because a switch takes packets from its primary
//! alone; then the `scout` knows. The decision: a survey leaves switches as they were. It adds the
//! rows that bring probes and ARP to it and takes them away again, and it runs a program only on a
//! switch that has none.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::{BoxStream, select_all};
use p4::fabric::table;
use p4::{Extent, Pipeline, TableEntry, Update, UpdateKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use topology::{Fabric, Finding, SwitchId};

use super::probe::Key;
use super::scout::{packet, ports, questions};
use super::{End, Observer, Sight};
use crate::config::{self, Config};
use crate::lower::punts;
use crate::southbound::arbitration::{Arbitration, Input, Output, Standing};
use crate::southbound::connection::{Connection, Entries, Heard, Network, Say};
use crate::southbound::{ClientError, Target, chain};

/// Probes from each port: enough that some may be lost.
const ROUNDS: u32 = 5;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// What was seen when it ended.
    pub sight: Sight,
    /// The switches that took part.
    pub switches: Vec<SwitchId>,
    /// Why the others did not.
    pub findings: Vec<Finding>,
}

/// Why a switch did not take part.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// It cannot be reached, or a call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not say who its primary is.
    #[error("it did not answer the bid for mastership")]
    NoVerdict,
    /// A controller runs it.
    #[error("another controller is its primary; ask that one what it sees")]
    Led,
    /// It runs something else.
    #[error("it runs another program than the controller's")]
    Program,
}

/// A switch that takes part.
struct Post<C> {
    switch: SwitchId,
    connection: C,
    say: mpsc::Sender<Say>,
    hear: BoxStream<'static, Result<Heard, ClientError>>,
    arbitration: Arbitration,
    /// The rows that were added.
    rows: Vec<TableEntry>,
}

/// Looks at the switches of `fabric`, whether it knows their cables or not, for so long.
pub async fn survey<N: Network>(
    network: &N,
    fabric: &Fabric,
    config: &Config,
    lasts: Duration,
) -> Survey {
    let targets = Target::all(fabric);
    let entering = targets
        .iter()
        .map(|target| Post::enter(network, target, config));
    let mut posts = Vec::new();
    let mut findings = Vec::new();
    for (target, entered) in targets.iter().zip(join_all(entering).await) {
        match entered {
            Ok(post) => posts.push(post),
            Err(error) => findings.push(Finding::error(&target.name, chain(&error))),
        }
    }
    let sight = watch(&mut posts, fabric, &config.discovery, lasts).await;
    let switches = posts.iter().map(|post| post.switch).collect();
    for (post, left) in join_all(posts.into_iter().map(Post::leave)).await {
        if let Err(error) = left {
            let text = format!("the rows of the survey are still there: {}", chain(&error));
            findings.push(Finding::error(&fabric.switch(post).name, text));
        }
    }
    Survey {
        sight,
        switches,
        findings,
    }
}

/// Rounds of probes, until the time is over.
async fn watch<C: Connection>(
    posts: &mut [Post<C>],
    fabric: &Fabric,
    limits: &config::Discovery,
    lasts: Duration,
) -> Sight {
    // What is heard at all counts until the end.
    let mut observer = Observer::new(Key::random(), 2 * lasts);
    let hears = posts.iter_mut().map(|post| {
        let (switch, hear) = (post.switch, std::mem::replace(&mut post.hear, silence()));
        hear.map(move |heard| (switch, heard)).boxed()
    });
    let mut heard = select_all(hears);
    let mut ticks = interval(lasts / ROUNDS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        tokio::select! {
            biased;
            Some((switch, heard)) = heard.next() => {
                if let Ok(Heard::Packet(packet)) = heard {
                    let port = packet.ingress_port.number();
                    observer.hear(End { switch, port }, &packet.payload, Instant::now());
                }
            }
            _ = ticks.tick() => {
                observer.begin_round();
                for post in posts.iter() {
                    post.probe(&observer, fabric, limits).await;
                }
            }
        }
    }
    observer.sight(Instant::now())
}

fn silence() -> BoxStream<'static, Result<Heard, ClientError>> {
    futures::stream::pending().boxed()
}

impl<C: Connection> Post<C> {
    async fn enter<N: Network<Connection = C>>(
        network: &N,
        target: &Target,
        config: &Config,
    ) -> Result<Self, SurveyError> {
        let limits = &config.southbound;
        let connection = network.connect(&target.address, limits).await?;
        let mut arbitration = Arbitration::new(config.controller, config.term);
        let Output::Bid(bid) = arbitration.step(Input::Opened) else {
            return Err(SurveyError::NoVerdict);
        };
        let conversation = connection.open(bid).await?;
        let mut post = Self {
            switch: target.switch,
            connection,
            say: conversation.say,
            hear: conversation.hear,
            arbitration,
            rows: Vec::new(),
        };
        let won = timeout(limits.rpc_deadline, post.win()).await;
        won.map_err(|_| post.not_won())??;
        post.prepare().await?;
        Ok(post)
    }

    /// Why it has not become primary in time.
    fn not_won(&self) -> SurveyError {
        match self.arbitration.standing() {
            Standing::Backup { .. } => SurveyError::Led,
            _ => SurveyError::NoVerdict,
        }
    }

    /// Becomes primary where nobody is. A switch may not have noticed yet that its last one has
    /// left, and will say so.
    async fn win(&mut self) -> Result<(), SurveyError> {
        loop {
            let verdict = match self.hear.next().await.ok_or(SurveyError::NoVerdict)?? {
                Heard::Verdict(verdict) => verdict,
                _ => continue,
            };
            self.arbitration.step(Input::Told(verdict));
            let above = match self.arbitration.standing() {
                Standing::Primary { .. } => return Ok(()),
                Standing::Vacant { highest } => highest.term().saturating_add(1),
                _ => continue,
            };
            if let Output::Bid(bid) = self.arbitration.step(Input::Term(above)) {
                let said = self.say.send(Say::Bid(bid)).await;
                said.map_err(|_| SurveyError::NoVerdict)?;
            }
        }
    }

    /// Adds what brings probes here.
    async fn prepare(&mut self) -> Result<(), SurveyError> {
        let pipeline = Pipeline::fabric();
        let Standing::Primary { election } = self.arbitration.standing() else {
            return Err(SurveyError::Led);
        };
        match self.connection.cookie().await? {
            Some(cookie) if cookie == pipeline.cookie => {}
            Some(_) => return Err(SurveyError::Program),
            None => {
                let pushing = self.connection.push(&pipeline, election, Entries::Dropped);
                pushing.await?;
            }
        }
        let asked = Extent::of_tables(BTreeSet::from([table::ACL_PUNT]));
        let held = self.connection.tables(&pipeline, &asked).await?;
        let rows = punts().into_iter().map(TableEntry::signed);
        self.rows = rows.filter(|row| held.get(&row.key).is_none()).collect();
        self.write(UpdateKind::Insert).await
    }

    async fn probe(&self, observer: &Observer, fabric: &Fabric, limits: &config::Discovery) {
        let mut all = ports(fabric, self.switch);
        all.extend(0..limits.ports);
        let switch = self.switch;
        let probes = all.into_iter();
        let probes = probes.filter_map(|port| packet(port, observer.probe(End { switch, port })));
        for packet in probes.chain(questions(fabric, switch)) {
            // A stream that ended says so where it is heard.
            drop(self.say.send(Say::Packet(packet)).await);
        }
    }

    async fn leave(mut self) -> (SwitchId, Result<(), SurveyError>) {
        let left = self.write(UpdateKind::Delete).await;
        (self.switch, left)
    }

    async fn write(&mut self, kind: UpdateKind) -> Result<(), SurveyError> {
        let Standing::Primary { election } = self.arbitration.standing() else {
            return Err(SurveyError::Led);
        };
        let update = |entry: &TableEntry| Update {
            kind,
            entry: entry.clone(),
        };
        let updates: Vec<Update> = self.rows.iter().map(update).collect();
        if updates.is_empty() {
            return Ok(());
        }
        let written = self.connection.write(&updates, election).await?;
        written.map_err(|error| {
            SurveyError::Client(ClientError::Call {
                call: "Write",
                code: tonic::Code::Unknown,
                message: error.to_string(),
            })
        })
    }
}
