//! The comparison of the runs, for people and programs, and its verification.
//!
//! JSON and table show the same figures. Changes are relative: -0.18 is 18 % less than under ECMP.
//! Where the paper gives a figure for the same scenario, it stands beside ours.

mod page;

use std::fmt;

use comfy_table::Table;
use emulator::{EmulatedJobOutcome, HostTransport};
use planner::{JobId, PlanDocument};
use serde::Serialize;
use topology::Forwarding;

use super::calibration::CALIBRATED;
use super::congestion::{self, CongestionEvidence, ForecastComparison};
use super::emulated_run::EmulatedRun;
use super::{DemoArgs, DemoRuns, SeedComparison};
use crate::transport_flags::{TransportChoice, dcqcn_convergence};
use command_io::CommandError;
use command_io::output;

/// Links that are shown.
const BUSIEST: usize = 8;

/// Crux §6.2: change of GPU utilisation and of the iteration times of GPT, BERT and ResNet.
const PAPER_UTILIZATION: f64 = 0.139;
const PAPER_JOBS: [(&str, f64); 3] = [("gpt", -0.18), ("bert", -0.15), ("resnet", 0.02)];

/// All figures of the demo.
#[derive(Debug, Serialize)]
pub(super) struct DemoReport {
    seed: u64,
    time_scale: f64,
    comm_scale: f64,
    iterations: u16,
    calibration: VolumeSource,
    jobs: Vec<DemoJobReport>,
    gpu_utilization: ThreeRunFigures,
    gpu_utilization_change: ChangeFromEcmp,
    seeds: Vec<DemoSeedReport>,
    busiest_links: BusiestLinks,
    flows: Vec<FlowPathReport>,
    switches: usize,
    entries_written: u64,
    entries: usize,
    different_entries: usize,
    pins: usize,
    strays: Vec<String>,
    verified: bool,
    telemetry_to_verified_ms: f64,
    drops: TwoRunFigures<u64>,
    retransmitted: TwoRunFigures<u64>,
    levels: u8,
    forwarding: Forwarding,
    transport: &'static str,
    congestion: TwoRunFigures<CongestionEvidence>,
    forecast: ForecastComparison,
}

/// Where the communication volumes come from.
#[derive(Debug, Serialize)]
struct VolumeSource {
    source: &'static str,
    gpt_all_reduce_bytes: f64,
    bert_all_reduce_bytes: f64,
}

