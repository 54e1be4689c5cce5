//! The task that has the [`Census`], and the way to it.
//!
//! Streams put reports into a bounded queue; whoever reports faster than its share is read no
//! faster than that, so its own connection fills up and nobody else's. The decision: what changed
//! is submitted whole and one at a time. While the controller plans, the census goes on, and what
//! it knows then is the next submission; there is no queue of changes that could grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::{Fabric, Finding, Severity};
use tracing::{info, warn};

use super::gauges::Measured;
use super::{Census, Remark, Report, Reporter};
use crate::config::{Config, Telemetry};
use crate::lower::Wiring;
use crate::runtime::{Access, ControllerError};
use crate::state::{Event, Realise};

/// What streams say to the desk.
#[derive(Debug)]
pub(crate) enum Call {
    /// A stream begins; remarks go there, and one too many is lost.
    Opened(Reporter, mpsc::Sender<Remark>),
    /// It says something.
    Said(Reporter, Report),
    /// It has ended.
    Closed(Reporter),
}

/// The task.
pub(crate) struct Desk {
    access: Access,
    limits: Telemetry,
    calls: mpsc::Receiver<Call>,
    census: Census,
    realised: watch::Receiver<Option<Realise>>,
    streams: BTreeMap<Reporter, mpsc::Sender<Remark>>,
    /// The fabric that the census speaks of.
    settled: Option<(Arc<Wiring>, Fabric)>,
    /// What switches count, and where differences from what jobs say are shown.
    measured: watch::Receiver<Arc<Measured>>,
    disputes: watch::Sender<Vec<Finding>>,
    disagree_min: f64,
    /// A change that the controller is planning for.
    submitted: Option<JoinHandle<Result<(), ControllerError>>>,
    /// Since when there is a change that is not submitted.
    changed: Option<Instant>,
}

impl Desk {
    /// A desk that tells `access` and compares with what is `measured`, and where to call it.
    pub(crate) fn new(
        access: Access,
        config: &Config,
        measured: watch::Receiver<Arc<Measured>>,
    ) -> (Self, mpsc::Sender<Call>) {
        let limits = &config.telemetry;
        let (to_desk, calls) = mpsc::channel(limits.queue.get());
        let desk = Self {
            realised: access.watch_realised(),
            access,
            calls,
            census: Census::new(limits.clone()),
            limits: limits.clone(),
            streams: BTreeMap::new(),
            settled: None,
            measured,
            disputes: watch::Sender::default(),
            disagree_min: config.counters.disagree_min,
            submitted: None,
            changed: None,
        };
        (desk, to_desk)
    }

    /// Where what jobs say differs from what switches count.
    pub(crate) fn disputes(&self) -> watch::Receiver<Vec<Finding>> {
        self.disputes.subscribe()
    }

