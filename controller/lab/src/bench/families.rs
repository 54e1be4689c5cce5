//! `crux bench families`: the planner on shapes of real fabrics.
//!
//! [`simulator::contention`] draws the cases and simulates each in all ways; here many are tried at
//! a time ([`parallel_cases`](super::parallel_cases)) and put before people.

use std::fmt;

use clap::ValueEnum;
use planner::Policy;
use serde::Serialize;
use simulator::contention::{
    CaseFamily, CheckedForecast, FAMILY_ALTERNATIVES, FamilyResult, SimulatedValue,
    examine_family_case, generate_family_case,
};

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::output;

/// Compare the default plan and the quick one with their alternatives on shapes of real fabrics.
///
/// A family is a shape of fabric and jobs: many connections, eight NICs, oversubscribed uplinks,
/// equal periods. Each case is simulated under the plan, the quick plan, ECMP (the mean over ten
/// hashes), Sincronia, TACCL*, CASSINI, Varys with rates (MADD), the paper's greedy paths and levels,
/// one level, spraying and MLTCP; all jobs begin at once. The plan for the fabric if it sprays is
/// beside them. Points are percentage points of GPU utilisation.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench families --family thin --cases 20
  crux bench families --family nics8 --cases 10 --seconds 20 --raw cases.json --format json")]
pub(crate) struct FamilyArgs {
    /// The shape of fabric and jobs
    #[arg(long, default_value = "mixed")]
    family: FamilyName,
    /// Simulated time
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    seconds: f64,
    #[command(flatten)]
    cases: CaseArgs,
}

/// A family by the name that users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FamilyName {
    /// A GPT of 4 hosts and 8 BERTs on half hosts, 4 NICs, 1, 2 or 8 connections of a NIC pair
    Mixed,
    /// 32 to 128 hosts with 8 NICs, 2:1 or 3:1, all busy with rings and all-to-all
    Nics8,
    /// 2 or 3 jobs with equal or nearly equal periods on one link
    Periods,
    /// 48 hosts with 4 NICs, 6:1, 4 connections
    Thin,
}

impl FamilyName {
    pub(super) fn family(self) -> CaseFamily {
        match self {
            Self::Mixed => CaseFamily::Mixed,
            Self::Nics8 => CaseFamily::Nics8,
            Self::Periods => CaseFamily::Periods,
            Self::Thin => CaseFamily::Thin,
        }
    }
}

/// What came of all cases; utilisations are shares of GPUs.
#[derive(Serialize)]
struct FamilySummary {
    family: &'static str,
    cases: usize,
    seed: u64,
    /// Mean GPU utilisation of the default plan, and of the quick one.
    planned: f64,
    quick: f64,
    /// Mean GPU utilisation of the plan for the fabric if it sprays; how much more that is than
    /// spraying on one level in the mean, and at least.
    sprayed: f64,
    gain_of_levels: f64,
    least_gain_of_levels: f64,
    /// By alternative.
    alternatives: Vec<AlternativeSummary>,
    /// Cases in which an alternative that slows no job beyond the limit is better by more than 0.3
    /// points, and by more than 1 point.
    worse: usize,
    much_worse: usize,
    /// The largest lead of such an alternative, and the case of that number.
    worst_shortfall: f64,
    worst_case: u32,
    /// The largest lead of ECMP over the quick plan.
    quick_shortfall: f64,
    /// By how much forecasts of an iteration are off longer runs from other starts, as a share: the
    /// mean over all jobs, and the most.
    forecast_error: f64,
    worst_forecast_error: f64,
    /// Share of the jobs whose simulated iteration is inside of the band of its forecast.
    in_band: f64,
}

/// An alternative over all cases.
#[derive(Serialize)]
struct AlternativeSummary {
    name: &'static str,
    /// Mean GPU utilisation.
    mean: f64,
    /// Its largest lead over the default plan where it slows no job beyond the limit.
    largest_lead: f64,
    /// Cases in which it is better by more than 0.3 points and slows no job beyond the limit.
    better: usize,
    /// Cases in which it slows a job beyond the limit.
    beyond_limit: usize,
}

/// Leads that count as none, and as much.
const TOLERATED: f64 = 0.003;
const MUCH: f64 = 0.01;

pub(crate) fn run_families(args: &FamilyArgs) -> Result<(), CommandError> {
    let family = args.family.family();
    let examined = args.cases.examine(|number| {
        let input = generate_family_case(family, args.cases.seed, number);
        examine_family_case(number, &input, &Policy::default(), args.seconds)
            .map_err(CommandError::failed)
    })?;
    args.cases.write_raw(&examined.iter().map(raw_case).collect::<Vec<_>>())?;
    args.cases.print(&FamilySummary::new(family, args.cases.seed, &examined))
}

