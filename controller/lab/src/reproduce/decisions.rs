//! Crux, Fig. 16: each decision beside its optimum, on few cases. `crux bench decisions` is the
//! same on as many as one likes, with all variants.

use rayon::prelude::*;
use simulator::decisions::{
    CaseResult, DecisionReport, DecisionSummary, PLANNING_STEPS, PlanningStep, examine_case,
    generate_case,
};

use super::SeedOptions;
use super::report::{MeasureCurve, MeasureRow, PaperReproduction};
use command_io::CommandError;

/// Cases of a run; the paper has 1,500.
const CASES: u32 = 20;

/// Shares of the optimum by step: ours, and the paper's own way.
pub(super) fn reproduce_fig16(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let numbers = (0..CASES).into_par_iter();
    let examined: Vec<CaseResult> =
        numbers.map(|number| examine_case(&generate_case(options.seed, number))).collect();
    let report = DecisionReport::new(options.seed, &examined)
        .ok_or_else(|| CommandError::Failed("no case was drawn".to_owned()))?;
    Ok(PaperReproduction {
        about: "Paths, order of jobs and compression, each with the optimum of the others."
            .to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 16 and §4.4.".to_owned(),
        rows: PLANNING_STEPS.iter().flat_map(|step| step_rows(step, &report.summary)).collect(),
        curves: error_curves(&report.summary),
        assumptions: vec![format!(
            "{CASES} cases instead of 1,500; optima by enumeration in the fluid model. The search \
             of the planner is on; the paper's own way has its name after the step."
        )],
        ..PaperReproduction::default()
    })
}

fn step_rows(step: &PlanningStep, summary: &DecisionSummary) -> Vec<MeasureRow> {
    let reached = summary.steps.get(step.name);
    let row = |variant: &str, paper: Option<f64>| {
        let share = reached?.get(variant)?;
        let means = [share.mean * 100.0];
        let measure = format!("{}, {variant}", step.name);
        let paper = paper.map(|paper| paper * 100.0);
        Some(MeasureRow::new(measure, "% of the optimum", paper, &means))
    };
    let papers = step.paper.and_then(|(variant, share)| row(variant, Some(share)));
    row("crux", None).into_iter().chain(papers).collect()
}

/// Every so many thousandths a curve has a point.
const CURVE_STEP: usize = 5;

/// By step and variant, the share of the cases whose error is at most so many per cent.
fn error_curves(summary: &DecisionSummary) -> Vec<MeasureCurve> {
    let steps = summary.steps.iter();
    let variants = steps.flat_map(|(step, variants)| {
        variants.iter().map(move |(variant, share)| (format!("{step}, {variant}"), share))
    });
    let curves = variants.map(|(measure, share)| {
        let thousandths = (0..share.cdf_by_error_permille.len()).step_by(CURVE_STEP);
        let (x, shares): (Vec<f64>, Vec<f64>) = thousandths
            .map(|error| (error as f64 / 10.0, share.cdf_by_error_permille[error]))
            .unzip();
        MeasureCurve::new(measure, x, &[&shares])
    });
    curves.collect()
}
