//! `crux bench contention`: whether the planner is ever worse than an alternative.
//!
//! [`simulator::contention`] draws the cases and decides each in all ways; here many are tried at a
//! time ([`parallel_cases`]) and put before people.

use std::fmt;

use planner::{PlanValue, Policy};
use serde::Serialize;
use simulator::contention::{
    ALTERNATIVES, BUDGETS, ContendedResult, examine_contended_case, generate_contended_case,
};

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::output;

/// A shortfall that counts as none: 0.2 points of GPU utilisation.
const TOLERATED: f64 = 0.002;

/// Compare the default plan with its alternatives where jobs share hosts, NICs and uplinks.
///
/// Cases of 2 to 12 jobs are drawn from a seed. The default plan is compared with the plan without
/// search, with one, two and four levels, with ECMP in the mean over ten hashes and with TACCL*,
/// all evaluated alike in the fluid model. Points are percentage points of GPU utilisation. About a
/// second of processor for a case, three with all budgets.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench contention --cases 200
  crux bench contention --cases 1 --seed 1 --first 17
  crux bench contention --cases 500 --budgets --raw cases.json --format json")]
pub(crate) struct ContentionArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Also plan with 2, 4 and 8 times the default budget of the search
    #[arg(long)]
    budgets: bool,
}

/// What came of all cases; utilisations are shares of GPUs.
#[derive(Serialize)]
struct ContentionSummary {
    cases: usize,
    seed: u64,
    /// Mean GPU utilisation of the default plan.
    planned: f64,
    /// Mean slowdown of its slowest job.
    worst_slowdown: f64,
    /// By alternative.
    alternatives: Vec<AlternativeSummary>,
    /// Cases in which some alternative is better by more than 0.2 points.
    worse: usize,
    /// The largest lead of an alternative.
    worst_shortfall: f64,
    /// The case of that number has it.
    worst_case: u32,
    /// Cases in which a larger budget gave less by more than 0.2 points.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_falls: Option<usize>,
    /// Largest slowdown of a job under the default plan, relative to the worst job under ECMP.
    worst_slowdown_ratio: f64,
    /// Cases in which that is above two.
    starved: usize,
}

/// An alternative over all cases.
#[derive(Serialize)]
struct AlternativeSummary {
    name: String,
    /// Mean GPU utilisation.
    mean: f64,
    /// Mean slowdown of its slowest job.
    worst_slowdown: f64,
    /// Its largest lead over the default plan where it holds the floor and the service bound.
    largest_lead: f64,
    /// Cases in which it holds both and is better by more than 0.2 points.
    better: usize,
    /// Cases in which it is better by more than 0.2 points and starves a job, or leaves a flow
    /// without service for longer than the bound.
    starving_and_better: usize,
}

pub(crate) fn run_contention(args: &ContentionArgs) -> Result<(), CommandError> {
    let examined = args.cases.examine(|number| {
        let input = generate_contended_case(args.cases.seed, number);
        Ok(examine_contended_case(number, &input, &Policy::default(), args.budgets))
    })?;
    args.cases.write_raw(&examined.iter().map(raw_case).collect::<Vec<_>>())?;
    args.cases.print(&ContentionSummary::new(args, &examined))
}

fn raw_case(case: &ContendedResult) -> serde_json::Value {
    let pair = |value: &PlanValue| [value.gpu_utilization, value.worst_slowdown];
    serde_json::json!({
        "number": case.number,
        "jobs": case.jobs,
        "planned": case.planned,
        "alternatives": case.alternatives.iter().map(pair).collect::<Vec<_>>(),
        "worst_slowdown": case.worst_slowdown,
        "ecmp_slowdown": case.ecmp_slowdown,
    })
}

impl ContentionSummary {
    fn new(args: &ContentionArgs, examined: &[ContendedResult]) -> Self {
        let mean = |of: &dyn Fn(&ContendedResult) -> f64| {
            examined.iter().map(of).sum::<f64>() / examined.len().max(1) as f64
        };
        let count =
            |is: &dyn Fn(&ContendedResult) -> bool| examined.iter().filter(|case| is(case)).count();
        let worst = examined.iter().max_by(|a, b| a.shortfall().total_cmp(&b.shortfall()));
        let ratio = |case: &ContendedResult| case.worst_slowdown / case.ecmp_slowdown;
        let alternatives = ALTERNATIVES.iter().enumerate().map(|(place, name)| {
            let lead =
                |case: &ContendedResult| case.alternatives[place].gpu_utilization - case.planned[0];
            let fair_lead = |case: &ContendedResult| match case.holds_limits(place) {
                true => lead(case),
                false => f64::NEG_INFINITY,
            };
            AlternativeSummary {
                name: (*name).to_owned(),
                mean: mean(&|case| case.alternatives[place].gpu_utilization),
                worst_slowdown: mean(&|case| case.alternatives[place].worst_slowdown),
                largest_lead: examined.iter().map(fair_lead).fold(f64::NEG_INFINITY, f64::max),
                better: count(&|case| fair_lead(case) > TOLERATED),
                starving_and_better: count(&|case| {
                    !case.holds_limits(place) && lead(case) > TOLERATED
                }),
            }
        });
        Self {
            cases: examined.len(),
            seed: args.cases.seed,
            planned: mean(&|case| case.planned[0]),
            worst_slowdown: mean(&|case| case.worst_slowdown),
            alternatives: alternatives.collect(),
            worse: count(&|case| case.shortfall() > TOLERATED),
            worst_shortfall: worst.map_or(0.0, ContendedResult::shortfall),
            worst_case: worst.map_or(0, |case| case.number),
            budget_falls: args.budgets.then(|| count(&|case| case.budget_fall() > TOLERATED)),
            worst_slowdown_ratio: examined.iter().map(ratio).fold(0.0, f64::max),
            starved: count(&|case| ratio(case) > 2.0),
        }
    }
}

impl fmt::Display for ContentionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = output::new_table([
            "",
            "GPU utilisation %",
            "worst slowdown, mean",
            "better cases",
            "largest lead, points",
            "better, but starving",
        ]);
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        let own = ["crux".to_owned(), percent(self.planned), format!("{:.2}", self.worst_slowdown)];
        table.add_row(own);
        for other in &self.alternatives {
            table.add_row([
                other.name.clone(),
                percent(other.mean),
                format!("{:.2}", other.worst_slowdown),
                other.better.to_string(),
                format!("{:+.2}", other.largest_lead * 100.0),
                other.starving_and_better.to_string(),
            ]);
        }
        writeln!(f, "{} cases of seed {}\n{table}", self.cases, self.seed)?;
        write!(
            f,
            "Some alternative is better by more than {} points in {} cases, by {:+.2} points at \
             most (case {}).\nThe worst job is at most {:.2} times as slow as the worst under \
             ECMP; more than twice in {} cases.",
            TOLERATED * 100.0,
            self.worse,
            self.worst_shortfall * 100.0,
            self.worst_case,
            self.worst_slowdown_ratio,
            self.starved,
        )?;
        if let Some(falls) = self.budget_falls {
            write!(f, "\nBudgets {BUDGETS:?}: a larger one gave less in {falls} cases.")?;
        }
        Ok(())
    }
}
