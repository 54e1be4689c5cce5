//! Clients of the controllers that are hostile: floods of previews, and reporters that lie.
//!
//! Both call what serves clients over the network, [`NorthboundService`] and
//! [`ReportedJobRegistry`]. The decision: what must be refused is known from the kind of attack, so
//! a run is judged by every answer, and not only by its end.

use api::telemetry as proto;
use controller::northbound::service::{
    DocumentFile, NorthboundService, PreviewPolicyRequest, ServiceError,
};
use controller::telemetry::{
    JobReport, ReportedJobRegistry, ReporterId, ReporterIdentity, ReporterScope, TelemetryReport,
};
use controller::{Config, ControllerAccess, ReportedJobs};
use futures::future::join_all;
use planner::{JobId, JobsDocument};
use tokio::time::Instant;
use topology::{Fabric, Severity};

use super::planted_bug::PlantedBug;

/// Previews that a hostile client asks for at once.
const CALLS: usize = 16;
/// The name of the job of the honest reporter.
pub(super) const HONEST_JOB: &str = "honest";

/// Documents that a hostile client has previewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreviewFlood {
    /// Valid ones.
    Valid,
    /// YAML of 100,000 levels.
    NestedYaml,
    /// JSON of 100,000 levels.
    NestedJson,
    /// TOML of a megabyte.
    Large,
}

impl PreviewFlood {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Valid, Self::NestedYaml, Self::NestedJson, Self::Large];

    fn request(self) -> PreviewPolicyRequest {
        let (file, text) = match self {
            Self::Valid => ("p.toml", "fairness = 0.5".to_owned()),
            Self::NestedYaml => ("p.yaml", "[".repeat(100_000)),
            Self::NestedJson => ("p.json", "[".repeat(100_000)),
            Self::Large => ("p.toml", "# comment\n".repeat(100_000)),
        };
        let policy = Some(DocumentFile { file: file.to_owned(), text });
        PreviewPolicyRequest { policy, ..PreviewPolicyRequest::default() }
    }

    /// Asks for many previews at once, and checks how many were admitted and what was answered.
    pub(super) async fn send_requests(
        self,
        access: ControllerAccess,
        config: Config,
        planted_bug: PlantedBug,
    ) -> Result<(), String> {
        let request = self.request();
        let shared = NorthboundService::new(access.clone(), &config);
        let calls = (0..CALLS).map(|_| {
            let service = match planted_bug {
                PlantedBug::PreviewsWithoutQueue => NorthboundService::new(access.clone(), &config),
                _ => shared.clone(),
            };
            let request = &request;
            async move { service.preview_policy(request).await }
        });
        // Each takes its place in the queue when it is first polled, before any of them waits.
        let answers = join_all(calls).await;
        let is_turned_away = |error: &ServiceError| {
            matches!(error, ServiceError::Overloaded(_) | ServiceError::TooMany(_))
        };
        let admitted =
            answers.iter().filter(|answer| !answer.as_ref().is_err_and(is_turned_away)).count();
        let limits = &config.northbound.limits;
        let most = limits.planning_threads.get() + limits.planning_queue.get();
        if admitted > most {
            return Err(format!("{admitted} of {CALLS} previews were admitted at once"));
        }
        match self != Self::Valid && answers.iter().any(Result::is_ok) {
            true => Err(format!("a document of {self:?} was accepted")),
            false => Ok(()),
        }
    }
}

/// What a hostile reporter sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FalseReport {
    /// A job with a name of a megabyte.
    HugeName,
    /// A job of hosts that are not the reporter's.
    ForeignHosts,
    /// More work than any GPU does.
    ImpossibleWork,
    /// The job of another reporter.
    TakenName,
    /// A connection of another reporter's job.
    TakenConnection,
    /// Windows of the job of another reporter.
    ForeignWindow,
    /// The end of the job of another reporter.
    ForeignEnd,
    /// Nothing, on a stream that stays open.
    HalfOpen,
}

impl FalseReport {
    /// All of them.
    pub(super) const ALL: [Self; 8] = [
        Self::HugeName,
        Self::ForeignHosts,
        Self::ImpossibleWork,
        Self::TakenName,
        Self::TakenConnection,
        Self::ForeignWindow,
        Self::ForeignEnd,
        Self::HalfOpen,
    ];

    /// The message, in its wire format.
    fn message(self) -> Option<proto::JobReport> {
        use proto::job_report::Report;
        let plain = announcement("false", 62_000);
        let honest = HONEST_JOB.to_owned();
        let report = match self {
            Self::HugeName => {
                Report::Announcement(proto::JobAnnouncement { job: "x".repeat(1 << 20), ..plain })
            }
            Self::ForeignHosts => {
                let gpus = [("h2".to_owned(), 1), ("h4".to_owned(), 1)].into();
                Report::Announcement(proto::JobAnnouncement { gpus, ..plain })
            }
            Self::ImpossibleWork => Report::Announcement(proto::JobAnnouncement {
                flop_per_iteration: Some(1e30),
                compute_seconds: Some(1e-9),
                ..plain
            }),
            Self::TakenName => {
                Report::Announcement(proto::JobAnnouncement { job: honest, ..plain })
            }
            Self::TakenConnection => Report::Announcement(announcement("false", HONEST_PORT)),
            Self::ForeignWindow => Report::Window(proto::JobWindow {
                job: honest,
                seconds: 1.0,
                flop: 1e12,
                ..Default::default()
            }),
            Self::ForeignEnd => Report::End(proto::JobEnd { job: honest }),
            Self::HalfOpen => return None,
        };
        Some(proto::JobReport { report: Some(report) })
    }
}

