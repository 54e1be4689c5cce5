//! Crux, Fig. 16: each decision beside its optimum, on few cases. `crux bench decisions` is the
//! same on as many as one likes, with all variants.

use rayon::prelude::*;
use simulator::decisions::{Examined, Report, STEPS, Step, Summary, case, examine};

use super::Options;
use super::report::{Reproduction, Row};
use crate::failure::Failure;

/// Cases of a run; the paper has 1,500.
const CASES: u32 = 20;

/// Shares of the optimum by step: ours, and the paper's own way.
pub(super) fn fig16(options: Options) -> Result<Reproduction, Failure> {
    let numbers = (0..CASES).into_par_iter();
    let examined: Vec<Examined> = numbers
        .map(|number| examine(&case(options.seed, number)))
        .collect();
    let report = Report::new(options.seed, &examined);
    let report = report.ok_or_else(|| Failure::Work("no case was drawn".to_owned()))?;
    Ok(Reproduction {
        about: "Paths, order of jobs and compression, each with the optimum of the others."
            .to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 16 and §4.4.".to_owned(),
        rows: STEPS
            .iter()
            .flat_map(|step| rows(step, &report.summary))
            .collect(),
        assumptions: vec![format!(
            "{CASES} cases instead of 1,500; optima by enumeration in the fluid model. The search \
             of the planner is on; the paper's own way has its name after the step."
        )],
        ..Reproduction::default()
    })
}

fn rows(step: &Step, summary: &Summary) -> Vec<Row> {
    let reached = summary.steps.get(step.name);
    let row = |variant: &str, paper: Option<f64>| {
        let share = reached?.get(variant)?;
        let means = [share.mean * 100.0];
        let measure = format!("{}, {variant}", step.name);
        let paper = paper.map(|paper| paper * 100.0);
        Some(Row::new(measure, "% of the optimum", paper, &means))
    };
    let papers = step
        .paper
        .and_then(|(variant, share)| row(variant, Some(share)));
    row("crux", None).into_iter().chain(papers).collect()
}
