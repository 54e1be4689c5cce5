//! The runs side by side, for people and programs, and the verdict.
//!
//! JSON and table show the same figures. Changes are relative: -0.18 is 18 % less than under ECMP.
//! Where the paper gives a figure for the same scenario, it stands beside ours.

use std::fmt;

use comfy_table::Table;
use emulator::JobOutcome;
use planner::{JobId, PlanDocument};
use serde::Serialize;

use super::calibration::CALIBRATED;
use super::rehearsal::Run;
use super::{Args, Comparison, Runs};
use crate::failure::Failure;
use crate::output;

/// Links that are shown.
const BUSIEST: usize = 8;

/// Crux §6.2: change of GPU utilisation and of the iteration times of GPT, BERT and ResNet.
const PAPER_UTILIZATION: f64 = 0.139;
const PAPER_JOBS: [(&str, f64); 3] = [("gpt", -0.18), ("bert", -0.15), ("resnet", 0.02)];

/// Everything that the demo says.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seed: u64,
    time_scale: f64,
    comm_scale: f64,
    iterations: u16,
    calibration: Calibration,
    jobs: Vec<JobReport>,
    gpu_utilization: ThreeRuns,
    gpu_utilization_change: Change,
    seeds: Vec<SeedReport>,
    busiest_links: BusiestLinks,
    flows: Vec<FlowReport>,
    switches: usize,
    entries_written: u64,
    entries: usize,
    different_entries: usize,
    pins: usize,
    strays: Vec<String>,
    verified: bool,
    telemetry_to_verified_ms: f64,
    drops: TwoRuns<u64>,
    retransmitted: TwoRuns<u64>,
}

/// Where the communication volumes come from.
#[derive(Debug, Serialize)]
struct Calibration {
    source: &'static str,
    gpt_all_reduce_bytes: f64,
    bert_all_reduce_bytes: f64,
}

#[derive(Debug, Serialize)]
struct ThreeRuns {
    alone: f64,
    ecmp: f64,
    crux: f64,
}

#[derive(Debug, Serialize)]
struct TwoRuns<T> {
    ecmp: T,
    crux: T,
}

/// From ECMP to Crux, relative.
#[derive(Debug, Serialize)]
struct Change {
    ours: f64,
    paper: f64,
}

#[derive(Debug, Serialize)]
struct JobReport {
    id: String,
    gpus: u32,
    level: u8,
    iteration_seconds: ThreeRuns,
    iteration_change: Change,
}

/// The changes of one seed.
#[derive(Debug, Serialize)]
struct SeedReport {
    seed: u64,
    gpu_utilization: TwoRuns<f64>,
    gpu_utilization_change: f64,
    iteration_changes: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct BusiestLinks {
    ecmp: Vec<LinkReport>,
    crux: Vec<LinkReport>,
}

#[derive(Clone, Debug, Serialize)]
struct LinkReport {
    link: String,
    busy_fraction: f64,
}

#[derive(Debug, Serialize)]
struct FlowReport {
    job: String,
    udp_src_port: u16,
    path: Vec<String>,
}

impl Report {
    /// # Errors
    /// A run lacks a job or a plan.
    pub(super) fn new(args: &Args, runs: &Runs) -> Result<Self, Failure> {
        let first = runs
            .comparisons
            .first()
            .ok_or_else(|| missing("a comparison"))?;
        let plan = plan(&first.crux)?;
        let jobs = runs.scenario.jobs.iter().zip(&runs.alone);
        let jobs = jobs.map(|(job, alone)| job_report(&job.id, alone, first, &plan));
        let ends = || {
            runs.alone
                .iter()
                .chain(runs.comparisons.iter().flat_map(|c| [&c.ecmp, &c.crux]))
        };
        let strays: Vec<String> = ends()
            .flat_map(|run| run.evidence.strays.iter().cloned())
            .collect();
        let utilization = ThreeRuns {
            alone: alone_utilization(&runs.alone),
            ecmp: first.ecmp.outcome.gpu_utilization(),
            crux: first.crux.outcome.gpu_utilization(),
        };
        Ok(Self {
            seed: args.seed,
            time_scale: args.time_scale.factor(),
            comm_scale: args.comm_scale,
            iterations: args.iterations,
            calibration: Calibration::calibrated(),
            jobs: jobs.collect::<Result<_, _>>()?,
            gpu_utilization_change: Change {
                ours: utilization.crux / utilization.ecmp - 1.0,
                paper: PAPER_UTILIZATION,
            },
            gpu_utilization: utilization,
            seeds: runs.comparisons.iter().map(seed_report).collect(),
            busiest_links: BusiestLinks {
                ecmp: busiest(&first.ecmp),
                crux: busiest(&first.crux),
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
            drops: TwoRuns {
                ecmp: first.ecmp.drops,
                crux: first.crux.drops,
            },
            retransmitted: TwoRuns {
                ecmp: first.ecmp.faults.retransmitted,
                crux: first.crux.faults.retransmitted,
            },
        })
    }

    /// # Errors
    /// A table is not what it shall be, or a pinned flow was not seen where it shall be.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        if self.verified {
            return Ok(());
        }
        let strays = self.strays.join("\n  ");
        let tables = format!(
            "{} entries differ from the desired ones",
            self.different_entries
        );
        Err(Failure::Work(format!(
            "{tables}; not on the planned path:\n  {strays}"
        )))
    }
}

