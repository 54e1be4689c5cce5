//! The agent as it runs: counters, socket and uplink around a [`JobMonitor`].
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

use crate::announcement::reporting_host;
use crate::gpu_counters::GpuCounters;
use crate::job_monitor::{JobMonitor, JobOwner, ReportLimits};
use crate::nic_counters::NicCounters;
use crate::process_message::ProcessReply;
use crate::report_stream::{ControllerTarget, ReportStream, ReportStreamEvent};
use crate::socket::{ProcessSocket, SocketEvent};

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct AgentSettings {
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
    pub limits: ReportLimits,
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
    SharedNics(String, String),
    /// Too many jobs.
    #[error("job {job}")]
    Job {
        /// Which.
        job: String,
        /// Why.
        #[source]
        source: crate::job_monitor::ReportRefusal,
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
pub enum ReportSink {
    /// To a controller.
    Controller(ReportStream),
    /// To whoever reads them here.
    Local(mpsc::UnboundedSender<Report>),
}

impl ReportSink {
    /// To a controller. Needs a tokio runtime.
    ///
    /// # Errors
    /// As for [`ReportStream::open`].
    pub fn for_controller(contact: &ControllerTarget) -> Result<Self, AgentError> {
        ReportStream::open(contact).map(Self::Controller)
    }

    fn send_report(&self, report: Report) {
        let said = match self {
            Self::Controller(uplink) => uplink.send_report(report),
            Self::Local(reader) => reader.send(report).is_ok(),
        };
        if !said {
            debug!("a report is lost");
        }
    }

    async fn next_event(&mut self) -> ReportStreamEvent {
        match self {
            Self::Controller(uplink) => uplink.next_event().await,
            Self::Local(_) => std::future::pending().await,
        }
    }
}

/// What counters showed of one NIC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NicObservation {
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
pub struct HostAgent {
    watch: JobMonitor,
    outlet: ReportSink,
    socket: Option<ProcessSocket>,
    /// NICs of each job that is watched.
    watched_nics: BTreeMap<String, Vec<NicCounters>>,
    gpus: Option<GpuCounters>,
    replies: BTreeMap<u64, mpsc::Sender<ProcessReply>>,
    limits: ReportLimits,
    since: Instant,
}

impl HostAgent {
    /// Opens what it needs. Needs a tokio runtime.
    ///
    /// # Errors
    /// Something that was asked for by name is not there. GPU counters are not: they are read where
    /// they can be.
    pub fn open(settings: AgentSettings, outlet: ReportSink) -> Result<Self, AgentError> {
        let limits = settings.limits;
        let watched = open_watched_nics(&settings)?;
        let socket = settings.socket.map(|path| {
            ProcessSocket::bind(&path).map_err(|source| AgentError::Socket { path, source })
        });
        let mut agent = Self {
            watch: JobMonitor::new(limits),
            outlet,
            socket: socket.transpose()?,
            gpus: (!watched.is_empty()).then(open_gpus).flatten(),
            watched_nics: watched,
            replies: BTreeMap::new(),
            limits,
            since: Instant::now(),
        };
        for job in settings.jobs {
            let id = job.id.clone();
            if !agent.watched_nics.contains_key(&id) {
                continue;
            }
            let observed = agent.watch.observe_job(job, &settings.host, 0.0);
            let report = observed.map_err(|source| AgentError::Job { job: id, source })?;
            agent.outlet.send_report(report);
        }
        Ok(agent)
    }

    /// Watches and reports until `stop` is ready; then its jobs end.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) {
        let mut samples = tick_every(self.limits.sample_seconds);
        // A quarter of a window late is early enough.
        let mut windows = tick_every(self.limits.window_seconds / 4.0);
        let mut read_at = self.elapsed_seconds();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                visit = next_socket_event(&mut self.socket) => self.handle_socket_event(visit),
                heard = self.outlet.next_event() => self.handle_stream_event(heard),
                _ = samples.tick(), if !self.watched_nics.is_empty() => {
                    self.read_counters(&mut read_at);
                }
                _ = windows.tick() => {
                    for report in self.watch.tick_windows(self.elapsed_seconds()) {
                        self.outlet.send_report(report);
                    }
                }
            }
        }
        for report in self.watch.end_all() {
            self.outlet.send_report(report);
        }
        if let ReportSink::Controller(uplink) = self.outlet {
            uplink.close().await;
        }
    }

    fn elapsed_seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    fn read_counters(&mut self, read_at: &mut f64) {
        let now = self.elapsed_seconds();
        for (job, nics) in &self.watched_nics {
            let sent: std::io::Result<Vec<u64>> =
                nics.iter().map(NicCounters::sent_bytes).collect();
            match sent {
                Ok(sent) => self.watch.record_counter(job, now, sent.iter().sum()),
                Err(error) => debug!(job, %error, "counters are not there now"),
            }
        }
        if let Some(share) = self.gpus.as_ref().and_then(GpuCounters::busy_share) {
            self.watch.record_gpu_busy(now - *read_at, share);
        }
        *read_at = now;
    }

    fn handle_socket_event(&mut self, visit: SocketEvent) {
        match visit {
            SocketEvent::Connected(process, answers) => {
                self.replies.insert(process, answers);
            }
            SocketEvent::Disconnected(process) => {
                self.replies.remove(&process);
                for report in self.watch.remove_process(process) {
                    self.outlet.send_report(report);
                }
            }
            SocketEvent::Message(process, said) => {
                let job = message_job(&said);
                match self.watch.handle_message(process, said, self.elapsed_seconds()) {
                    Ok(report) => {
                        report.into_iter().for_each(|report| self.outlet.send_report(report))
                    }
                    Err(refused) => {
                        let severity = "error".to_owned();
                        let text = refused.to_string();
                        self.send_reply(process, ProcessReply { job, severity, text });
                    }
                }
            }
        }
    }

    fn handle_stream_event(&mut self, heard: ReportStreamEvent) {
        let remark = match heard {
            ReportStreamEvent::Opened => {
                for report in self.watch.announcements() {
                    self.outlet.send_report(report);
                }
                return;
            }
            ReportStreamEvent::Feedback(remark) => remark,
        };
        let proto::Remark { job, severity, text } = remark;
        match severity.as_str() {
            "info" => info!(job, "{text}"),
            _ => warn!(job, "{text}"),
        }
        if let Some(JobOwner::Process(process)) = self.watch.owner(&job) {
            self.send_reply(process, ProcessReply { job, severity, text });
        }
    }

    /// One answer too many is lost.
    fn send_reply(&self, process: u64, answer: ProcessReply) {
        if let Some(answers) = self.replies.get(&process) {
            drop(answers.try_send(answer));
        }
    }
}

