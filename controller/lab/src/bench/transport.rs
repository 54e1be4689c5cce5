//! `crux bench transport`: where DCQCN departs from max-min sharing, and the envelope over it.
//!
//! The cases are those of `crux bench queues`, from bursts that end before the first notification
//! to messages during which rates converge. What each job takes longer than in the fluid model
//! stands beside what a forecast says at most ([`controller::forecast::DcqcnConvergence`]).

use emulator::TimeScale;
use schemars::JsonSchema;
use serde::Serialize;

use super::parallel_cases;
use super::queues::case::{self, CaseSize, QueueCase};
use super::queues::case_run::{CaseOutcome, CaseSettings, run_case};
use crate::transport_flags::{DcqcnFlags, dcqcn_convergence};
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Levels of shares are a case of `crux bench queues` alone, and two flows are `incast-2`.
const LEFT_OUT: [&str; 2] = ["shared-classes", "bottleneck"];

/// Measure how much longer DCQCN takes than max-min sharing, beside what forecasts say at most.
///
/// Every flow sends one message; all start together. The band of a forecast is an envelope: no job
/// is to take longer than the fluid model and the band together.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench transport
  crux bench transport --rates 100 --tenths 10,100 --seeds 5
  crux bench transport --case incast --csv transport.csv")]
pub(crate) struct TransportArgs {
    /// Only cases whose name begins so
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Rates of NICs, Gb/s
    #[arg(long, value_delimiter = ',', default_values_t = [25, 100, 400], value_name = "GBPS",
        value_parser = clap::value_parser!(u32).range(1..=800))]
    rates: Vec<u32>,
    /// Times that the bottleneck of a case needs for its bytes, in tenths of a millisecond
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 10, 30, 100, 300],
        value_name = "TENTHS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tenths: Vec<u32>,
    /// Runs of each case, with this seed and the following
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write what each job took to this file (CSV)
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    #[command(flatten)]
    dcqcn: DcqcnFlags,
    #[command(flatten)]
    output: FormatArg,
}

/// One case at one size.
#[derive(Debug)]
struct TransportCase {
    case: QueueCase,
    size: CaseSize,
    seed: u64,
}

/// What a job took.
#[derive(Clone, Debug, Serialize)]
struct MessageExcess {
    case: String,
    gbps: f64,
    seed: u64,
    job: String,
    /// Flows of its level at its bottleneck; none where it meets nobody.
    flows: Option<u32>,
    fluid_ms: f64,
    /// What it took longer.
    excess_ms: f64,
    /// What a forecast says that it may take longer.
    band_ms: f64,
}

/// All runs of one case and time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct TransportRow {
    /// Name of the case.
    case: String,
    /// What its bottleneck needs for its bytes, milliseconds.
    milliseconds: f64,
    /// Jobs over all rates and seeds.
    jobs: usize,
    /// What they took longer than in the fluid model, in the mean, milliseconds.
    mean_excess_ms: f64,
    /// The most, milliseconds.
    most_excess_ms: f64,
    /// The most, in times of the fluid model.
    most_relative: f64,
    /// The widest band, milliseconds.
    band_ms: f64,
    /// Jobs that took longer than fluid model and band together.
    beyond: usize,
}

/// A thousandth of the fluid model, and two microseconds of propagation and acknowledgements.
fn is_beyond(job: &MessageExcess) -> bool {
    job.excess_ms > job.band_ms + 0.001 * job.fluid_ms + LATENCY_MS
}

const LATENCY_MS: f64 = 0.02;

pub(crate) fn run_transport(args: &TransportArgs) -> Result<(), CommandError> {
    let cases = wanted_cases(args)?;
    let count = u32::try_from(cases.len()).map_err(CommandError::failed)?;
    let measured = parallel_cases::run_cases(count, |number| {
        let case = &cases[number as usize];
        measure_case(args, case).map(|jobs| (case, jobs))
    })?;
    let measured = measured.into_iter().collect::<Result<Vec<_>, CommandError>>()?;
    let jobs = measured.iter().flat_map(|(_, jobs)| jobs);
    files::write_requested(args.csv.as_deref(), || excess_csv(jobs))?;
    let rows = summary_rows(&measured);
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows),
        OutputFormat::Table => print_rows(&rows),
    }
}

fn wanted_cases(args: &TransportArgs) -> Result<Vec<TransportCase>, CommandError> {
    let begin = args.case.as_deref().unwrap_or_default();
    let mut wanted = Vec::new();
    for (tenths, gbps) in args.tenths.iter().flat_map(|t| args.rates.iter().map(move |r| (t, r))) {
        let nic_gbps = f64::from(*gbps);
        let bytes = f64::from(*tenths) * 1e-4 * nic_gbps * 1e9 / 8.0;
        let size = CaseSize { bytes, nic_gbps };
        for more in 0..args.seeds {
            let cases = case::all_cases(size)?.into_iter();
            let named = |case: &QueueCase| {
                case.name.starts_with(begin) && !LEFT_OUT.contains(&case.name.as_str())
            };
            let seed = args.seed.wrapping_add(more.into());
            wanted.extend(cases.filter(named).map(|case| TransportCase { case, size, seed }));
        }
    }
    let none = || CommandError::input("--case", format!("no case begins with {begin}"));
    (!wanted.is_empty()).then_some(wanted).ok_or_else(none)
}

