//! `crux reproduce all --check`: the tables of docs/reproduction.md and its details beside a run.
//!
//! Every table of the pages stands below a comment that says which measure each cell prints
//! ([`documented_table`]), or why nothing measures it. A cell is stale if one of its figures is not
//! the measured one, rounded as printed ([`table_cell`]). The decision: pages are prose with
//! tables, not generated files, and a figure that nothing prints again cannot stand in them.
//!
//! The results of all experiments are stored beside the simulator. A test compares the pages with
//! them, which takes no time; this command compares both with a fresh run. Some experiments take
//! minutes, and `--short` takes their results as they are stored.

mod documented_table;
mod table_cell;

use std::collections::BTreeMap;
use std::fs;

use self::documented_table::{DocumentedTable, StaleCell, parse_tables};
use super::report::{MeasureRow, PaperReproduction};
use super::stored_results::{RESULTS, read_stored};
use super::{EXPERIMENTS, ExperimentCost, PaperExperiment, SeedOptions};
use command_io::CommandError;
use command_io::output;

/// The pages whose tables are checked, in the source tree.
const PAGES: [&str; 2] = ["docs/reproduction.md", "docs/reproduction/details.md"];

/// What `--check` takes.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// Compare the tables of docs/reproduction.md in this source tree with a fresh run, print every
    /// stale cell, and fail if there are any
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(super) check: Option<String>,
    /// Read the stored results of experiments that take minutes instead of running them
    #[arg(long, requires = "check")]
    short: bool,
    /// Write the measured figures into the tables
    #[arg(long, requires = "check")]
    fix: bool,
}

/// A measure as a page can print it.
#[derive(Clone, Debug, Default, PartialEq)]
struct MeasuredFigure {
    part: String,
    measure: String,
    /// The mean over the seeds.
    ours: f64,
    /// The least and the most.
    ours_range: [f64; 2],
}

impl From<&MeasureRow> for MeasuredFigure {
    fn from(row: &MeasureRow) -> Self {
        let MeasureRow { part, measure, ours, ours_range, .. } = row;
        Self { part: part.clone(), measure: measure.clone(), ours: *ours, ours_range: *ours_range }
    }
}

impl MeasuredFigure {
    fn negated(self) -> Self {
        let [least, most] = self.ours_range;
        Self { ours: -self.ours, ours_range: [-most, -least], ..self }
    }
}

/// The figures of all experiments, by name.
type MeasuredFigures = BTreeMap<&'static str, Vec<MeasuredFigure>>;

/// Checks the pages of a source tree.
pub(super) fn check_pages(
    root: &str,
    args: &CheckArgs,
    options: SeedOptions,
) -> Result<(), CommandError> {
    let mut figures = MeasuredFigures::new();
    let mut stale = 0;
    for experiment in &EXPERIMENTS {
        let stored = to_figures(&read_stored(root, experiment.name)?);
        let measured = if args.short && experiment.cost == ExperimentCost::Minutes {
            stored
        } else {
            let fresh = run_experiment(experiment, options)?;
            stale += report_outdated(experiment.name, &stored, &fresh)?;
            fresh
        };
        figures.insert(experiment.name, measured);
    }
    stale += check_tables(root, args.fix, &figures)?;
    match stale {
        0 => output::print_line("all tables have the figures that are measured"),
        stale => Err(CommandError::Failed(format!(
            "{stale} figures are stale: find out what changed them, then write the new ones with \
             `crux reproduce all --check --fix`"
        ))),
    }
}

/// Prints the stale cells of the pages, or corrects them; how many are left.
fn check_tables(root: &str, fix: bool, figures: &MeasuredFigures) -> Result<usize, CommandError> {
    let mut stale = 0;
    for page in PAGES {
        let name = format!("{root}/{page}");
        let text = read_page(&name)?;
        let cells = find_stale_cells(&text, figures)
            .map_err(|problem| CommandError::input(format!("{name}:{}", problem.line), problem))?;
        for cell in &cells {
            output::print_line(format_args!("{page}:{}: {cell}", cell.line))?;
        }
        if fix && !cells.is_empty() {
            fs::write(&name, documented_table::replace_cells(&text, &cells))
                .map_err(|error| CommandError::input(&name, error))?;
            eprintln!("wrote {name}");
        } else {
            stale += cells.len();
        }
    }
    Ok(stale)
}