fn raw_case(case: &FamilyResult) -> serde_json::Value {
    let pair = |value: &SimulatedValue| [value.gpu_utilization, value.worst_slowdown];
    serde_json::json!({
        "number": case.number,
        "flows": case.flows,
        "planned": pair(&case.planned),
        "quick": pair(&case.quick),
        "sprayed": pair(&case.sprayed),
        "alternatives": case.alternatives.iter().map(pair).collect::<Vec<_>>(),
        "slowdown_limit": case.slowdown_limit,
        "forecasts": case.forecasts.iter().map(|of| (of.error, of.is_in_band)).collect::<Vec<_>>(),
    })
}

impl FamilySummary {
    fn new(family: CaseFamily, seed: u64, examined: &[FamilyResult]) -> Self {
        let mean = |of: &dyn Fn(&FamilyResult) -> f64| {
            examined.iter().map(of).sum::<f64>() / examined.len().max(1) as f64
        };
        let most = |of: &dyn Fn(&FamilyResult) -> f64| {
            examined.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
        };
        let count = |is: &dyn Fn(&FamilyResult) -> bool| examined.iter().filter(|c| is(c)).count();
        let worst = examined.iter().max_by(|a, b| a.shortfall().total_cmp(&b.shortfall()));
        let alternatives = FAMILY_ALTERNATIVES.iter().enumerate().map(|(place, name)| {
            let holds = |case: &FamilyResult| {
                case.alternatives[place].worst_slowdown <= case.slowdown_limit
            };
            let lead = |case: &FamilyResult| {
                let lead = case.alternatives[place].gpu_utilization - case.planned.gpu_utilization;
                if holds(case) { lead } else { f64::NEG_INFINITY }
            };
            AlternativeSummary {
                name,
                mean: mean(&|case| case.alternatives[place].gpu_utilization),
                largest_lead: most(&lead),
                better: count(&|case| lead(case) > TOLERATED),
                beyond_limit: count(&|case| !holds(case)),
            }
        });
        let forecasts: Vec<CheckedForecast> =
            examined.iter().flat_map(|case| &case.forecasts).copied().collect();
        let share = |sum: f64| sum / forecasts.len().max(1) as f64;
        Self {
            family: family.name(),
            cases: examined.len(),
            seed,
            planned: mean(&|case| case.planned.gpu_utilization),
            quick: mean(&|case| case.quick.gpu_utilization),
            sprayed: mean(&|case| case.sprayed.gpu_utilization),
            gain_of_levels: mean(&FamilyResult::gain_of_levels),
            least_gain_of_levels: -most(&|case| -case.gain_of_levels()),
            alternatives: alternatives.collect(),
            worse: count(&|case| case.shortfall() > TOLERATED),
            much_worse: count(&|case| case.shortfall() > MUCH),
            worst_shortfall: worst.map_or(0.0, FamilyResult::shortfall),
            worst_case: worst.map_or(0, |case| case.number),
            quick_shortfall: most(&|case| {
                case.alternatives[0].gpu_utilization - case.quick.gpu_utilization
            }),
            forecast_error: share(forecasts.iter().map(|of| of.error).sum()),
            worst_forecast_error: forecasts.iter().map(|of| of.error).fold(0.0, f64::max),
            in_band: share(forecasts.iter().filter(|of| of.is_in_band).count() as f64),
        }
    }
}

impl fmt::Display for FamilySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = output::new_table([
            "",
            "GPU utilisation %",
            "better cases",
            "largest lead, points",
            "slows a job beyond the limit",
        ]);
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        table.add_row(["crux".to_owned(), percent(self.planned)]);
        table.add_row(["quick plan".to_owned(), percent(self.quick)]);
        table.add_row(["crux over spraying".to_owned(), percent(self.sprayed)]);
        for other in &self.alternatives {
            table.add_row([
                other.name.to_owned(),
                percent(other.mean),
                other.better.to_string(),
                format!("{:+.2}", other.largest_lead * 100.0),
                other.beyond_limit.to_string(),
            ]);
        }
        writeln!(f, "{} cases of {} of seed {}\n{table}", self.cases, self.family, self.seed)?;
        write!(
            f,
            "An alternative but spraying and MLTCP that slows no job beyond the limit is better by \
             more than {} points in {} cases, by more than {} in {}, by {:+.2} points at most (case {}).\n\
             ECMP is better than the quick plan by {:+.2} points at most.\n\
             Over spraying, levels give {:+.2} points in the mean, and at least {:+.2}.\n\
             Forecasts of an iteration are off longer runs from other starts by {:.2} % in the mean, \
             {:.1} % at most; of {:.1} % of the jobs, the band has the simulated iteration.",
            TOLERATED * 100.0,
            self.worse,
            MUCH * 100.0,
            self.much_worse,
            self.worst_shortfall * 100.0,
            self.worst_case,
            self.quick_shortfall * 100.0,
            self.gain_of_levels * 100.0,
            self.least_gain_of_levels * 100.0,
            self.forecast_error * 100.0,
            self.worst_forecast_error * 100.0,
            self.in_band * 100.0,
        )
    }
}