#[derive(Debug, Serialize)]
struct ThreeRunFigures {
    alone: f64,
    ecmp: f64,
    crux: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct TwoRunFigures<T> {
    ecmp: T,
    crux: T,
}

/// From ECMP to Crux, relative.
#[derive(Debug, Serialize)]
struct ChangeFromEcmp {
    ours: f64,
    paper: f64,
}

#[derive(Debug, Serialize)]
struct DemoJobReport {
    id: String,
    gpus: u32,
    level: u8,
    iteration_seconds: ThreeRunFigures,
    iteration_change: ChangeFromEcmp,
}

/// The changes of one seed.
#[derive(Debug, Serialize)]
struct DemoSeedReport {
    seed: u64,
    gpu_utilization: TwoRunFigures<f64>,
    gpu_utilization_change: f64,
    iteration_changes: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct BusiestLinks {
    ecmp: Vec<BusyLinkReport>,
    crux: Vec<BusyLinkReport>,
}

#[derive(Clone, Debug, Serialize)]
struct BusyLinkReport {
    link: String,
    busy_fraction: f64,
}

#[derive(Debug, Serialize)]
struct FlowPathReport {
    job: String,
    udp_src_port: Option<u16>,
    path: Vec<String>,
}

impl DemoReport {
    /// # Errors
    /// A run lacks a job or a plan.
    pub(super) fn new(args: &DemoArgs, runs: &DemoRuns) -> Result<Self, CommandError> {
        let first = runs.comparisons.first().ok_or_else(|| missing_error("a comparison"))?;
        let plan = plan_document(&first.crux)?;
        let jobs = runs
            .scenario
            .jobs
            .iter()
            .zip(&runs.alone)
            .map(|(job, alone)| job_report(&job.id, alone, first, &plan));
        let ends =
            || runs.alone.iter().chain(runs.comparisons.iter().flat_map(|c| [&c.ecmp, &c.crux]));
        let strays: Vec<String> =
            ends().flat_map(|run| run.evidence.strays.iter().cloned()).collect();
        let utilization = ThreeRunFigures {
            alone: alone_utilization(&runs.alone),
            ecmp: first.ecmp.outcome.gpu_utilization(),
            crux: first.crux.outcome.gpu_utilization(),
        };
        Ok(Self {
            seed: args.seed,
            time_scale: args.time_scale.factor(),
            comm_scale: args.comm_scale,
            iterations: args.iterations,
            calibration: VolumeSource::from_calibration(),
            jobs: jobs.collect::<Result<_, _>>()?,
            gpu_utilization_change: ChangeFromEcmp {
                ours: utilization.crux / utilization.ecmp - 1.0,
                paper: PAPER_UTILIZATION,
            },
            gpu_utilization: utilization,
            seeds: runs.comparisons.iter().map(seed_report).collect(),
            busiest_links: BusiestLinks {
                ecmp: busiest_links(&first.ecmp),
                crux: busiest_links(&first.crux),
            },
            flows: flow_reports(&plan),
            switches: runs.scenario.fabric.switches().len(),
            entries_written: first.crux.entries_written,
            entries: first.crux.evidence.entries,
            different_entries: ends().map(|run| run.evidence.different_entries).sum(),
            pins: first.crux.evidence.pins,
            strays,
            verified: ends().all(|run| run.evidence.is_clean()),
            telemetry_to_verified_ms: first.crux.telemetry_to_verified.as_secs_f64() * 1e3,
            drops: TwoRunFigures { ecmp: first.ecmp.drops, crux: first.crux.drops },
            retransmitted: TwoRunFigures {
                ecmp: first.ecmp.faults.retransmitted,
                crux: first.crux.faults.retransmitted,
            },
            levels: args.transport.levels,
            forwarding: runs.scenario.fabric.forwarding(),
            transport: match args.transport.hosts.transport {
                TransportChoice::Window => "window",
                TransportChoice::Dcqcn => "dcqcn",
            },
            congestion: TwoRunFigures {
                ecmp: first.ecmp.congestion.clone(),
                crux: first.crux.congestion.clone(),
            },
            forecast: compared_forecast(args, runs, &first.crux)?,
        })
    }

    /// # Errors
    /// A table is not what it shall be, or a pinned flow was not seen where it shall be.
    pub(super) fn check_verified(&self) -> Result<(), CommandError> {
        if self.verified {
            return Ok(());
        }
        let strays = self.strays.join("\n  ");
        let tables = format!("{} entries differ from the desired ones", self.different_entries);
        Err(CommandError::Failed(format!("{tables}; not on the planned path:\n  {strays}")))
    }
}

/// The forecast beside a run, with its band where hosts send under DCQCN.
fn compared_forecast(
    args: &DemoArgs,
    runs: &DemoRuns,
    run: &EmulatedRun,
) -> Result<ForecastComparison, CommandError> {
    let convergence = match args.transport.testbed_options()?.transport {
        HostTransport::Window => None,
        HostTransport::Dcqcn(dcqcn) => {
            Some(dcqcn_convergence(&dcqcn, &runs.scenario.fabric, args.time_scale))
        }
    };
    ForecastComparison::new(&runs.scenario, run, convergence)
}

impl VolumeSource {
    fn from_calibration() -> Self {
        Self {
            source: "fitted to Crux section 2.2 (GPT 1.53 s alone, 1.70 s shared; BERT -7.7 %) by \
                     crux demo --calibrate",
            gpt_all_reduce_bytes: CALIBRATED.gpt,
            bert_all_reduce_bytes: CALIBRATED.bert,
        }
    }
}

fn missing_error(what: &str) -> CommandError {
    CommandError::Failed(format!("the demo has no {what} to report"))
}

fn plan_document(run: &EmulatedRun) -> Result<PlanDocument, CommandError> {
    let realised = run.realised.as_ref().ok_or_else(|| missing_error("plan"))?;
    Ok(PlanDocument::new(&realised.fabric, &realised.plan, &realised.report))
}

fn job_outcome<'a>(
    run: &'a EmulatedRun,
    id: &JobId,
) -> Result<&'a EmulatedJobOutcome, CommandError> {
    run.outcome.jobs.iter().find(|job| job.id == *id).ok_or_else(|| missing_error(id.as_str()))
}