fn read_page(name: &str) -> Result<String, CommandError> {
    fs::read_to_string(name).map_err(|error| CommandError::input(name, error))
}

/// The stale cells of a page.
fn find_stale_cells(
    page: &str,
    figures: &MeasuredFigures,
) -> Result<Vec<StaleCell>, documented_table::TableProblem> {
    let tables: Vec<DocumentedTable> = parse_tables(page)?;
    let mut stale = Vec::new();
    for table in &tables {
        stale.extend(table.find_stale_cells(figures)?);
    }
    Ok(stale)
}

fn run_experiment(
    experiment: &PaperExperiment,
    options: SeedOptions,
) -> Result<Vec<MeasuredFigure>, CommandError> {
    eprintln!("{} ...", experiment.name);
    Ok(to_figures(&experiment.run_seeds(options)?))
}

fn to_figures(reproduction: &PaperReproduction) -> Vec<MeasuredFigure> {
    reproduction.rows.iter().map(MeasuredFigure::from).collect()
}

/// Says in how many stored figures of an experiment a fresh run differs.
fn report_outdated(
    name: &str,
    stored: &[MeasuredFigure],
    fresh: &[MeasuredFigure],
) -> Result<usize, CommandError> {
    let outdated = count_differences(stored, fresh);
    if outdated > 0 {
        output::print_line(format_args!(
            "{RESULTS}/{name}.json: {outdated} stored figures are stale; write them anew with \
             `crux reproduce {name} --format json > {RESULTS}/{name}.json`"
        ))?;
    }
    Ok(outdated)
}

/// Figures that are in one list only or differ by more than rounding.
fn count_differences(stored: &[MeasuredFigure], fresh: &[MeasuredFigure]) -> usize {
    let is_near = |one: &MeasuredFigure, other: &MeasuredFigure| {
        let pairs = [(one.ours, other.ours)];
        let ranges = one.ours_range.into_iter().zip(other.ours_range);
        (&one.part, &one.measure) == (&other.part, &other.measure)
            && pairs.into_iter().chain(ranges).all(|(one, other)| (one - other).abs() < 1e-6)
    };
    let common = stored.iter().filter(|one| fresh.iter().any(|other| is_near(one, other)));
    stored.len().max(fresh.len()) - common.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(measure: &str, ours: f64) -> MeasuredFigure {
        MeasuredFigure { measure: measure.to_owned(), ours, ..MeasuredFigure::default() }
    }

    #[test]
    fn stored_results_that_a_run_does_not_give_are_counted() {
        let stored = [figure("a", 1.0), figure("b", 2.0)];
        assert_eq!(count_differences(&stored, &stored), 0);
        assert_eq!(count_differences(&stored, &[figure("a", 1.1), figure("b", 2.0)]), 1);
        assert_eq!(count_differences(&stored, &[figure("a", 1.0)]), 1);
        assert_eq!(count_differences(&stored[..1], &stored), 1);
    }

    #[test]
    fn the_pages_have_the_figures_that_are_stored() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let stored = EXPERIMENTS.iter().map(|experiment| {
            let name = experiment.name;
            (name, to_figures(&read_stored(root, name).unwrap()))
        });
        let mut figures: MeasuredFigures = stored.collect();
        assert_eq!(check_tables(root, false, &figures).unwrap(), 0);

        let fig7 = figures.get_mut("crux-fig7").unwrap();
        fig7.iter_mut().for_each(|figure| figure.ours += 1.0);
        // One cell of the summary and three of the details.
        assert_eq!(check_tables(root, false, &figures).unwrap(), 4);
    }
}