/// The port of the honest job.
const HONEST_PORT: u32 = 61_000;
/// The stream of the honest reporter; those of hostile ones come after it.
const HONEST_STREAM: ReporterId = ReporterId(1);

/// The reported jobs of a testbed, with an honest reporter among hostile ones.
pub(super) struct ReporterGroup {
    registry: ReportedJobRegistry,
    fabric: Fabric,
    streams: u64,
    /// Jobs that a controller which checks nothing takes over.
    assumed: ReportedJobs,
}

impl ReporterGroup {
    /// A group in which the honest reporter has announced its job.
    pub(super) fn open(fabric: Fabric, config: &Config) -> Result<Self, String> {
        let mut registry = ReportedJobRegistry::new(config.telemetry);
        registry.open_stream(HONEST_STREAM, identity("ada"));
        let mut reporters = Self { registry, fabric, streams: 1, assumed: ReportedJobs::default() };
        let report = proto::job_report::Report::Announcement(announcement(HONEST_JOB, HONEST_PORT));
        let honest = proto::JobReport { report: Some(report) };
        match reporters.handle_report(HONEST_STREAM, honest, &ReporterScope::default()) {
            Ok(()) => Ok(reporters),
            Err(why) => Err(format!("the honest reporter is refused: {why}")),
        }
    }

    /// The honest reporter ends its job.
    pub(super) fn close(&mut self) {
        let end = JobReport::End(HONEST_JOB.to_owned());
        self.registry.ingest_report(HONEST_STREAM, end, &self.fabric, Instant::now());
        self.assumed = ReportedJobs::default();
    }

    /// A hostile reporter sends its report on a stream of its own, which stays open.
    pub(super) fn receive_false(
        &mut self,
        report: FalseReport,
        planted_bug: PlantedBug,
    ) -> Result<(), String> {
        self.streams += 1;
        let stream = ReporterId(self.streams);
        self.registry.open_stream(stream, identity("eve"));
        let Some(message) = report.message() else {
            return Ok(());
        };
        if planted_bug == PlantedBug::BelievesReporters {
            self.assume_report(message);
            return Ok(());
        }
        let hosts = vec!["h1".to_owned(), "h3".to_owned()];
        let scope = ReporterScope { hosts, ..ReporterScope::default() };
        match self.handle_report(stream, message, &scope) {
            Ok(()) => Err(format!("a report of {report:?} was accepted")),
            Err(_) => Ok(()),
        }
    }

    /// What a stream does with a report, from its decoding to the registry.
    fn handle_report(
        &mut self,
        stream: ReporterId,
        message: proto::JobReport,
        scope: &ReporterScope,
    ) -> Result<(), String> {
        let report = TelemetryReport::try_from(message).map_err(|error| error.to_string())?;
        let TelemetryReport::Job(report) = report else {
            return Err("no report of a job".to_owned());
        };
        if let JobReport::Announcement(job) = &report {
            scope.check_job(job)?;
        }
        let feedback = self.registry.ingest_report(stream, report, &self.fabric, Instant::now());
        match feedback.map(|feedback| feedback.finding) {
            Some(finding) if finding.severity == Severity::Error => Err(finding.text),
            _ => Ok(()),
        }
    }

    /// Takes over the job of an announcement as it is.
    fn assume_report(&mut self, message: proto::JobReport) {
        let report = TelemetryReport::try_from(message);
        let Ok(TelemetryReport::Job(JobReport::Announcement(job))) = report else {
            return;
        };
        let document = JobsDocument { jobs: vec![*job] };
        if let Ok(resolved) = document.resolve_jobs(&self.fabric, "report") {
            self.assumed.jobs = resolved.jobs;
        }
    }

    /// The reported jobs as the controllers receive them.
    pub(super) fn reported_jobs(&self) -> ReportedJobs {
        let mut reported = self.registry.reported_jobs();
        let known: Vec<JobId> = reported.jobs.iter().map(|job| job.id.clone()).collect();
        let assumed = self.assumed.jobs.iter().filter(|job| !known.contains(&job.id));
        reported.jobs.extend(assumed.cloned());
        reported
    }
}

fn identity(caller: &str) -> ReporterIdentity {
    ReporterIdentity { caller: Some(caller.into()), ..ReporterIdentity::default() }
}

/// The announcement of a job that is complete and possible.
fn announcement(name: &str, port: u32) -> proto::JobAnnouncement {
    let flow = proto::JobFlow {
        src: "h1".to_owned(),
        dst: "h3".to_owned(),
        bytes: 1e9,
        udp_src_port: Some(port),
        ..Default::default()
    };
    proto::JobAnnouncement {
        job: name.to_owned(),
        gpus: [("h1".to_owned(), 1), ("h3".to_owned(), 1)].into(),
        flop_per_iteration: Some(1e15),
        compute_seconds: Some(1.0),
        flows: vec![flow],
        ..Default::default()
    }
}
