//! The agent as it runs: counters, socket and uplink around a [`Watch`].
//!
//! One task has everything, so nothing is shared. The decision: without the controller the agent
//! does what it always does, and its reports are lost; nobody's training waits for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::telemetry as proto;
use planner::JobDocument;
use proto::report::Said as Report;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use crate::announcement::speaker;
use crate::counters::Nic;
use crate::gpus::Gpus;
use crate::said::Answer;
use crate::socket::{Socket, Visit};
use crate::uplink::{Contact, Heard, Uplink};
use crate::watch::{Limits, Owner, Watch};

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this host in the fabric document.
    pub host: String,
    /// Where processes tell of their jobs, if they can.
    pub socket: Option<PathBuf>,
    /// Jobs that do not tell of themselves; those that another host speaks for are left out.
    pub jobs: Vec<JobDocument>,
    /// NICs that a job of these has to itself; the others share all.
    pub nics: BTreeMap<String, Vec<String>>,
    /// Where counters are, `/sys`.
    pub sys: PathBuf,
    /// How much is reported.
    pub limits: Limits,
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A NIC that is not there, or no sysfs.
    #[error("NIC counters of {nic} cannot be read; interfaces are listed in {}", sys.display())]
    Nic {
        /// Its name.
        nic: String,
        /// Where it was looked for.
        sys: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The socket cannot be used.
    #[error("{} cannot be listened at", path.display())]
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Two jobs whose bytes cannot be told apart.
    #[error("jobs {0} and {1} would be watched on the same NICs; give each its own in `nics`")]
    Shared(String, String),
    /// Too many jobs.
    #[error("job {job}")]
    Job {
        /// Which.
        job: String,
        /// Why.
        #[source]
        source: crate::watch::Refused,
    },
    /// The address of the controller is none.
    #[error("`{0}` is no address of a controller; HOST:PORT is one")]
    Address(String),
    /// The token cannot be sent.
    #[error("the token has characters that no header can have")]
    Token,
    /// What TLS needs is no use.
    #[error("authorities, certificate or key cannot be used")]
    Tls(#[source] tonic::transport::Error),
}

/// Where reports go.
#[derive(Debug)]
pub enum Outlet {
    /// To a controller.
    Controller(Uplink),
    /// To whoever reads them here.
    Here(mpsc::UnboundedSender<Report>),
}

impl Outlet {
    /// To a controller. Needs a tokio runtime.
    ///
    /// # Errors
    /// As for [`Uplink::open`].
    pub fn controller(contact: &Contact) -> Result<Self, AgentError> {
        Uplink::open(contact).map(Self::Controller)
    }

    fn say(&self, report: Report) {
        let said = match self {
            Self::Controller(uplink) => uplink.say(report),
            Self::Here(reader) => reader.send(report).is_ok(),
        };
        if !said {
            debug!("a report is lost");
        }
    }

    async fn next(&mut self) -> Heard {
        match self {
            Self::Controller(uplink) => uplink.next().await,
            Self::Here(_) => std::future::pending().await,
        }
    }
}

/// What counters showed of one NIC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NicSeen {
    /// Its name.
    pub nic: String,
    /// Whether it counts RDMA.
    pub rdma: bool,
    /// Bytes sent while it was looked at.
    pub bytes: u64,
    /// Seconds of an iteration, if something repeats.
    pub period_seconds: Option<f64>,
    /// Bytes of an iteration.
    pub period_bytes: Option<f64>,
    /// How much iterations resemble each other, 1 if they are the same.
    pub clarity: Option<f64>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    watch: Watch,
    outlet: Outlet,
    socket: Option<Socket>,
    /// NICs of each job that is watched.
    watched: BTreeMap<String, Vec<Nic>>,
    gpus: Option<Gpus>,
    answers: BTreeMap<u64, mpsc::Sender<Answer>>,
    limits: Limits,
    since: Instant,
}