    /// Serves until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        // An error means that the controller has stopped.
        drop(stop.run_until_cancelled(self.serve()).await);
    }

    async fn serve(&mut self) -> Result<(), ControllerError> {
        let mut ticks = interval(self.limits.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut mandate = self.access.mandate();
        self.recall().await?;
        loop {
            let submitted = &mut self.submitted;
            tokio::select! {
                biased;
                done = planned(submitted), if submitted.is_some() => {
                    self.submitted = None;
                    done?;
                }
                _ = ticks.tick() => {
                    let remarks = self.census.tick(Instant::now());
                    self.tell(remarks);
                    self.compare();
                }
                changed = has_changed(&mut mandate) => {
                    changed?;
                    self.recall().await?;
                }
                call = self.calls.recv() => self.answer(call.ok_or(ControllerError::Stopped)?),
            }
            self.submit();
        }
    }

    /// Takes up the jobs that the controller was told of before, by another desk or another run.
    async fn recall(&mut self) -> Result<(), ControllerError> {
        let told = self.access.look(|state| state.told().clone()).await?;
        self.settle();
        if let Some((_, fabric)) = &self.settled {
            self.census.recall(&told, fabric, Instant::now());
        }
        Ok(())
    }

    fn answer(&mut self, call: Call) {
        match call {
            Call::Opened(reporter, remarks) => {
                self.streams.insert(reporter, remarks);
            }
            Call::Closed(reporter) => {
                self.streams.remove(&reporter);
                self.census.close(reporter);
            }
            Call::Said(reporter, report) => {
                self.settle();
                // Before the first plan there is no fabric to speak of; who reports, reports again.
                let Some((_, fabric)) = &self.settled else {
                    return;
                };
                let remark = self.census.hear(reporter, report, fabric, Instant::now());
                self.tell(remark);
            }
        }
    }

    /// Settles the census on the fabric in force, if that is another than it was. What fails or is
    /// drained in a fabric makes no other of it.
    fn settle(&mut self) {
        if self.settled.is_some() && !self.realised.has_changed().unwrap_or(false) {
            return;
        }
        let realised = self.realised.borrow_and_update().clone();
        let Some(Realise { wiring, fabric, .. }) = realised else {
            return;
        };
        let settled = self.settled.as_ref();
        if settled.is_some_and(|(settled, _)| Arc::ptr_eq(settled, &wiring)) {
            return;
        }
        let remarks = self.census.settle_on(&fabric);
        if self.settled.replace((wiring, fabric)).is_some() {
            self.tell(remarks);
        }
    }

    /// Gives the controller what has changed, unless it is still planning for what did before.
    fn submit(&mut self) {
        if self.census.take_change() {
            self.changed.get_or_insert_with(Instant::now);
        }
        if self.submitted.is_some() {
            return;
        }
        let Some(heard) = self.changed.take() else {
            return;
        };
        let (access, told) = (self.access.clone(), self.census.told());
        self.submitted = Some(tokio::spawn(async move {
            let submitted = access.submit_heard(Event::JobsTold(told), heard);
            submitted.await.map(drop)
        }));
    }

    /// Compares what jobs say with what switches count, whenever that is known anew; whoever says
    /// something else hears of it once.
    fn compare(&mut self) {
        if !self.measured.has_changed().unwrap_or(false) {
            return;
        }
        let measured = Arc::clone(&self.measured.borrow_and_update());
        let disputes = measured.disputes(&self.census.claims(), self.disagree_min);
        let findings: Vec<Finding> = disputes
            .iter()
            .map(|(_, finding)| finding.clone())
            .collect();
        let before = self.disputes.send_replace(findings);
        let is_new = |finding: &Finding| !before.contains(finding);
        let news = disputes.into_iter().filter(|(_, finding)| is_new(finding));
        let remarks = news.filter_map(|(job, finding)| self.census.address(&job, finding));
        let remarks: Vec<Remark> = remarks.collect();
        self.tell(remarks);
    }

    fn tell(&mut self, remarks: impl IntoIterator<Item = Remark>) {
        for remark in remarks {
            if self.census.is_news(&remark) {
                log(&remark);
            }
            let stream = remark.to.and_then(|reporter| self.streams.get(&reporter));
            if let Some(stream) = stream {
                drop(stream.try_send(remark));
            }
        }
    }
}

async fn planned(
    submitted: &mut Option<JoinHandle<Result<(), ControllerError>>>,
) -> Result<(), ControllerError> {
    let task = submitted.as_mut().expect("asked only if there is one");
    task.await.unwrap_or(Err(ControllerError::Stopped))
}

async fn has_changed<T>(watched: &mut watch::Receiver<T>) -> Result<(), ControllerError> {
    watched
        .changed()
        .await
        .map_err(|_| ControllerError::Stopped)
}

fn log(remark: &Remark) {
    let text = &remark.finding.text;
    match remark.finding.severity {
        Severity::Info => info!(job = remark.job, "{text}"),
        Severity::Warning | Severity::Error => warn!(job = remark.job, "{text}"),
    }
}
