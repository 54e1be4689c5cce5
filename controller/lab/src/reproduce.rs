//! `crux reproduce`: the experiments of the papers, each under the name of its figure.
//!
//! An experiment is a function from [`SeedOptions`] to [`PaperReproduction`]: rows of what the
//! paper says and what came out here, and what had to be assumed. The decision: no experiment has a
//! model of its own. They ask the planner, the simulator and the placement policies, and say what
//! with.

mod calibrate;
mod calibration;
mod cluster;
mod crius;
mod crux_gain;
mod decisions;
mod joint;
mod large_models;
mod page;
mod paper_figure;
mod paper_figures;
mod parameter_set;
mod pcie;
mod placement_gain;
mod report;
mod sjf_bco;
mod snapshot;
mod stored_results;
mod testbed;

use std::fs;

use clap::ValueEnum;

use self::paper_figure::DrawnFigure;
use self::report::PaperReproduction;
use self::stored_results::Reproductions;
use command_io::CommandError;
use command_io::output;

/// Repeat an experiment of a paper: what it says, what comes out here, and what was assumed.
///
/// docs/reproduction.md says of each where it differs, and why.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux reproduce crux-fig20
  crux reproduce sjfbco-fig5 --seed 7 --seeds 1 --format json
  crux reproduce sjfbco-fig6 --svg fig6.svg
  crux reproduce all --html reproductions.html
  crux reproduce all --stored --html reproductions.html
  crux reproduce all --stored --format markdown
  crux reproduce all --check --short")]
pub(crate) struct ReproduceArgs {
    /// The experiment, by the figure that it repeats
    #[arg(value_name = "NAME", value_parser = experiment_names())]
    name: String,
    #[command(flatten)]
    options: SeedOptions,
    /// Also write a page to this file: the paper's figures with ours, tables, and plots
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Also write the figure that the paper has, with our results, to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<String>,
    /// Show the results that are stored in this source tree instead of running the experiment
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        default_missing_value = ".",
        conflicts_with_all = ["check", "store", "seed", "seeds"]
    )]
    stored: Option<String>,
    /// Store what is found in this source tree, in place of earlier results
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    store: Option<String>,
    /// Run the experiments again, count the results stored in this source tree that the run does
    /// not give, and fail if there are any
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        default_missing_value = ".",
        conflicts_with_all = ["store", "html", "svg"]
    )]
    check: Option<String>,
    /// Check experiments that take seconds alone
    #[arg(long, requires = "check")]
    short: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: ReproductionFormat,
}

/// How a reproduction is printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ReproductionFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// Tables and assumptions for a page
    Markdown,
}

/// What every experiment takes.
#[derive(clap::Args, Clone, Copy, Debug)]
struct SeedOptions {
    /// First seed of what is drawn: ports, placements, jobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw so often, with this seed and the following, and print means
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

impl SeedOptions {
    fn all_seeds(self) -> impl Iterator<Item = u64> {
        (0..self.seeds).map(move |more| self.seed.wrapping_add(more))
    }

    /// The first of the seeds by itself.
    fn first_alone(self) -> Self {
        Self { seeds: 1, ..self }
    }
}

/// How long a run takes with the default number of seeds on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExperimentCost {
    /// Some seconds.
    Seconds,
    /// Minutes or more.
    Minutes,
}

type RunExperiment = fn(SeedOptions) -> Result<PaperReproduction, CommandError>;

struct PaperExperiment {
    name: &'static str,
    cost: ExperimentCost,
    run: RunExperiment,
    /// Seeds that it is drawn with at most: more would take too long.
    most_seeds: u64,
}

impl PaperExperiment {
    const fn quick(name: &'static str, run: RunExperiment) -> Self {
        Self { name, cost: ExperimentCost::Seconds, run, most_seeds: u64::MAX }
    }

    const fn long(name: &'static str, run: RunExperiment) -> Self {
        Self { name, cost: ExperimentCost::Minutes, ..Self::quick(name, run) }
    }

    const fn at_most(self, most_seeds: u64) -> Self {
        Self { most_seeds, ..self }
    }

    /// What a run finds.
    fn run_seeds(&self, options: SeedOptions) -> Result<PaperReproduction, CommandError> {
        let seeds = options.seeds.min(self.most_seeds);
        (self.run)(SeedOptions { seeds, ..options })
    }

    fn takes_minutes(&self) -> bool {
        self.cost == ExperimentCost::Minutes
    }

    /// What a run finds, or what is stored.
    fn reproduce(
        &self,
        options: SeedOptions,
        stored: Option<&Reproductions>,
    ) -> Result<PaperReproduction, CommandError> {
        let found = match stored {
            Some(stored) => stored.find(self.name)?.clone(),
            None => self.run_seeds(options)?,
        };
        let drawing = paper_figures::figure_of(self.name).map(|figure| figure.draw(&found));
        Ok(PaperReproduction { experiment: self.name.to_owned(), drawing, ..found })
    }
}

