//! The running agent: counters, socket and report stream around a [`JobMonitor`].
//!
//! One task owns everything, so nothing is shared. The decision: without a controller the agent
//! works as usual and drops its reports, so that training never waits for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::telemetry as proto;
use planner::JobDocument;
use proto::job_report::Report;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use crate::agent_error::AgentError;
use crate::announcement::reporting_host;
use crate::communicator_jobs::CommunicatorJobs;
use crate::gpu_counters::GpuCounters;
use crate::host_levels::LevelKeeper;
use crate::host_status::HostStatusReporter;
use crate::job_monitor::{JobMonitor, JobOwner};
use crate::job_spool::{FileProblem, JobSpool, SpooledJobs};
use crate::kernel_dscp::DscpSetter;
use crate::nic_counters::NicCounters;
use crate::process_message::{ProcessMessage, ProcessReply, StartSlot};
use crate::queue_pair_reporter::{ProcessJobs, QueuePairReader, QueuePairReporter};
use crate::report_limits::ReportLimits;
use crate::report_stream::{ControllerTarget, ReportStream, ReportStreamEvent};
use crate::socket::{ProcessSocket, SocketEvent};

/// Time between two announcements of jobs that are refused.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(5);
/// Between two readings of the jobs of schedulers: a quarter of the second in which a new job is to
/// be known.
const SPOOL_SECONDS: f64 = 0.25;
/// Between two listings of queue pairs, likewise.
const QUEUE_PAIR_SECONDS: f64 = 0.25;

/// What an agent reports, and where its inputs are.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The name of this host in the fabric document.
    pub host: String,
    /// Path of the socket on which processes report their jobs, if there is one.
    pub socket: Option<PathBuf>,
    /// Jobs to observe; those that another host reports are ignored.
    pub jobs: Vec<JobDocument>,
    /// Names of the NICs that a job uses exclusively; other jobs use all NICs.
    pub nics: BTreeMap<String, Vec<String>>,
    /// Folder of the jobs that schedulers have started, if there is one.
    pub spool: Option<PathBuf>,
    /// Mount point of sysfs, `/sys`.
    pub sys: PathBuf,
    /// Intervals and limits of reports.
    pub limits: ReportLimits,
}

/// Where the agent sends its reports.
#[derive(Debug)]
pub enum ReportSink {
    /// To a controller.
    Controller(ReportStream),
    /// To a reader in this process.
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
        let is_sent = match self {
            Self::Controller(stream) => stream.send_report(report),
            Self::Local(reader) => reader.send(report).is_ok(),
        };
        if !is_sent {
            debug!("dropped a report");
        }
    }

    async fn next_event(&mut self) -> ReportStreamEvent {
        match self {
            Self::Controller(stream) => stream.next_event().await,
            Self::Local(_) => std::future::pending().await,
        }
    }
}

/// The agent of one host; see [`HostAgent::run_until`].
#[derive(Debug)]
pub struct HostAgent {
    monitor: JobMonitor,
    communicators: CommunicatorJobs,
    spool: Option<JobSpool>,
    /// What was logged of files of the spool.
    file_problems: Vec<FileProblem>,
    sink: ReportSink,
    socket: Option<ProcessSocket>,
    /// NICs of each job that is watched.
    watched_nics: BTreeMap<String, Vec<NicCounters>>,
    gpus: Option<GpuCounters>,
    queue_pairs: Option<QueuePairReporter>,
    levels: Option<LevelKeeper>,
    status: HostStatusReporter,
    /// Whether the log has that jobs are not reported.
    has_unreported: bool,
    host: String,
    replies: BTreeMap<u64, mpsc::Sender<ProcessReply>>,
    processes: ProcessJobs,
    limits: ReportLimits,
    since: Instant,
    /// When a refused job was announced again.
    announced_at: Instant,
}

impl HostAgent {
    /// Opens the NICs, the socket and the GPU counters. Needs a tokio runtime.
    ///
    /// # Errors
    /// A NIC or the socket cannot be opened, or a job cannot be observed. GPU counters are
    /// optional.
    pub fn open(settings: AgentSettings, sink: ReportSink) -> Result<Self, AgentError> {
        let limits = settings.limits;
        let watched = open_watched_nics(&settings)?;
        let socket = settings.socket.map(|path| {
            ProcessSocket::bind(&path).map_err(|source| AgentError::Socket { path, source })
        });
        let mut agent = Self {
            monitor: JobMonitor::new(limits),
            communicators: CommunicatorJobs::new(&settings.host),
            spool: settings.spool.as_deref().map(JobSpool::new),
            file_problems: Vec::new(),
            sink,
            socket: socket.transpose()?,
            gpus: (!watched.is_empty()).then(open_gpus).flatten(),
            watched_nics: watched,
            queue_pairs: None,
            levels: None,
            status: HostStatusReporter::new(&settings.host, limits.presence_seconds),
            has_unreported: false,
            host: settings.host.clone(),
            processes: ProcessJobs::default(),
            replies: BTreeMap::new(),
            limits,
            since: Instant::now(),
            announced_at: Instant::now(),
        };
        for job in settings.jobs {
            let id = job.id.clone();
            if !agent.watched_nics.contains_key(&id) {
                continue;
            }
            let observed = agent.monitor.observe_job(job, &settings.host, 0.0);
            let report = observed.map_err(|source| AgentError::Job { job: id, source })?;
            agent.sink.send_report(report);
        }
        Ok(agent)
    }