/// Looks at the counters of this host for some time and says what repeats in them, NIC by NIC.
///
/// # Errors
/// There is no sysfs.
pub async fn observe_nics(
    sys: &Path,
    limits: &ReportLimits,
    time: Duration,
) -> Result<Vec<NicObservation>, AgentError> {
    let nics = open_all_nics(sys)?;
    let intervals = (time.as_secs_f64() / limits.sample_seconds).ceil() as usize;
    let series = crate::ByteSeries::new(limits.sample_seconds, intervals.max(1));
    let mut seen: Vec<_> = nics.into_iter().map(|nic| (nic, series.clone(), (None, 0))).collect();
    let mut samples = tick_every(limits.sample_seconds);
    let began = Instant::now();
    while began.elapsed() < time {
        samples.tick().await;
        for (nic, series, (first, last)) in &mut seen {
            let Ok(sent) = nic.sent_bytes() else { continue };
            series.record_counter(began.elapsed().as_secs_f64(), sent);
            first.get_or_insert(sent);
            *last = sent;
        }
    }
    let row =
        |(nic, series, (first, last)): (NicCounters, crate::ByteSeries, (Option<u64>, u64))| {
            let period = series.period();
            NicObservation {
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
fn open_watched_nics(
    settings: &AgentSettings,
) -> Result<BTreeMap<String, Vec<NicCounters>>, AgentError> {
    let own = settings.jobs.iter();
    let own = own.filter(|job| reporting_host(job) == Some(settings.host.as_str()));
    let mut watched: BTreeMap<String, Vec<NicCounters>> = BTreeMap::new();
    for job in own {
        let nics = match settings.nics.get(&job.id) {
            Some(names) => names.iter().map(|name| open_nic(&settings.sys, name)).collect(),
            None => open_all_nics(&settings.sys),
        };
        let nics = nics?;
        let shares = |others: &&Vec<NicCounters>| others.iter().any(|other| nics.contains(other));
        if let Some((other, _)) = watched.iter().find(|(_, others)| shares(others)) {
            return Err(AgentError::SharedNics(other.clone(), job.id.clone()));
        }
        watched.insert(job.id.clone(), nics);
    }
    Ok(watched)
}

fn open_nic(sys: &Path, name: &str) -> Result<NicCounters, AgentError> {
    NicCounters::open_interface(sys, name).map_err(|source| nic_error(sys, name, source))
}

fn open_all_nics(sys: &Path) -> Result<Vec<NicCounters>, AgentError> {
    NicCounters::open_all(sys).map_err(|source| nic_error(sys, "this host", source))
}

fn nic_error(sys: &Path, name: &str, source: std::io::Error) -> AgentError {
    AgentError::Nic { nic: name.to_owned(), sys: sys.join("class/net"), source }
}

fn open_gpus() -> Option<GpuCounters> {
    match GpuCounters::open() {
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

fn message_job(said: &crate::process_message::ProcessMessage) -> String {
    use crate::process_message::ProcessMessage;
    match said {
        ProcessMessage::Job(job) => job.id.clone(),
        ProcessMessage::Iteration(iteration) => iteration.job.clone(),
        ProcessMessage::End(job) => job.clone(),
    }
}

fn tick_every(seconds: f64) -> Interval {
    let mut ticks = interval(Duration::from_secs_f64(seconds.max(1e-3)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn next_socket_event(socket: &mut Option<ProcessSocket>) -> SocketEvent {
    match socket {
        Some(socket) => socket.next_event().await,
        None => std::future::pending().await,
    }
}