fn iteration_seconds(run: &EmulatedRun, id: &JobId) -> Result<f64, CommandError> {
    job_outcome(run, id)?.mean_iteration_seconds.ok_or_else(|| missing_error(id.as_str()))
}

fn job_report(
    id: &JobId,
    alone: &EmulatedRun,
    first: &SeedComparison,
    plan: &PlanDocument,
) -> Result<DemoJobReport, CommandError> {
    let (ecmp, crux) = (iteration_seconds(&first.ecmp, id)?, iteration_seconds(&first.crux, id)?);
    let planned = plan.jobs.iter().find(|job| job.id == id.as_str());
    let paper = PAPER_JOBS.iter().find(|(model, _)| id.as_str().starts_with(model));
    Ok(DemoJobReport {
        id: id.to_string(),
        gpus: job_outcome(alone, id)?.gpus,
        level: planned.ok_or_else(|| missing_error("level"))?.level,
        iteration_seconds: ThreeRunFigures { alone: iteration_seconds(alone, id)?, ecmp, crux },
        iteration_change: ChangeFromEcmp {
            ours: crux / ecmp - 1.0,
            paper: paper.map_or(f64::NAN, |(_, change)| *change),
        },
    })
}

/// GPU utilisation if every job had the fabric to itself.
fn alone_utilization(alone: &[EmulatedRun]) -> f64 {
    let jobs = alone.iter().flat_map(|run| &run.outcome.jobs);
    let busy: f64 = jobs.clone().map(|job| f64::from(job.gpus) * job.gpu_busy_fraction).sum();
    busy / jobs.map(|job| f64::from(job.gpus)).sum::<f64>()
}

fn seed_report(comparison: &SeedComparison) -> DemoSeedReport {
    let SeedComparison { seed, ecmp, crux } = comparison;
    let utilization = TwoRunFigures {
        ecmp: ecmp.outcome.gpu_utilization(),
        crux: crux.outcome.gpu_utilization(),
    };
    let [crux_times, ecmp_times] = [crux, ecmp].map(|run| {
        let jobs = run.outcome.jobs.iter();
        jobs.map(|job| job.mean_iteration_seconds.unwrap_or(f64::NAN))
    });
    let changes = crux_times.zip(ecmp_times).map(|(crux, ecmp)| crux / ecmp - 1.0);
    DemoSeedReport {
        seed: *seed,
        gpu_utilization_change: utilization.crux / utilization.ecmp - 1.0,
        gpu_utilization: utilization,
        iteration_changes: changes.collect(),
    }
}

fn busiest_links(run: &EmulatedRun) -> Vec<BusyLinkReport> {
    let links = run.busiest.iter().take(BUSIEST);
    links
        .map(|(link, busy_fraction): &(String, f64)| BusyLinkReport {
            link: link.clone(),
            busy_fraction: *busy_fraction,
        })
        .collect()
}

fn flow_reports(plan: &PlanDocument) -> Vec<FlowPathReport> {
    plan.flows
        .iter()
        .map(|flow| FlowPathReport {
            job: flow.job.clone(),
            udp_src_port: flow.udp_src_port,
            path: flow.path.clone(),
        })
        .collect()
}

impl DemoReport {
    /// The network without Crux.
    fn baseline(&self) -> &'static str {
        match self.forwarding {
            Forwarding::Pin => "ECMP",
            Forwarding::Spray | Forwarding::Auto => "spraying",
        }
    }

    /// The page of the result.
    pub(super) fn render_page(&self) -> String {
        page::render_page(self)
    }
}