impl Calibration {
    fn calibrated() -> Self {
        Self {
            source: "fitted to Crux section 2.2 (GPT 1.53 s alone, 1.70 s shared; BERT -7.7 %) by \
                     crux demo --calibrate",
            gpt_all_reduce_bytes: CALIBRATED.gpt,
            bert_all_reduce_bytes: CALIBRATED.bert,
        }
    }
}

fn missing(what: &str) -> Failure {
    Failure::Work(format!("the demo has no {what} to report"))
}

fn plan(run: &Run) -> Result<PlanDocument, Failure> {
    let realised = run.realised.as_ref().ok_or_else(|| missing("plan"))?;
    Ok(PlanDocument::new(
        &realised.fabric,
        &realised.plan,
        &realised.report,
    ))
}

fn outcome<'a>(run: &'a Run, id: &JobId) -> Result<&'a JobOutcome, Failure> {
    run.outcome
        .jobs
        .iter()
        .find(|job| job.id == *id)
        .ok_or_else(|| missing(id.as_str()))
}

fn seconds(run: &Run, id: &JobId) -> Result<f64, Failure> {
    outcome(run, id)?
        .mean_iteration_seconds
        .ok_or_else(|| missing(id.as_str()))
}

fn job_report(
    id: &JobId,
    alone: &Run,
    first: &Comparison,
    plan: &PlanDocument,
) -> Result<JobReport, Failure> {
    let (ecmp, crux) = (seconds(&first.ecmp, id)?, seconds(&first.crux, id)?);
    let planned = plan.jobs.iter().find(|job| job.id == id.as_str());
    let paper = PAPER_JOBS
        .iter()
        .find(|(model, _)| id.as_str().starts_with(model));
    Ok(JobReport {
        id: id.to_string(),
        gpus: outcome(alone, id)?.gpus,
        level: planned.ok_or_else(|| missing("level"))?.level,
        iteration_seconds: ThreeRuns {
            alone: seconds(alone, id)?,
            ecmp,
            crux,
        },
        iteration_change: Change {
            ours: crux / ecmp - 1.0,
            paper: paper.map_or(f64::NAN, |(_, change)| *change),
        },
    })
}

/// As if every job had the fabric to itself.
fn alone_utilization(alone: &[Run]) -> f64 {
    let jobs = || alone.iter().flat_map(|run| &run.outcome.jobs);
    let busy: f64 = jobs()
        .map(|job| f64::from(job.gpus) * job.gpu_busy_fraction)
        .sum();
    busy / jobs().map(|job| f64::from(job.gpus)).sum::<f64>()
}

fn seed_report(comparison: &Comparison) -> SeedReport {
    let Comparison { seed, ecmp, crux } = comparison;
    let utilization = TwoRuns {
        ecmp: ecmp.outcome.gpu_utilization(),
        crux: crux.outcome.gpu_utilization(),
    };
    let times = |run: &Run| -> Vec<f64> {
        let jobs = run.outcome.jobs.iter();
        jobs.map(|job| job.mean_iteration_seconds.unwrap_or(f64::NAN))
            .collect()
    };
    let changes = times(crux)
        .into_iter()
        .zip(times(ecmp))
        .map(|(crux, ecmp)| crux / ecmp - 1.0);
    SeedReport {
        seed: *seed,
        gpu_utilization_change: utilization.crux / utilization.ecmp - 1.0,
        gpu_utilization: utilization,
        iteration_changes: changes.collect(),
    }
}

fn busiest(run: &Run) -> Vec<LinkReport> {
    let links = run.busiest.iter().take(BUSIEST);
    let report = |(link, busy_fraction): &(String, f64)| LinkReport {
        link: link.clone(),
        busy_fraction: *busy_fraction,
    };
    links.map(report).collect()
}