    /// The agent, which also reports the queue pairs that `reader` lists.
    #[must_use]
    pub fn with_queue_pairs(mut self, reader: QueuePairReader) -> Self {
        self.queue_pairs = Some(QueuePairReporter::new(&self.host, reader));
        self
    }

    /// The agent, which also sets the levels of jobs in what the host sends.
    #[must_use]
    pub fn with_dscp(mut self, setter: Arc<dyn DscpSetter>) -> Self {
        self.levels = Some(LevelKeeper::new(setter));
        self
    }

    /// Samples and reports until `stop` is ready, then reports the end of all jobs.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) {
        let mut samples = tick_every(self.limits.sample_seconds);
        // A window is reported at most a quarter of its length late.
        let mut windows = tick_every(self.limits.window_seconds / 4.0);
        let mut spool = tick_every(SPOOL_SECONDS);
        let mut queue_pairs = tick_every(QUEUE_PAIR_SECONDS);
        let mut read_at = self.elapsed_seconds();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                event = next_socket_event(&mut self.socket) => self.handle_socket_event(event),
                event = self.sink.next_event() => self.handle_stream_event(event),
                _ = samples.tick(), if !self.watched_nics.is_empty() => {
                    self.read_counters(&mut read_at);
                }
                _ = spool.tick(), if self.spool.is_some() => self.read_spool(),
                _ = queue_pairs.tick(), if self.queue_pairs.is_some() => self.read_queue_pairs(),
                _ = windows.tick() => {
                    for report in self.monitor.tick_windows(self.elapsed_seconds()) {
                        self.sink.send_report(report);
                    }
                    self.report_status();
                }
            }
        }
        for report in self.monitor.end_all() {
            self.sink.send_report(report);
        }
        if let Some(levels) = self.levels {
            levels.undo().await;
        }
        if let ReportSink::Controller(stream) = self.sink {
            stream.close().await;
        }
    }

    fn elapsed_seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    /// A folder that cannot be read ends no job: it may be back in a moment.
    fn read_spool(&mut self) {
        let Some(found) = self.spool.as_ref().map(JobSpool::read_jobs) else { return };
        let SpooledJobs { jobs, problems, unread } = match found {
            Ok(found) => found,
            Err(error) => return debug!(%error, "cannot read the jobs of schedulers now"),
        };
        for file in problems.iter().filter(|file| !self.file_problems.contains(file)) {
            warn!(path = %file.path.display(), "{}", file.problem);
        }
        self.file_problems = problems;
        for report in self.monitor.sync_scheduled_jobs(jobs, self.elapsed_seconds()) {
            self.sink.send_report(report);
        }
        self.monitor.set_unread_jobs(unread);
    }

    fn report_status(&mut self) {
        let (unreported, most) = (self.monitor.unreported_jobs(), self.limits.jobs);
        let now = self.elapsed_seconds();
        if (unreported > 0) != std::mem::replace(&mut self.has_unreported, unreported > 0) {
            match unreported {
                0 => info!("all jobs of this host are reported again"),
                _ => warn!(jobs = unreported, "not reported: beyond --max-jobs {most}"),
            }
        }
        self.levels.iter_mut().for_each(|levels| levels.poll_setting(now));
        let levels = self.levels.as_ref().map(LevelKeeper::status);
        if let Some(report) = self.status.due_report((unreported, most), levels, now) {
            self.sink.send_report(report);
        }
    }

    fn read_queue_pairs(&mut self) {
        let (now, jobs) = (self.elapsed_seconds(), self.processes.jobs_by_pid());
        let reporter = self.queue_pairs.as_mut();
        if let Some(report) = reporter.and_then(|reporter| reporter.poll_report(&jobs, now)) {
            self.sink.send_report(report);
        }
    }

    fn read_counters(&mut self, read_at: &mut f64) {
        let now = self.elapsed_seconds();
        for (job, nics) in &self.watched_nics {
            let sent: std::io::Result<Vec<u64>> =
                nics.iter().map(NicCounters::sent_bytes).collect();
            match sent {
                Ok(sent) => self.monitor.record_counter(job, now, sent.iter().sum()),
                Err(error) => debug!(job, %error, "cannot read the counters now"),
            }
        }
        if let Some(share) = self.gpus.as_ref().and_then(GpuCounters::busy_share) {
            self.monitor.record_gpu_busy(now - *read_at, share);
        }
        *read_at = now;
    }

    fn handle_socket_event(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Connected(process, pid, replies) => {
                self.replies.insert(process, replies);
                self.processes.add_process(process, pid);
            }
            SocketEvent::Disconnected(process) => {
                self.replies.remove(&process);
                self.processes.remove_process(process);
                self.communicators.remove_process(process);
                for report in self.monitor.remove_process(process) {
                    self.sink.send_report(report);
                }
            }
            SocketEvent::Message(process, ProcessMessage::Communicator(traffic)) => {
                self.processes.set_job(process, traffic.job.clone());
                match self.communicators.record_traffic(process, &traffic) {
                    Ok(messages) => messages
                        .into_iter()
                        .for_each(|message| self.handle_job_message(process, message)),
                    Err(error) => self.send_error(process, String::new(), &error),
                }
            }
            SocketEvent::Message(process, message) => self.handle_job_message(process, message),
        }
    }

    fn handle_job_message(&mut self, process: u64, message: ProcessMessage) {
        let job = message_job(&message);
        let is_announcement = matches!(message, ProcessMessage::Job(_));
        match self.monitor.handle_message(process, message, self.elapsed_seconds()) {
            Ok(Some(report)) => {
                self.processes.set_job(process, is_announcement.then_some(job));
                self.sink.send_report(report);
            }
            Ok(None) => {}
            Err(refusal) => self.send_error(process, job, &refusal),
        }
    }

    fn send_error(&self, process: u64, job: String, error: &dyn std::error::Error) {
        let (severity, text) = ("error".to_owned(), error.to_string());
        self.send_reply(process, ProcessReply { job, severity, text, slot: None });
    }

    fn handle_stream_event(&mut self, event: ReportStreamEvent) {
        let feedback = match event {
            ReportStreamEvent::Opened => {
                for report in self.monitor.announcements() {
                    self.sink.send_report(report);
                }
                self.queue_pairs.iter_mut().for_each(QueuePairReporter::forget_sent);
                self.status.forget_sent();
                return;
            }
            ReportStreamEvent::Feedback(feedback) => feedback,
        };
        let proto::ReportFeedback { job, severity, text, levels, slot } = feedback;
        if let Some(levels) = levels {
            self.levels.iter_mut().for_each(|keeper| keeper.want_levels(levels.clone()));
            return self.report_status();
        }
        match severity.as_str() {
            "info" => info!(job, "{text}"),
            _ => warn!(job, "{text}"),
        }
        // It may be refused for as long as an agent that ran here before has a lease of it.
        if severity == "error" && self.announced_at.elapsed() >= ANNOUNCE_AGAIN {
            self.announced_at = Instant::now();
            let is_of_job =
                |report: &Report| matches!(report, Report::Announcement(own) if own.job == job);
            for report in self.monitor.announcements().filter(is_of_job) {
                self.sink.send_report(report);
            }
        }
        if let Some(JobOwner::Process(process)) = self.monitor.owner(&job) {
            let slot = slot.map(StartSlot::from);
            self.send_reply(process, ProcessReply { job, severity, text, slot });
        }
    }

    /// Sends a reply, or drops it if the process does not read.
    fn send_reply(&self, process: u64, reply: ProcessReply) {
        if let Some(replies) = self.replies.get(&process) {
            drop(replies.try_send(reply));
        }
    }
}