impl Agent {
    /// Opens what it needs. Needs a tokio runtime.
    ///
    /// # Errors
    /// Something that was asked for by name is not there. GPU counters are not: they are read where
    /// they can be.
    pub fn open(settings: Settings, outlet: Outlet) -> Result<Self, AgentError> {
        let limits = settings.limits;
        let watched = watched(&settings)?;
        let socket = settings
            .socket
            .map(|path| Socket::bind(&path).map_err(|source| AgentError::Socket { path, source }));
        let mut agent = Self {
            watch: Watch::new(limits),
            outlet,
            socket: socket.transpose()?,
            gpus: (!watched.is_empty()).then(gpus).flatten(),
            watched,
            answers: BTreeMap::new(),
            limits,
            since: Instant::now(),
        };
        for job in settings.jobs {
            let id = job.id.clone();
            if !agent.watched.contains_key(&id) {
                continue;
            }
            let observed = agent.watch.observe(job, &settings.host, 0.0);
            let report = observed.map_err(|source| AgentError::Job { job: id, source })?;
            agent.outlet.say(report);
        }
        Ok(agent)
    }

    /// Watches and reports until `stop` is ready; then its jobs end.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut samples = every(self.limits.sample_seconds);
        // A quarter of a window late is early enough.
        let mut windows = every(self.limits.window_seconds / 4.0);
        let mut read_at = self.now();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                visit = visit(&mut self.socket) => self.answer(visit),
                heard = self.outlet.next() => self.heed(heard),
                _ = samples.tick(), if !self.watched.is_empty() => {
                    self.read(&mut read_at);
                }
                _ = windows.tick() => {
                    for report in self.watch.tick(self.now()) {
                        self.outlet.say(report);
                    }
                }
            }
        }
        for report in self.watch.close() {
            self.outlet.say(report);
        }
        if let Outlet::Controller(uplink) = self.outlet {
            uplink.close().await;
        }
    }

    fn now(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    fn read(&mut self, read_at: &mut f64) {
        let now = self.now();
        for (job, nics) in &self.watched {
            let sent: std::io::Result<Vec<u64>> = nics.iter().map(Nic::sent).collect();
            match sent {
                Ok(sent) => self.watch.read(job, now, sent.iter().sum()),
                Err(error) => debug!(job, %error, "counters are not there now"),
            }
        }
        if let Some(share) = self.gpus.as_ref().and_then(Gpus::busy) {
            self.watch.busy(now - *read_at, share);
        }
        *read_at = now;
    }

    fn answer(&mut self, visit: Visit) {
        match visit {
            Visit::Came(process, answers) => {
                self.answers.insert(process, answers);
            }
            Visit::Left(process) => {
                self.answers.remove(&process);
                for report in self.watch.leave(process) {
                    self.outlet.say(report);
                }
            }
            Visit::Said(process, said) => {
                let job = job_of(&said);
                match self.watch.hear(process, said, self.now()) {
                    Ok(report) => report
                        .into_iter()
                        .for_each(|report| self.outlet.say(report)),
                    Err(refused) => {
                        let severity = "error".to_owned();
                        let text = refused.to_string();
                        self.tell(
                            process,
                            Answer {
                                job,
                                severity,
                                text,
                            },
                        );
                    }
                }
            }
        }
    }

    fn heed(&mut self, heard: Heard) {
        let remark = match heard {
            Heard::Opened => {
                for report in self.watch.announcements() {
                    self.outlet.say(report);
                }
                return;
            }
            Heard::Remark(remark) => remark,
        };
        let proto::Remark {
            job,
            severity,
            text,
        } = remark;
        match severity.as_str() {
            "info" => info!(job, "{text}"),
            _ => warn!(job, "{text}"),
        }
        if let Some(Owner::Process(process)) = self.watch.owner(&job) {
            self.tell(
                process,
                Answer {
                    job,
                    severity,
                    text,
                },
            );
        }
    }

    /// One answer too many is lost.
    fn tell(&self, process: u64, answer: Answer) {
        if let Some(answers) = self.answers.get(&process) {
            drop(answers.try_send(answer));
        }
    }
}

