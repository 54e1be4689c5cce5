//! `crux bench packets`: whether the fluid model gives what packets do where jobs share NICs.
//!
//! [`simulator::contention`] draws the cases. In each, jobs train on the embedded fabric under one
//! level and then, after a live change of policy, under eight; what the controller forecasts for
//! both is compared with what the jobs measure ([`crate::demo`]).

use std::fmt;

use emulator::TimeScale;
use serde::Serialize;
use simulator::contention::{generate_family_case, generate_packet_case, generate_pcie_case};

use super::families::FamilyName;
use super::parallel_cases::CaseArgs;
use crate::demo::{
    DemoScenario, ForecastErrors, MeasuredChange, PolicyTransition, TrainingOptions,
    measure_change, parse_time_scale,
};
use crate::transport_flags::TransportFlags;
use command_io::CommandError;
use command_io::output;

/// Compare forecasts with packets where jobs share NICs.
///
/// Cases of 2 to 5 jobs are drawn from a seed; at least one NIC of each is shared. The jobs train
/// on embedded switches with RoCEv2 packets, under one level and then under eight. The forecast
/// is that of `crux policy diff`. About ten seconds of processor for a case, minutes for one of a
/// family.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench packets --cases 200
  crux bench packets --cases 1 --seed 1 --first 17 --format json
  crux bench packets --cases 200 --raw cases.json
  crux bench packets --cases 200 --pcie
  crux bench packets --cases 20 --family mixed
  crux bench packets --cases 200 --transport dcqcn")]
pub(crate) struct PacketsArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Iterations of the slowest job that are measured under either policy
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
    /// Draw cases on hosts whose NICs are behind slower PCIe links
    #[arg(long)]
    pcie: bool,
    /// Draw the cases of crux bench families of this shape instead
    #[arg(long, conflicts_with = "pcie")]
    family: Option<FamilyName>,
    #[command(flatten)]
    transport: TransportFlags,
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
#[derive(Serialize)]
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

/// What came of all cases.
#[derive(Serialize)]
#[serde(transparent)]
struct PacketsSummary {
    sizes: Vec<ErrorSizes>,
    #[serde(skip)]
    cases: usize,
    /// By policy: jobs that take longer than the forecast and its band, in how many cases that have
    /// one; they have it under DCQCN.
    #[serde(skip)]
    beyond_band: [(&'static str, Vec<usize>); 2],
}

pub(crate) fn run_packets(args: &PacketsArgs) -> Result<(), CommandError> {
    let cases = args.cases.examine(|number| measure_case(args, number))?;
    args.cases.write_raw(&cases)?;
    let beyond = |of: fn(&PacketCase) -> Option<usize>| cases.iter().filter_map(of).collect();
    args.cases.print(&PacketsSummary {
        sizes: error_sizes(&cases),
        cases: cases.len(),
        beyond_band: [
            ("one level", beyond(|case| case.one_level.beyond_band)),
            ("eight levels", beyond(|case| case.eight_levels.beyond_band)),
        ],
    })
}

fn measure_case(args: &PacketsArgs, number: u32) -> Result<PacketCase, CommandError> {
    let input = match args.family {
        Some(family) => generate_family_case(family.family(), args.cases.seed, number),
        None if args.pcie => generate_pcie_case(args.cases.seed, number),
        None => generate_packet_case(args.cases.seed, number),
    };
    let seed = args.cases.seed.wrapping_add(number.into());
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
        sizes("outside of the band, one level", TOLERATED_JOB, |case| case.one_level.worst_outside),
        sizes("outside of the band, eight levels", TOLERATED_JOB, |case| {
            case.eight_levels.worst_outside
        }),
    ]
}

impl fmt::Display for PacketsSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = output::new_table([
            "forecast against packets, %",
            "mean",
            "median",
            "95th percentile",
            "largest",
            "above",
        ]);
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        for size in &self.sizes {
            table.add_row([
                size.figure.clone(),
                percent(size.mean),
                percent(size.median),
                percent(size.percentile_95),
                percent(size.largest),
                format!("{} of {} above {:.0} %", size.above, self.cases, size.tolerated * 100.0),
            ]);
        }
        write!(f, "{table}")?;
        for (levels, beyond) in self.beyond_band.iter().filter(|(_, cases)| !cases.is_empty()) {
            let (jobs, cases) = (beyond.iter().sum::<usize>(), beyond.len());
            write!(
                f,
                "\n{levels}: {jobs} jobs in {cases} cases take longer than the forecast and its band"
            )?;
        }
        Ok(())
    }
}