fn flow_reports(plan: &PlanDocument) -> Vec<FlowReport> {
    let report = |flow: &planner::PlannedFlowDocument| FlowReport {
        job: flow.job.clone(),
        udp_src_port: flow.udp_src_port,
        path: flow.path.clone(),
    };
    plan.flows.iter().map(report).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            iterations,
            time_scale,
            comm_scale,
            ..
        } = self;
        writeln!(
            f,
            "Testbed of Crux (SIGCOMM 2024) section 6.2, 96 GPUs, {} switches.",
            self.switches
        )?;
        writeln!(
            f,
            "seed {seed}, {iterations} iterations of the slowest job, time scale {time_scale}, \
             communication x {comm_scale}"
        )?;
        writeln!(
            f,
            "volumes: GPT {:.2e} B, BERT {:.2e} B per all-reduce, {}\n",
            self.calibration.gpt_all_reduce_bytes,
            self.calibration.bert_all_reduce_bytes,
            self.calibration.source
        )?;
        writeln!(f, "{}\n", self.job_table())?;
        let utilization = &self.gpu_utilization;
        writeln!(
            f,
            "GPU utilisation: alone {:.1} %, ECMP {:.1} %, Crux {:.1} %: {} vs ECMP (paper {})",
            utilization.alone * 100.0,
            utilization.ecmp * 100.0,
            utilization.crux * 100.0,
            percent(self.gpu_utilization_change.ours),
            percent(self.gpu_utilization_change.paper),
        )?;
        self.write_seeds(f)?;
        writeln!(f, "\n{}\n", self.link_table())?;
        writeln!(f, "{}\n", self.path_table())?;
        self.write_evidence(f)
    }
}

impl Report {
    fn job_table(&self) -> Table {
        let headings = [
            "job",
            "GPUs",
            "level",
            "alone s",
            "ECMP s",
            "Crux s",
            "Crux vs ECMP",
            "paper",
        ];
        let mut table = output::table(headings);
        for job in &self.jobs {
            let times = &job.iteration_seconds;
            table.add_row([
                job.id.clone(),
                job.gpus.to_string(),
                job.level.to_string(),
                format!("{:.4}", times.alone),
                format!("{:.4}", times.ecmp),
                format!("{:.4}", times.crux),
                percent(job.iteration_change.ours),
                percent(job.iteration_change.paper),
            ]);
        }
        table
    }

    /// One ECMP draw is luck; over several seeds the mean says more.
    fn write_seeds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seeds.len() < 2 {
            return writeln!(
                f,
                "one draw of ECMP's hash; --seeds 10 shows how much of it is luck"
            );
        }
        let count = self.seeds.len() as f64;
        let changes = || self.seeds.iter().map(|seed| seed.gpu_utilization_change);
        let (mean, least) = (
            changes().sum::<f64>() / count,
            changes().fold(f64::MAX, f64::min),
        );
        let most = changes().fold(f64::MIN, f64::max);
        writeln!(
            f,
            "over {count} seeds: mean {}, from {} to {}",
            percent(mean),
            percent(least),
            percent(most)
        )?;
        for (index, job) in self.jobs.iter().enumerate() {
            let changes = self
                .seeds
                .iter()
                .filter_map(|seed| seed.iteration_changes.get(index));
            writeln!(f, "  {} {}", job.id, percent(changes.sum::<f64>() / count))?;
        }
        Ok(())
    }

    fn link_table(&self) -> Table {
        let mut table = output::table(["busiest under ECMP", "busy", "busiest under Crux", "busy"]);
        for (ecmp, crux) in self.busiest_links.ecmp.iter().zip(&self.busiest_links.crux) {
            let busy = |link: &LinkReport| format!("{:.1} %", link.busy_fraction * 100.0);
            table.add_row([ecmp.link.clone(), busy(ecmp), crux.link.clone(), busy(crux)]);
        }
        table
    }

    fn path_table(&self) -> Table {
        let mut table = output::table(["job", "UDP port", "path under Crux"]);
        for flow in self.flows.iter().filter(|flow| flow.path.len() > 3) {
            table.add_row([
                flow.job.clone(),
                flow.udp_src_port.to_string(),
                flow.path.join(" > "),
            ]);
        }
        table
    }

    fn write_evidence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} entries written, {} held, {} differ; {} flows pinned, {} astray; {} ms from \
             telemetry to the last verified write",
            self.entries_written,
            self.entries,
            self.different_entries,
            self.pins,
            self.strays.len(),
            self.telemetry_to_verified_ms.round(),
        )?;
        write!(
            f,
            "packets dropped: ECMP {}, Crux {}; sent again: ECMP {}, Crux {}",
            self.drops.ecmp, self.drops.crux, self.retransmitted.ecmp, self.retransmitted.crux
        )
    }
}

fn percent(change: f64) -> String {
    // Adding zero makes a negative zero positive.
    let rounded = (change * 1000.0).round() / 10.0 + 0.0;
    format!("{rounded:+.1} %")
}
