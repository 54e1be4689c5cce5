//! `crux plan --curve`: what the floor for the slowest job costs.
//!
//! The decision: each point is planned on its own, as `crux plan` would with that `slowdown_limit`,
//! so an operator gets what he was shown.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use planner::{JobId, Plan, PlanForecast, PlanInput, Policy, SlowdownLimit};
use serde::Serialize;
use topology::Finding;

use command_io::CommandError;
use command_io::output::{self, OutputFormat};

/// Limits that are tried besides that of the policy, times the slowest job under ECMP.
const FACTORS: [f64; 7] = [1.0, 1.25, 1.5, 1.9, 2.5, 4.0, 8.0];

/// The plans under several limits of the slowdown.
#[derive(Serialize)]
struct SlowdownCurve {
    /// Without a controller, the mean over draws of the hash.
    ecmp: ForecastPoint,
    /// From the strictest limit to none.
    points: Vec<CurvePoint>,
    /// What an operator should know about the documents.
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct CurvePoint {
    slowdown_limit: SlowdownLimit,
    /// Whether it is that of the policy.
    in_policy: bool,
    #[serde(flatten)]
    forecast: ForecastPoint,
}

#[derive(Serialize)]
struct ForecastPoint {
    /// Share of the jobs' GPU time in which they compute.
    gpu_utilization: f64,
    /// The job that is slowed down most, and how many times longer than alone its iteration takes;
    /// none without a job that communicates.
    slowest_job: Option<String>,
    slowdown: Option<f64>,
}

/// Plans the input under each limit and prints what is forecast of them.
pub(super) fn print_curve(
    input: &PlanInput,
    policy: &Policy,
    previous: Option<&Plan>,
    findings: Vec<Finding>,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let limits = tried_limits(policy.slowdown_limit);
    let is_watched = std::io::stderr().is_terminal();
    let mut points = Vec::new();
    let mut alone = BTreeMap::new();
    for (number, limit) in limits.iter().enumerate() {
        if is_watched {
            eprintln!("planning {} of {}: {}", number + 1, limits.len(), limit_name(*limit));
        }
        let tried = Policy { slowdown_limit: *limit, ..policy.clone() };
        let (plan, report) = planner::plan(input, &tried, previous);
        let seconds = report.rationales.iter().map(|why| why.iteration_seconds);
        alone = plan.jobs.iter().map(|job| job.id.clone()).zip(seconds).collect();
        points.push(CurvePoint {
            slowdown_limit: *limit,
            in_policy: *limit == policy.slowdown_limit,
            forecast: ForecastPoint::new(
                &planner::forecast_plan(&input.fabric, &input.jobs, &plan, 1.0),
                &alone,
            ),
        });
    }
    let ecmp = ForecastPoint::new(&planner::forecast_ecmp(&input.fabric, &input.jobs, 1.0), &alone);
    let curve = SlowdownCurve { ecmp, points, findings };
    match format {
        OutputFormat::Json => output::print_json(&curve),
        OutputFormat::Table => print_table(&curve),
    }
}

impl ForecastPoint {
    fn new(forecast: &PlanForecast, alone: &BTreeMap<JobId, f64>) -> Self {
        let slowdowns = forecast.jobs.iter().filter_map(|(id, job)| {
            let alone = alone.get(id).filter(|seconds| **seconds > 0.0)?;
            Some((id, job.seconds / alone))
        });
        let slowest = slowdowns.reduce(|worst, job| if job.1 > worst.1 { job } else { worst });
        Self {
            gpu_utilization: forecast.gpu_utilization,
            slowest_job: slowest.map(|(id, _)| id.to_string()),
            slowdown: slowest.map(|(_, slowdown)| slowdown),
        }
    }

    fn cells(&self) -> [String; 3] {
        let utilization = format!("{:.2}", self.gpu_utilization * 100.0);
        let slowdown = self.slowdown.map_or_else(String::new, |times| format!("{times:.2}"));
        [utilization, self.slowest_job.clone().unwrap_or_default(), slowdown]
    }
}

/// The limits to try, from the strictest to none: that of the policy, and others of ECMP.
fn tried_limits(in_policy: SlowdownLimit) -> Vec<SlowdownLimit> {
    let mut limits: Vec<SlowdownLimit> =
        FACTORS.map(|factor| SlowdownLimit { ecmp: Some(factor), ..in_policy }).into();
    limits.push(SlowdownLimit { ecmp: None, ..in_policy });
    if !limits.contains(&in_policy) {
        limits.push(in_policy);
    }
    limits.sort_by(|a, b| factor_of(*a).total_cmp(&factor_of(*b)));
    limits
}

fn factor_of(limit: SlowdownLimit) -> f64 {
    limit.ecmp.unwrap_or(f64::INFINITY)
}

fn limit_name(limit: SlowdownLimit) -> String {
    let ecmp = limit.ecmp.map(|factor| format!("{factor} x the slowest under ECMP"));
    let alone = limit.alone.map(|factor| format!("{factor} x alone"));
    let names: Vec<String> = ecmp.into_iter().chain(alone).collect();
    if names.is_empty() { "no limit".to_owned() } else { names.join(", ") }
}

fn print_table(curve: &SlowdownCurve) -> Result<(), CommandError> {
    let headings = ["slowdown_limit", "GPU utilisation %", "slowest job", "x alone"];
    let mut table = output::new_table(headings);
    for point in &curve.points {
        let mark = if point.in_policy { " (policy)" } else { "" };
        let name = format!("{}{mark}", limit_name(point.slowdown_limit));
        table.add_row([vec![name], point.forecast.cells().to_vec()].concat());
    }
    table.add_row([vec!["ECMP, no controller".to_owned()], curve.ecmp.cells().to_vec()].concat());
    output::print_line(table)?;
    curve.findings.iter().try_for_each(output::print_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_policy_is_in_its_place_on_the_curve() {
        let own = SlowdownLimit { ecmp: Some(3.0), alone: Some(5.0) };
        let limits = tried_limits(own);
        assert!(limits.iter().all(|limit| limit.alone == Some(5.0)), "{limits:?}");
        let names: Vec<String> = limits.iter().map(|limit| limit_name(*limit)).collect();
        assert_eq!(names[5], "3 x the slowest under ECMP, 5 x alone");
        assert_eq!(names.last().unwrap(), "5 x alone");
        let default = tried_limits(SlowdownLimit::default());
        assert_eq!(default.len(), FACTORS.len() + 1, "its limit is one of them");
    }
}
