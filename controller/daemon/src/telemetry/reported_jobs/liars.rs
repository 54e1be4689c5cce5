//! Whatever a reporter says, no honest job falls, and doctor names who said it.

use std::time::Duration;

use proptest::prelude::*;
use topology::clos::ClosSpec;

use super::super::refused_reports::RefusedReports;
use super::tests::{Town, job, window};
use super::*;
use crate::state::tests::settle;
use crate::state::{ReportedJobs, State, StateEvent};

const HONEST: u64 = 1;
const LIAR: u64 = 2;

/// What a liar says; numbers are as large as it likes.
#[derive(Clone, Debug)]
enum Lie {
    /// In a window of its own job.
    Window(WindowLie, f64),
    /// In the announcement of its own job.
    Announcement(AnnouncementLie, f64),
    /// About a job of somebody else.
    Foreign(ForeignLie),
}

#[derive(Clone, Copy, Debug)]
enum WindowLie {
    FlopIsNotANumber,
    FlopBelowZero,
    TooMuchWork,
    NoLength,
    TooLong,
    ComputesForLonger,
    CommunicatesForLonger,
    BytesAreNotANumber,
    TooManyBytes,
    OtherFlows,
    StartsOutOfOrder,
    StartsOutsideOfTheWindow,
}

#[derive(Clone, Copy, Debug)]
enum AnnouncementLie {
    TooMuchWork,
    ComputesForLonger,
    TooManyBytes,
    MoreGpusThanAHostHas,
    HostThatIsNone,
    GpusOfAnother,
}

#[derive(Clone, Copy, Debug)]
enum ForeignLie {
    TakesTheName,
    TakesTheNameOfADocument,
    Reports,
    Ends,
    TakesAConnection,
}

fn lie() -> impl Strategy<Value = Lie> {
    use {AnnouncementLie as A, ForeignLie as F, WindowLie as W};
    const WINDOWS: &[WindowLie] = &[
        W::FlopIsNotANumber,
        W::FlopBelowZero,
        W::TooMuchWork,
        W::NoLength,
        W::TooLong,
        W::ComputesForLonger,
        W::CommunicatesForLonger,
        W::BytesAreNotANumber,
        W::TooManyBytes,
        W::OtherFlows,
        W::StartsOutOfOrder,
        W::StartsOutsideOfTheWindow,
    ];
    const ANNOUNCEMENTS: &[AnnouncementLie] = &[
        A::TooMuchWork,
        A::ComputesForLonger,
        A::TooManyBytes,
        A::MoreGpusThanAHostHas,
        A::HostThatIsNone,
        A::GpusOfAnother,
    ];
    const FOREIGN: &[ForeignLie] =
        &[F::TakesTheName, F::TakesTheNameOfADocument, F::Reports, F::Ends, F::TakesAConnection];
    prop_oneof![
        12 => (prop::sample::select(WINDOWS), 1.0..1e12)
            .prop_map(|(lie, factor)| Lie::Window(lie, factor)),
        6 => (prop::sample::select(ANNOUNCEMENTS), 1.0..1e12)
            .prop_map(|(lie, factor)| Lie::Announcement(lie, factor)),
        5 => prop::sample::select(FOREIGN).prop_map(Lie::Foreign),
    ]
}

/// `job` on these hosts.
fn job_on(name: &str, src: &str, dst: &str) -> JobDocument {
    let mut document = job(name);
    document.gpus = [src, dst].map(|host| (host.to_owned(), 8)).into();
    let flow = &mut document.flows.as_mut().unwrap()[0];
    (flow.src, flow.dst) = (src.to_owned(), dst.to_owned());
    document
}

fn announcement(document: JobDocument) -> JobReport {
    JobReport::Announcement(Box::new(document))
}