/// All experiments, in the order of the papers.
const EXPERIMENTS: [PaperExperiment; 27] = [
    PaperExperiment::long("calibrate", calibrate::reproduce_calibration).at_most(3),
    PaperExperiment::long("joint", joint::reproduce_joint).at_most(3),
    PaperExperiment::quick("crux-fig6", calibrate::reproduce_fig6).at_most(3),
    PaperExperiment::quick("crux-fig7", calibration::reproduce_fig7),
    PaperExperiment::quick("crux-fig16", decisions::reproduce_fig16),
    PaperExperiment::quick("crux-fig19", testbed::reproduce_fig19),
    PaperExperiment::quick("crux-fig20", testbed::reproduce_fig20),
    PaperExperiment::quick("crux-fig21", pcie::reproduce_fig21),
    PaperExperiment::quick("crux-fig22", pcie::reproduce_fig22),
    PaperExperiment::long("crux-fig23", cluster::reproduce_fig23),
    PaperExperiment::long("crux-fig23-causes", cluster::reproduce_fig23_causes).at_most(3),
    PaperExperiment::long("crux-fig23-profiles", cluster::reproduce_fig23_profiles).at_most(3),
    PaperExperiment::long("crux-fig24", snapshot::reproduce_fig24).at_most(3),
    PaperExperiment::long("crux-fig24-profiles", snapshot::reproduce_fig24_profiles).at_most(3),
    PaperExperiment::long("crux-fig25", cluster::reproduce_fig25).at_most(3),
    PaperExperiment::long("crux-fig25-profiles", cluster::reproduce_fig25_profiles).at_most(3),
    PaperExperiment::quick("sjfbco-fig4", sjf_bco::reproduce_fig4),
    PaperExperiment::quick("sjfbco-fig5", sjf_bco::reproduce_fig5),
    PaperExperiment::quick("sjfbco-fig6", sjf_bco::reproduce_fig6),
    PaperExperiment::quick("sjfbco-fig7", sjf_bco::reproduce_fig7),
    PaperExperiment::quick("sjfbco-theorem5", sjf_bco::reproduce_theorem5),
    PaperExperiment::long("crius-jct", crius::reproduce_jct),
    PaperExperiment::long("crius-ablation", crius::reproduce_ablation),
    PaperExperiment::long("crius-deadlines", crius::reproduce_deadlines),
    PaperExperiment::long("placement-gain", placement_gain::reproduce_placement_gains),
    PaperExperiment::long("who-gains", cluster::reproduce_pairs).at_most(3),
    PaperExperiment::long("who-gains-profiles", cluster::reproduce_pairs_profiles).at_most(3),
];

/// The name that stands for all of them.
const ALL: &str = "all";

fn experiment_names() -> clap::builder::PossibleValuesParser {
    let names = EXPERIMENTS.iter().map(|experiment| experiment.name);
    names.chain([ALL]).collect::<Vec<_>>().into()
}

pub(crate) fn run_reproduce(args: &ReproduceArgs) -> Result<(), CommandError> {
    if let Some(root) = &args.check {
        if args.name != ALL {
            let what = "results are checked together: crux reproduce all --check";
            return Err(CommandError::input("--check", what));
        }
        return stored_results::compare_with_runs(root, args.short, args.options);
    }
    let stored = args.stored.as_deref().map(Reproductions::read).transpose()?;
    let mut done = Vec::new();
    for experiment in
        EXPERIMENTS.iter().filter(|experiment| args.name == ALL || args.name == experiment.name)
    {
        if args.name == ALL && args.stored.is_none() {
            eprintln!("{} ...", experiment.name);
        }
        done.push(experiment.reproduce(args.options, stored.as_ref())?);
    }
    if let Some(file) = &args.html {
        fs::write(file, page::render_page(&done))
            .map_err(|error| CommandError::input(file, error))?;
        eprintln!("wrote {file}");
    }
    if let Some(file) = &args.svg {
        write_drawing(file, &done)?;
    }
    let done = Reproductions { experiments: done };
    if let Some(root) = &args.store {
        done.store(root)?;
    }
    match (args.format, &done.experiments[..]) {
        (ReproductionFormat::Json, [one]) => output::print_json(one),
        (ReproductionFormat::Json, _) => output::print_json(&done),
        (ReproductionFormat::Table, all) => all.iter().try_for_each(report::print_reproduction),
        (ReproductionFormat::Markdown, all) => {
            output::print_line(report::render_markdown(all).trim_end())
        }
    }
}

/// Writes the figures of all reproductions that have one.
fn write_drawing(file: &str, done: &[PaperReproduction]) -> Result<(), CommandError> {
    let mut figures = done.iter().filter_map(|found| found.drawing.as_ref()).peekable();
    if figures.peek().is_none() {
        let none = "--svg: the paper has no figure of what this experiment repeats";
        return Err(CommandError::Failed(none.to_owned()));
    }
    fs::write(file, DrawnFigure::write_file(figures))
        .map_err(|error| CommandError::input(file, error))?;
    eprintln!("wrote {file}");
    Ok(())
}