impl fmt::Display for DemoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, iterations, time_scale, comm_scale, .. } = self;
        writeln!(
            f,
            "Testbed of Crux (SIGCOMM 2024) section 6.2, 96 GPUs, {} switches.",
            self.switches
        )?;
        writeln!(
            f,
            "seed {seed}, {iterations} iterations of the slowest job, time scale {time_scale}, \
             communication x {comm_scale},\ntransport {}, {} levels, forwarding {}",
            self.transport, self.levels, self.forwarding
        )?;
        writeln!(
            f,
            "volumes: GPT {:.2e} B, BERT {:.2e} B per all-reduce,\n{}\n",
            self.calibration.gpt_all_reduce_bytes,
            self.calibration.bert_all_reduce_bytes,
            self.calibration.source
        )?;
        match self.forwarding {
            Forwarding::Pin | Forwarding::Auto => writeln!(f, "{}\n", self.path_table())?,
            Forwarding::Spray => writeln!(f, "all flows are sprayed over all their paths\n")?,
        }
        writeln!(f, "{}\n", self.link_table())?;
        writeln!(f, "{}\n", self.evidence_text())?;
        writeln!(f, "{}\n", self.job_table())?;
        self.write_seeds(f)?;
        let (utilization, baseline) = (&self.gpu_utilization, self.baseline());
        // The result is the last line, which stays on a terminal.
        write!(
            f,
            "GPU utilisation: alone {:.1} %, {baseline} {:.1} %, Crux {:.1} %: {} vs {baseline}",
            utilization.alone * 100.0,
            utilization.ecmp * 100.0,
            utilization.crux * 100.0,
            format_percent(self.gpu_utilization_change.ours),
        )?;
        match self.forwarding {
            Forwarding::Pin => {
                write!(f, " (paper {})", format_percent(self.gpu_utilization_change.paper))
            }
            // The paper sprays nothing.
            Forwarding::Spray | Forwarding::Auto => Ok(()),
        }
    }
}

impl DemoReport {
    fn job_table(&self) -> Table {
        let baseline = self.baseline();
        let (seconds, change) = (format!("{baseline} s"), format!("Crux vs {baseline}"));
        let headings = ["job", "GPUs", "level", "alone s", &seconds, "Crux s", &change, "paper"];
        let mut table = output::new_table(headings.map(str::to_owned));
        for job in &self.jobs {
            let times = &job.iteration_seconds;
            table.add_row([
                job.id.clone(),
                job.gpus.to_string(),
                job.level.to_string(),
                format!("{:.4}", times.alone),
                format!("{:.4}", times.ecmp),
                format!("{:.4}", times.crux),
                format_percent(job.iteration_change.ours),
                format_percent(job.iteration_change.paper),
            ]);
        }
        table
    }

    /// One ECMP draw may be lucky, so the mean over several seeds is printed too.
    fn write_seeds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seeds.len() < 2 {
            let drawn = match self.forwarding {
                Forwarding::Pin => "ECMP's hash",
                Forwarding::Spray | Forwarding::Auto => "starts",
            };
            return writeln!(f, "one draw of {drawn}; --seeds 10 shows how much of it is luck");
        }
        let count = self.seeds.len() as f64;
        let changes = || self.seeds.iter().map(|seed| seed.gpu_utilization_change);
        let (mean, least) = (changes().sum::<f64>() / count, changes().fold(f64::MAX, f64::min));
        let most = changes().fold(f64::MIN, f64::max);
        writeln!(
            f,
            "over {count} seeds: mean {}, from {} to {}",
            format_percent(mean),
            format_percent(least),
            format_percent(most)
        )?;
        for (index, job) in self.jobs.iter().enumerate() {
            let changes = self.seeds.iter().filter_map(|seed| seed.iteration_changes.get(index));
            writeln!(f, "  {} {}", job.id, format_percent(changes.sum::<f64>() / count))?;
        }
        Ok(())
    }

    fn link_table(&self) -> Table {
        let busiest = format!("busiest under {}", self.baseline());
        let mut table = output::new_table([&busiest, "busy", "busiest under Crux", "busy"]);
        for (ecmp, crux) in self.busiest_links.ecmp.iter().zip(&self.busiest_links.crux) {
            let cells = [ecmp, crux]
                .map(|link| [link.link.clone(), format!("{:.1} %", link.busy_fraction * 100.0)]);
            table.add_row(cells.concat());
        }
        table
    }

    fn path_table(&self) -> Table {
        let mut table = output::new_table(["job", "UDP port", "path under Crux"]);
        for flow in self.flows.iter().filter(|flow| flow.path.len() > 3) {
            let port = flow.udp_src_port.map_or("any".to_owned(), |port| port.to_string());
            table.add_row([flow.job.clone(), port, flow.path.join(" > ")]);
        }
        table
    }

    fn evidence_text(&self) -> String {
        let baseline = self.baseline();
        let mut text = format!(
            "{} entries written, {} held, {} differ; {} flows pinned, {} astray\n\
             {} ms from telemetry to the last verified write\n\
             packets dropped: {baseline} {}, Crux {}; sent again: {baseline} {}, Crux {}\n{}",
            self.entries_written,
            self.entries,
            self.different_entries,
            self.pins,
            self.strays.len(),
            self.telemetry_to_verified_ms.round(),
            self.drops.ecmp,
            self.drops.crux,
            self.retransmitted.ecmp,
            self.retransmitted.crux,
            self.forecast,
        );
        if self.transport == "dcqcn" {
            let TwoRunFigures { ecmp, crux } = &self.congestion;
            let table = congestion::table(&[(baseline, ecmp), ("Crux", crux)]);
            text.push_str(&format!("\n{table}"));
        }
        text
    }
}

