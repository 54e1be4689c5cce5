//! `crux bench packets`: whether the fluid model gives what packets do where jobs share NICs.
//!
//! [`simulator::contention`] draws the cases. In each, jobs train on the embedded fabric under one
//! level and then, after a live change of policy, under eight; what the controller forecasts for
//! both is compared with what the jobs measure ([`crate::demo`]).

use emulator::TimeScale;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::{generate_packet_case, generate_pcie_case};

use super::parallel_cases;
use crate::demo::{
    DemoScenario, ForecastErrors, MeasuredChange, PolicyTransition, TrainingOptions,
    measure_change, parse_time_scale,
};
use crate::transport_flags::TransportFlags;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Compare forecasts with packets where jobs share NICs.
///
/// Cases of 2 to 5 jobs are drawn from a seed; at least one NIC of each is shared. The jobs train
/// on embedded switches with RoCEv2 packets, under one level and then under eight. The forecast
/// is that of `crux policy diff`. About ten seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench packets --cases 200
  crux bench packets --cases 1 --seed 1 --first 17 --format json
  crux bench packets --cases 200 --raw cases.json
  crux bench packets --cases 200 --pcie
  crux bench packets --cases 200 --transport dcqcn")]
pub(crate) struct PacketsArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases and the start of every job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first case, to look at a single one again
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    first: u32,
    /// Iterations of the slowest job that are measured under either policy
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
    /// Draw cases on hosts whose NICs are behind slower PCIe links
    #[arg(long)]
    pcie: bool,
    /// Also write the figures of every single case to this file (JSON)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    output: FormatArg,
}

/// A case with what was forecast and measured in it.
#[derive(Serialize)]
struct PacketCase {
    number: u32,
    one_level: ForecastErrors,
    eight_levels: ForecastErrors,
    change: MeasuredChange,
}

/// Sizes of one kind of error over all cases, as shares.
#[derive(Serialize, JsonSchema)]
struct ErrorSizes {
    /// Which figure under which policy.
    figure: String,
    /// Mean.
    mean: f64,
    /// Half of the cases have at most this one.
    median: f64,
    /// 19 of 20 cases have at most this one.
    percentile_95: f64,
    /// The largest.
    largest: f64,
    /// Cases with an error above the tolerance.
    above: usize,
    /// The tolerance.
    tolerated: f64,
}

/// GPU utilisation may differ by 2 %, the iteration time of a job by 3 %.
const TOLERATED_UTILIZATION: f64 = 0.02;
const TOLERATED_JOB: f64 = 0.03;

pub(crate) fn run_packets(args: &PacketsArgs) -> Result<(), CommandError> {
    let examined = parallel_cases::run_cases(args.cases, |number| {
        measure_case(args, args.first.saturating_add(number))
    })?;
    let cases = examined.into_iter().collect::<Result<Vec<PacketCase>, CommandError>>()?;
    files::write_requested(args.raw.as_deref(), || {
        serde_json::to_string_pretty(&cases).expect("numbers and names make valid JSON")
    })?;
    let sizes = error_sizes(&cases);
    match args.output.format {
        OutputFormat::Json => output::print_json(&sizes),
        OutputFormat::Table => {
            print_sizes(&sizes, cases.len())?;
            print_band(&cases)
        }
    }
}

/// Under DCQCN, in how many cases an iteration takes longer than the forecast and its band.
fn print_band(cases: &[PacketCase]) -> Result<(), CommandError> {
    let one = cases.iter().map(|case| case.one_level.beyond_band).collect();
    let eight = cases.iter().map(|case| case.eight_levels.beyond_band).collect();
    let sides: [(&str, Vec<Option<usize>>); 2] = [("one level", one), ("eight levels", eight)];
    for (levels, beyond) in sides {
        let counted: Vec<usize> = beyond.into_iter().flatten().collect();
        if counted.is_empty() {
            continue;
        }
        let (jobs, cases) = (counted.iter().sum::<usize>(), counted.len());
        output::print_line(format_args!(
            "{levels}: {jobs} jobs in {cases} cases take longer than the forecast and its band"
        ))?;
    }
    Ok(())
}

fn measure_case(args: &PacketsArgs, number: u32) -> Result<PacketCase, CommandError> {
    let input = match args.pcie {
        true => generate_pcie_case(args.seed, number),
        false => generate_packet_case(args.seed, number),
    };
    let seed = args.seed.wrapping_add(number.into());
    let scenario = DemoScenario { fabric: input.fabric, jobs: input.jobs, seed };
    let training = TrainingOptions {
        scale: args.time_scale,
        iterations: usize::from(args.iterations),
        testbed: args.transport.testbed_options()?,
    };
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let transition = PolicyTransition::from_one_level(training.testbed.levels);
    let measured = measure_change(&scenario, transition, training);
    let change = runtime.block_on(measured)?;
    let errors = change.forecast_errors();
    Ok(PacketCase { number, one_level: errors.before, eight_levels: errors.after, change })
}

fn error_sizes(cases: &[PacketCase]) -> Vec<ErrorSizes> {
    let sizes = |figure: &str, tolerated: f64, of: fn(&PacketCase) -> f64| {
        let mut errors: Vec<f64> = cases.iter().map(|case| of(case).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
        ErrorSizes {
            figure: figure.to_owned(),
            mean: errors.iter().sum::<f64>() / errors.len() as f64,
            median: at(0.5),
            percentile_95: at(0.95),
            largest: at(1.0),
            above: errors.iter().filter(|error| **error > tolerated).count(),
            tolerated,
        }
    };
    vec![
        sizes("GPU utilisation, one level", TOLERATED_UTILIZATION, |case| {
            case.one_level.gpu_utilization
        }),
        sizes("GPU utilisation, eight levels", TOLERATED_UTILIZATION, |case| {
            case.eight_levels.gpu_utilization
        }),
        sizes("worst iteration time, one level", TOLERATED_JOB, |case| case.one_level.worst_job),
        sizes("worst iteration time, eight levels", TOLERATED_JOB, |case| {
            case.eight_levels.worst_job
        }),
    ]
}

fn print_sizes(sizes: &[ErrorSizes], cases: usize) -> Result<(), CommandError> {
    let headings =
        ["forecast against packets, %", "mean", "median", "95th percentile", "largest", "above"];
    let mut table = output::new_table(headings);
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    for size in sizes {
        table.add_row([
            size.figure.clone(),
            percent(size.mean),
            percent(size.median),
            percent(size.percentile_95),
            percent(size.largest),
            format!("{} of {cases} above {:.0} %", size.above, size.tolerated * 100.0),
        ]);
    }
    output::print_line(table)
}