/// Looks at the counters of this host for some time and says what repeats in them, NIC by NIC.
///
/// # Errors
/// There is no sysfs.
pub async fn look(sys: &Path, limits: &Limits, time: Duration) -> Result<Vec<NicSeen>, AgentError> {
    let nics = all_nics(sys)?;
    let intervals = (time.as_secs_f64() / limits.sample_seconds).ceil() as usize;
    let series = crate::Series::new(limits.sample_seconds, intervals.max(1));
    let mut seen: Vec<_> = nics
        .into_iter()
        .map(|nic| (nic, series.clone(), (None, 0)))
        .collect();
    let mut samples = every(limits.sample_seconds);
    let began = Instant::now();
    while began.elapsed() < time {
        samples.tick().await;
        for (nic, series, (first, last)) in &mut seen {
            let Ok(sent) = nic.sent() else { continue };
            series.read(began.elapsed().as_secs_f64(), sent);
            first.get_or_insert(sent);
            *last = sent;
        }
    }
    let row = |(nic, series, (first, last)): (Nic, crate::Series, (Option<u64>, u64))| {
        let period = series.period();
        NicSeen {
            rdma: nic.has_rdma(),
            nic: nic.name,
            bytes: last.saturating_sub(first.unwrap_or(last)),
            period_seconds: period.map(|period| period.seconds),
            period_bytes: period.map(|period| period.bytes),
            clarity: period.map(|period| period.clarity),
        }
    };
    Ok(seen.into_iter().map(row).collect())
}

/// The NICs of every job that this host speaks for.
fn watched(settings: &Settings) -> Result<BTreeMap<String, Vec<Nic>>, AgentError> {
    let own = settings.jobs.iter();
    let own = own.filter(|job| speaker(job) == Some(settings.host.as_str()));
    let mut watched: BTreeMap<String, Vec<Nic>> = BTreeMap::new();
    for job in own {
        let nics = match settings.nics.get(&job.id) {
            Some(names) => names.iter().map(|name| nic(&settings.sys, name)).collect(),
            None => all_nics(&settings.sys),
        };
        let nics = nics?;
        let shares = |others: &&Vec<Nic>| others.iter().any(|other| nics.contains(other));
        if let Some((other, _)) = watched.iter().find(|(_, others)| shares(others)) {
            return Err(AgentError::Shared(other.clone(), job.id.clone()));
        }
        watched.insert(job.id.clone(), nics);
    }
    Ok(watched)
}

fn nic(sys: &Path, name: &str) -> Result<Nic, AgentError> {
    Nic::named(sys, name).map_err(|source| no_nic(sys, name, source))
}

fn all_nics(sys: &Path) -> Result<Vec<Nic>, AgentError> {
    Nic::all(sys).map_err(|source| no_nic(sys, "this host", source))
}

fn no_nic(sys: &Path, name: &str, source: std::io::Error) -> AgentError {
    AgentError::Nic {
        nic: name.to_owned(),
        sys: sys.join("class/net"),
        source,
    }
}

fn gpus() -> Option<Gpus> {
    match Gpus::open() {
        Ok(gpus) => {
            info!(gpus = gpus.count(), "reading GPU counters");
            Some(gpus)
        }
        Err(why) => {
            info!("{why}; computation is then the time in which nothing is sent");
            None
        }
    }
}

fn job_of(said: &crate::said::Said) -> String {
    use crate::said::Said;
    match said {
        Said::Job(job) => job.id.clone(),
        Said::Iteration(iteration) => iteration.job.clone(),
        Said::End(job) => job.clone(),
    }
}

fn every(seconds: f64) -> Interval {
    let mut ticks = interval(Duration::from_secs_f64(seconds.max(1e-3)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn visit(socket: &mut Option<Socket>) -> Visit {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}
