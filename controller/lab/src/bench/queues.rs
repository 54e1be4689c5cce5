//! `crux bench queues`: what DCQCN over lossless queues does in the cases that papers show.
//!
//! [`case`] has topologies and flows, [`case_run`] runs one on the embedded fabric with a
//! controller that plans levels and paths, and [`page`] draws queues and rates. Every flow sends
//! one message at the real time scale, beside which stands when the fluid model has it end.

mod case;
mod case_run;
mod page;

use comfy_table::Table;
use serde::Serialize;

use self::case::QueueCase;
use self::case_run::{CaseOutcome, CaseSettings, run_case};
use crate::transport_flags::DcqcnFlags;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Run DCQCN over lossless queues: incast, parking lot, victims, classes, rings.
///
/// Hosts have NICs of 100 Gb/s. Each case prints when its flows end beside the fluid model, marks,
/// notifications, pauses and the deepest queue; a page draws queues and rates over time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench queues
  crux bench queues --case incast-8 --seeds 5 --format json
  crux bench queues --page queues.html --csv queues.csv")]
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
    /// Write a page with the queues and rates of the first seed to this file (HTML)
    #[arg(long, value_name = "FILE")]
    page: Option<String>,
    #[command(flatten)]
    dcqcn: DcqcnFlags,
    #[command(flatten)]
    output: FormatArg,
}

/// The runs of a case.
#[derive(Debug, Serialize)]
struct CaseRuns {
    case: String,
    about: &'static str,
    runs: Vec<CaseOutcome>,
}

pub(crate) fn run_queues(args: &QueuesArgs) -> Result<(), CommandError> {
    let wanted = args.case.as_deref().unwrap_or("");
    let cases = case::all_cases(f64::from(args.megabytes) * 1e6)?;
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
        let mut runs = Vec::new();
        for seed in (0..args.seeds).map(|more| args.seed.wrapping_add(more)) {
            runs.push(runtime.block_on(run_case(case, CaseSettings { dcqcn, seed }))?);
        }
        measured.push(CaseRuns { case: case.name.clone(), about: case.about, runs });
    }
    files::write_requested(args.csv.as_deref(), || flows_csv(&measured))?;
    files::write_requested(args.page.as_deref(), || page::render_page(&measured))?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&measured),
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