/// The NICs of every job for which this host reports.
fn open_watched_nics(
    settings: &AgentSettings,
) -> Result<BTreeMap<String, Vec<NicCounters>>, AgentError> {
    let mut watched: BTreeMap<String, Vec<NicCounters>> = BTreeMap::new();
    let host = Some(settings.host.as_str());
    for job in settings.jobs.iter().filter(|job| reporting_host(job) == host) {
        let nics = match settings.nics.get(&job.id) {
            Some(names) => {
                names.iter().map(|name| open_nic(&settings.sys, name)).collect::<Result<_, _>>()?
            }
            None => open_all_nics(&settings.sys)?,
        };
        let sharing =
            watched.iter().find(|(_, others)| others.iter().any(|other| nics.contains(other)));
        if let Some((other, _)) = sharing {
            return Err(AgentError::SharedNics(other.clone(), job.id.clone()));
        }
        watched.insert(job.id.clone(), nics);
    }
    Ok(watched)
}

fn open_nic(sys: &Path, name: &str) -> Result<NicCounters, AgentError> {
    NicCounters::open_interface(sys, name).map_err(|source| nic_error(sys, name, source))
}

pub(crate) fn open_all_nics(sys: &Path) -> Result<Vec<NicCounters>, AgentError> {
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

fn message_job(message: &ProcessMessage) -> String {
    match message {
        ProcessMessage::Job(job) => job.id.clone(),
        ProcessMessage::Iteration(iteration) => iteration.job.clone(),
        ProcessMessage::End(job) => job.clone(),
        ProcessMessage::Communicator(traffic) => traffic.job.clone().unwrap_or_default(),
    }
}

pub(crate) fn tick_every(seconds: f64) -> Interval {
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