/// The reports with which the lie is told; the job that doctor is to name.
fn reports_of(lie: &Lie) -> (Vec<JobReport>, &'static str) {
    let own = || job_on("eve", "h4", "h12");
    let lying = |change: &dyn Fn(&mut ReportWindow)| {
        let mut lie = window("eve");
        change(&mut lie);
        vec![announcement(own()), JobReport::Window(lie.clone()), JobReport::Window(lie)]
    };
    let announced = |change: &dyn Fn(&mut JobDocument)| {
        let mut document = JobDocument { compute_seconds: Some(1.0), ..own() };
        document.flop_per_iteration = Some(1e17);
        change(&mut document);
        vec![announcement(document), JobReport::Window(window("eve"))]
    };
    let reports = match *lie {
        Lie::Window(lie, factor) => lying(&|w| match lie {
            WindowLie::FlopIsNotANumber => w.flop = f64::NAN,
            WindowLie::FlopBelowZero => w.flop = -factor,
            WindowLie::TooMuchWork => w.flop = 1e18 * factor,
            WindowLie::NoLength => w.seconds = 0.0,
            WindowLie::TooLong => w.seconds = 3_600.0 + factor,
            WindowLie::ComputesForLonger => w.compute_seconds = 1.0 + factor,
            WindowLie::CommunicatesForLonger => w.communication_seconds = 1.0 + factor,
            WindowLie::BytesAreNotANumber => w.flow_bytes = vec![f64::NAN],
            WindowLie::TooManyBytes => w.flow_bytes = vec![1e12 * factor],
            WindowLie::OtherFlows => w.flow_bytes = vec![1e9; 2],
            WindowLie::StartsOutOfOrder => w.iteration_starts = vec![0.6, 0.2],
            WindowLie::StartsOutsideOfTheWindow => w.iteration_starts = vec![0.2, 1.0 + factor],
        }),
        Lie::Announcement(lie, factor) => announced(&|document| match lie {
            AnnouncementLie::TooMuchWork => document.flop_per_iteration = Some(1e19 * factor),
            AnnouncementLie::ComputesForLonger => {
                document.compute_seconds = Some(3_600.0 + factor);
            }
            AnnouncementLie::TooManyBytes => {
                document.flows.as_mut().unwrap()[0].bytes = 1e16 * factor;
            }
            AnnouncementLie::MoreGpusThanAHostHas => {
                document.gpus.insert("h4".to_owned(), 9 + factor.min(1e9) as u32);
            }
            AnnouncementLie::HostThatIsNone => _ = document.gpus.insert("h99".to_owned(), 8),
            AnnouncementLie::GpusOfAnother => *document = taken_gpus(document),
        }),
        Lie::Foreign(lie) => match lie {
            ForeignLie::TakesTheName => {
                return (vec![announcement(job_on("gpt", "h4", "h12"))], "gpt");
            }
            ForeignLie::TakesTheNameOfADocument => {
                return (vec![announcement(job_on("vit", "h4", "h12"))], "vit");
            }
            ForeignLie::Reports => {
                let more = ReportWindow { flop: 2e16, ..window("gpt") };
                return (vec![JobReport::Window(more); 3], "gpt");
            }
            ForeignLie::Ends => return (vec![JobReport::End("gpt".into())], "gpt"),
            ForeignLie::TakesAConnection => announced(&|document| {
                document.flows = job_on("gpt", "h1", "h9").flows;
            }),
        },
    };
    (reports, "eve")
}

/// The job on the hosts of honest jobs, from other ports.
fn taken_gpus(document: &JobDocument) -> JobDocument {
    let gpus = job_on("eve", "h1", "h10");
    let mut flows = gpus.flows;
    flows.as_mut().unwrap()[0].udp_src_port = Some(60_000);
    JobDocument { gpus: gpus.gpus, flows, ..document.clone() }
}

/// A controller with two reported jobs and one of a document.
struct Hall {
    town: Town,
    state: State,
    refused: RefusedReports,
}