fn format_percent(change: f64) -> String {
    // Adding zero makes a negative zero positive.
    let rounded = (change * 1000.0).round() / 10.0 + 0.0;
    format!("{rounded:+.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> DemoReport {
        let times = ThreeRunFigures { alone: 1.5, ecmp: 2.3, crux: 1.5 };
        let change = |ours, paper| ChangeFromEcmp { ours, paper };
        let link = |name: &str| BusyLinkReport { link: name.to_owned(), busy_fraction: 0.5 };
        let seed = |seed| DemoSeedReport {
            seed,
            gpu_utilization: TwoRunFigures { ecmp: 0.76, crux: 1.0 },
            gpu_utilization_change: 0.31,
            iteration_changes: vec![-0.33],
        };
        DemoReport {
            seed: 1,
            time_scale: 1000.0,
            comm_scale: 1.0,
            iterations: 10,
            calibration: VolumeSource::from_calibration(),
            jobs: vec![DemoJobReport {
                id: "gpt".to_owned(),
                gpus: 48,
                level: 5,
                iteration_seconds: times,
                iteration_change: change(-0.33, -0.18),
            }],
            gpu_utilization: ThreeRunFigures { alone: 1.0, ecmp: 0.762, crux: 1.0 },
            gpu_utilization_change: change(0.312, 0.139),
            seeds: vec![seed(1), seed(2)],
            busiest_links: BusiestLinks { ecmp: vec![link("a")], crux: vec![link("b")] },
            flows: Vec::new(),
            switches: 8,
            entries_written: 5,
            entries: 5,
            different_entries: 0,
            pins: 1,
            strays: Vec::new(),
            verified: true,
            telemetry_to_verified_ms: 12.4,
            drops: TwoRunFigures { ecmp: 0, crux: 0 },
            retransmitted: TwoRunFigures { ecmp: 0, crux: 0 },
            levels: 8,
            forwarding: Forwarding::Pin,
            transport: "window",
            congestion: TwoRunFigures {
                ecmp: CongestionEvidence::default(),
                crux: CongestionEvidence::default(),
            },
            forecast: ForecastComparison::of_one_job("gpt", [1.5, 1.52]),
        }
    }

    #[test]
    fn the_last_line_is_the_result() {
        let text = report().to_string();
        let last = text.lines().next_back().unwrap();
        assert!(last.starts_with("GPU utilisation: alone 100.0 %, ECMP 76.2 %, Crux 100.0 %"));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn the_page_has_plots_and_the_figures_of_the_text() {
        let page = report().render_page();
        assert_eq!(page.matches("<svg").count(), 6, "{page}");
        for expected in ["+31.2 %", "76.2&nbsp;%", "2.3000", "5 entries written", "seed 2"] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("NaN"), "{page}");
    }
}
