//! `crux bench queues`: what DCQCN over lossless queues does in the cases that papers show.
//!
//! [`case`] has topologies and flows, [`case_run`] runs one on the embedded fabric with a
//! controller that plans levels and paths. Every flow sends one message at the real time scale,
//! beside which stands when the fluid model has it end. [`ns3`] writes the same case for a
//! simulator of others and reads what that made of it.

mod case;
mod case_run;
mod ns3;
mod ns3_table;

use comfy_table::Table;
use serde::Serialize;

use self::case::{CaseSize, QueueCase};
use self::case_run::{CaseOutcome, CaseSettings, run_case};
use self::ns3::{Ns3Inputs, Ns3Outcome};
use crate::transport_flags::DcqcnFlags;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Rate of NICs.
const NIC_GBPS: f64 = 100.0;

/// Run DCQCN over lossless queues: incast, parking lot, victims, classes, rings.
///
/// Hosts have NICs of 100 Gb/s. Each case prints when its flows end beside the fluid model, marks,
/// notifications, pauses and the deepest queue; JSON also has queues and rates over time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench queues
  crux bench queues --case incast-8 --seeds 5 --format json
  crux bench queues --csv queues.csv
  crux bench queues --ns3-inputs ns3
  crux bench queues --ns3-results ns3 --ns3-csv ns3.csv --ns3-figure ns3.svg")]
pub(crate) struct QueuesArgs {
    /// Only cases whose name begins so
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Bytes through the bottleneck of each case, in MB
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    megabytes: u32,
    /// Runs of each case, with this seed and the following: they draw marks and starts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the flows of every run to this file (CSV)
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    #[command(flatten)]
    ns3: Ns3Flags,
    #[command(flatten)]
    dcqcn: DcqcnFlags,
    #[command(flatten)]
    output: FormatArg,
}

/// Flags of the comparison with HPCC's RoCE model in ns-3 (docs/queues-ns3.md).
#[derive(clap::Args)]
#[command(next_help_heading = "Comparison with ns-3")]
struct Ns3Flags {
    /// Write each run as inputs of HPCC's RoCE model into this folder
    #[arg(long, value_name = "FOLDER")]
    ns3_inputs: Option<String>,
    /// Compare with what that model has written into this folder
    #[arg(long, value_name = "FOLDER")]
    ns3_results: Option<String>,
    /// Write the flows of both to this file (CSV)
    #[arg(long, value_name = "FILE", requires = "ns3_results")]
    ns3_csv: Option<String>,
    /// Draw the queues of both into this file (SVG)
    #[arg(long, value_name = "FILE", requires = "ns3_results")]
    ns3_figure: Option<String>,
}

/// The runs of a case.
#[derive(Debug, Serialize)]
struct CaseRuns {
    case: String,
    about: &'static str,
    runs: Vec<CaseOutcome>,
    /// What the model of others made of some of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ns3: Vec<Ns3Outcome>,
}

pub(crate) fn run_queues(args: &QueuesArgs) -> Result<(), CommandError> {
    let wanted = args.case.as_deref().unwrap_or("");
    let size = CaseSize { bytes: f64::from(args.megabytes) * 1e6, nic_gbps: NIC_GBPS };
    let cases = case::all_cases(size)?;
    let cases: Vec<QueueCase> =
        cases.into_iter().filter(|case| case.name.starts_with(wanted)).collect();
    if cases.is_empty() {
        return Err(CommandError::input("--case", format!("no case begins with {wanted}")));
    }
    let dcqcn = args.dcqcn.options()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let mut measured = Vec::new();
    for case in &cases {
        eprintln!("{}", case.name);
        let mut found =
            CaseRuns { case: case.name.clone(), about: case.about, runs: vec![], ns3: vec![] };
        for seed in (0..args.seeds).map(|more| args.seed.wrapping_add(more)) {
            let outcome = runtime.block_on(run_case(case, CaseSettings { dcqcn, seed }))?;
            if let Some(folder) = &args.ns3.ns3_inputs {
                Ns3Inputs { case, dcqcn, outcome: &outcome }.write_into(folder)?;
            }
            if let Some(folder) = &args.ns3.ns3_results {
                found.ns3.extend(ns3::read_outcome(folder, case, &outcome)?);
            }
            found.runs.push(outcome);
        }
        measured.push(found);
    }
    files::write_requested(args.csv.as_deref(), || flows_csv(&measured))?;
    let Ns3Flags { ns3_csv, ns3_figure, .. } = &args.ns3;
    files::write_requested(ns3_csv.as_deref(), || ns3_table::comparison_csv(&measured))?;
    files::write_requested(ns3_figure.as_deref(), || ns3_table::queue_figure(&measured))?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&measured),
        OutputFormat::Table if args.ns3.ns3_results.is_some() => {
            output::print_line(summary_table(&measured))?;
            output::print_line(ns3_table::comparison_table(&measured))
        }
        OutputFormat::Table => output::print_line(summary_table(&measured)),
    }
}

fn flows_csv(measured: &[CaseRuns]) -> String {
    let mut text = "case,seed,job,level,bytes,completion_us,fluid_us,goodput_gbps\n".to_owned();
    for case in measured {
        for run in &case.runs {
            for flow in &run.flows {
                text += &format!(
                    "{},{},{},{},{},{:.3},{:.3},{:.3}\n",
                    case.case,
                    run.seed,
                    flow.job,
                    flow.level,
                    flow.bytes,
                    flow.completion_us,
                    flow.fluid_us,
                    flow.goodput_gbps
                );
            }
        }
    }
    text
}

fn summary_table(measured: &[CaseRuns]) -> Table {
    let mut table = output::new_table([
        "case",
        "flows",
        "last us",
        "fluid us",
        "longer",
        "least / most Gb/s",
        "marked",
        "CNPs",
        "pauses",
        "paused us",
        "deepest kB",
        "drops",
        "timeouts",
    ]);
    for case in measured {
        let mean = |of: &dyn Fn(&CaseOutcome) -> f64| {
            case.runs.iter().map(of).sum::<f64>() / case.runs.len() as f64
        };
        let (last, fluid) = (mean(&|run| run.last_us()), mean(&|run| run.last_fluid_us()));
        let rates = || case.runs.iter().flat_map(|run| &run.flows).map(|flow| flow.goodput_gbps);
        table.add_row([
            case.case.clone(),
            case.runs[0].flows.len().to_string(),
            format!("{last:.1}"),
            format!("{fluid:.1}"),
            format!("{:+.1} %", (last / fluid - 1.0) * 100.0),
            format!("{:.1} / {:.1}", rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max)),
            format!("{:.1}", mean(&|run| run.marked as f64)),
            format!("{:.1}", mean(&|run| run.notifications as f64)),
            format!("{:.1}", mean(&|run| run.pauses as f64)),
            format!("{:.1}", mean(&|run| run.paused_us)),
            format!("{:.0}", mean(&|run| run.deepest_bytes as f64 / 1e3)),
            format!("{:.1}", mean(&|run| run.dropped as f64)),
            format!("{:.1}", mean(&|run| run.timeouts as f64)),
        ]);
    }
    table
}