fn measure_case(
    args: &TransportArgs,
    wanted: &TransportCase,
) -> Result<Vec<MessageExcess>, CommandError> {
    let dcqcn = args.dcqcn.options()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let settings = CaseSettings { dcqcn, seed: wanted.seed };
    let outcome = runtime.block_on(run_case(&wanted.case, settings))?;
    let convergence = dcqcn_convergence(&dcqcn, &wanted.case.fabric, TimeScale::REAL);
    let jobs = wanted.case.jobs.iter().map(|job| {
        let message = outcome.messages.get(&job.id);
        let (taken_us, fluid_us) = job_times(&outcome, job.id.as_str());
        MessageExcess {
            case: wanted.case.name.clone(),
            gbps: wanted.size.nic_gbps,
            seed: wanted.seed,
            job: job.id.to_string(),
            flows: message.map(|message| message.flows),
            fluid_ms: fluid_us / 1e3,
            excess_ms: (taken_us - fluid_us) / 1e3,
            band_ms: message.map_or(0.0, |message| convergence.excess_seconds(*message) * 1e3),
        }
    });
    Ok(jobs.collect())
}

/// When the last flow of a job ends, in packets and in the fluid model, in microseconds.
fn job_times(outcome: &CaseOutcome, job: &str) -> (f64, f64) {
    let flows = outcome.flows.iter().filter(|flow| flow.job == job);
    flows.fold((0.0, 0.0), |(taken, fluid), flow| {
        (flow.completion_us.max(taken), flow.fluid_us.max(fluid))
    })
}

fn summary_rows(measured: &[(&TransportCase, Vec<MessageExcess>)]) -> Vec<TransportRow> {
    let mut rows: Vec<TransportRow> = Vec::new();
    for (case, jobs) in measured {
        let milliseconds = case.size.bytes * 8.0 / case.size.nic_gbps / 1e6;
        for job in jobs {
            let same = |row: &TransportRow| {
                row.case == job.case && (row.milliseconds - milliseconds).abs() < 1e-9
            };
            let place = rows.iter().position(same).unwrap_or_else(|| {
                rows.push(TransportRow::empty(&job.case, milliseconds));
                rows.len() - 1
            });
            rows[place].add(job);
        }
    }
    rows
}

impl TransportRow {
    fn empty(case: &str, milliseconds: f64) -> Self {
        Self {
            case: case.to_owned(),
            milliseconds,
            jobs: 0,
            mean_excess_ms: 0.0,
            most_excess_ms: 0.0,
            most_relative: 0.0,
            band_ms: 0.0,
            beyond: 0,
        }
    }

    fn add(&mut self, job: &MessageExcess) {
        let before = self.jobs as f64;
        self.mean_excess_ms = (self.mean_excess_ms * before + job.excess_ms) / (before + 1.0);
        self.jobs += 1;
        self.most_excess_ms = self.most_excess_ms.max(job.excess_ms);
        self.most_relative = self.most_relative.max(job.excess_ms / job.fluid_ms);
        self.band_ms = self.band_ms.max(job.band_ms);
        self.beyond += usize::from(is_beyond(job));
    }
}

fn excess_csv<'m>(measured: impl Iterator<Item = &'m MessageExcess>) -> String {
    let mut text = "case,gbps,seed,job,flows,fluid_ms,excess_ms,band_ms\n".to_owned();
    for job in measured {
        text += &format!(
            "{},{},{},{},{},{:.4},{:.4},{:.4}\n",
            job.case,
            job.gbps,
            job.seed,
            job.job,
            job.flows.map_or(String::new(), |flows| flows.to_string()),
            job.fluid_ms,
            job.excess_ms,
            job.band_ms
        );
    }
    text
}

fn print_rows(rows: &[TransportRow]) -> Result<(), CommandError> {
    let headings =
        ["case", "fluid ms", "jobs", "longer ms: mean", "most", "of fluid", "band ms", "beyond"];
    let mut table = output::new_table(headings);
    for row in rows {
        table.add_row([
            row.case.clone(),
            format!("{:.1}", row.milliseconds),
            row.jobs.to_string(),
            format!("{:.2}", row.mean_excess_ms),
            format!("{:.2}", row.most_excess_ms),
            format!("{:.0} %", row.most_relative * 100.0),
            format!("{:.2}", row.band_ms),
            row.beyond.to_string(),
        ]);
    }
    output::print_line(table)
}