impl Hall {
    fn new() -> Self {
        let mut town = Town::new();
        let spec = ClosSpec { hosts_per_leaf: 4, leaves: 4, ..ClosSpec::default() };
        town.fabric = topology::clos::build_clos("lab", &spec).unwrap();
        for (name, reporter) in [("eve", LIAR), ("ada", HONEST)] {
            let identity = ReporterIdentity { caller: Some(name.into()), ..Default::default() };
            town.registry.open_stream(ReporterId(reporter), identity);
        }
        let mut hall = Self { town, state: State::new(8, 0), refused: RefusedReports::default() };
        hall.settle(StateEvent::FabricLearned(hall.town.fabric.clone()));
        let mut documented = job_on("vit", "h3", "h11");
        (documented.flop_per_iteration, documented.compute_seconds) = (Some(1e15), Some(1.0));
        documented.flows.as_mut().unwrap()[0].bytes = 1e9;
        let documents = planner::JobsDocument { jobs: vec![documented] };
        let jobs = documents.resolve_jobs(&hall.town.fabric, "jobs").unwrap().jobs;
        hall.settle(StateEvent::JobsChanged(jobs));
        for (name, src, dst) in [("gpt", "h1", "h9"), ("bert", "h2", "h10")] {
            hall.send(HONEST, announcement(job_on(name, src, dst)));
            hall.send(HONEST, JobReport::Window(window(name)));
        }
        hall.plan();
        hall
    }

    fn settle(&mut self, event: StateEvent) {
        settle(&mut self.state, event);
    }

    fn send(&mut self, from: u64, report: JobReport) {
        let Town { registry, fabric, now } = &mut self.town;
        let from = ReporterId(from);
        let identity = registry.streams[&from].clone();
        let Some(reply) = registry.ingest_report(from, report, fabric, *now) else { return };
        if reply.is_refusal() {
            self.refused.record_refusal(&identity, (&reply.job, &reply.finding), *now);
        }
    }

    /// Plans for the reported jobs, until the plan is settled.
    fn plan(&mut self) {
        let reported: ReportedJobs = self.town.registry.reported_jobs();
        self.settle(StateEvent::JobsReported(reported));
        self.settle(StateEvent::Quiet);
    }

    /// The levels of the honest jobs.
    fn levels(&self) -> Vec<(String, u8)> {
        let plan = &self.state.latest_rollout().unwrap().plan;
        let levels = plan.jobs.iter().map(|job| (job.id.to_string(), job.level));
        levels.filter(|(name, _)| name != "eve").collect()
    }

    /// What doctor prints of reports.
    fn findings(&mut self) -> Vec<Finding> {
        let mut findings = self.state.latest_rollout().unwrap().report.findings.clone();
        findings.extend(self.refused.current_findings(self.town.now));
        findings.extend(self.town.registry.distrust_findings());
        findings
    }
}

proptest! {
    #[test]
    fn no_lie_lowers_an_honest_job_and_doctor_names_the_liar(
        lies in prop::collection::vec(lie(), 1..4),
    ) {
        let mut hall = Hall::new();
        let before = hall.levels();
        prop_assert_eq!(before.len(), 3);
        for lie in &lies {
            let (reports, about) = reports_of(lie);
            for report in reports {
                hall.send(LIAR, report);
            }
            hall.send(HONEST, JobReport::Window(window("gpt")));
            hall.town.pass(Duration::from_secs(1));
            hall.plan();
            let now = hall.levels();
            prop_assert_eq!(now.len(), before.len());
            for ((name, had), (same, has)) in before.iter().zip(&now) {
                prop_assert_eq!(name, same);
                prop_assert!(has >= had, "{} falls from {} to {} by {:?}", name, had, has, lie);
            }
            let findings = hall.findings();
            let about = format!("job {about}");
            let is_named = |finding: &Finding| {
                finding.about == about && (about == "job eve" || finding.text.contains("eve")
                    || finding.text.contains("of the jobs document"))
            };
            prop_assert!(findings.iter().any(is_named), "{:?}: {:?}", lie, findings);
            hall.send(LIAR, JobReport::End("eve".into()));
            hall.plan();
            prop_assert_eq!(hall.levels(), before.clone());
        }
    }
}
