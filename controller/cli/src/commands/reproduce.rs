//! `crux reproduce`: the experiments of the papers, each under the name of its figure.
//!
//! An experiment is a function from [`Options`] to [`Reproduction`]: rows of what the paper says
//! and what came out here, and what had to be assumed. The decision: no experiment has a model of
//! its own. They ask the planner, the simulator and the placement policies, and say what with.

mod calibration;
mod cells;
mod cluster;
mod decisions;
mod large_models;
mod page;
mod report;
mod rings;
mod snapshot;
mod testbed;

use std::fs;

use serde::Serialize;

use self::report::Reproduction;
use crate::failure::Failure;
use crate::output::{self, Format, FormatArg};

/// Repeat an experiment of a paper: what it says, what comes out here, and what was assumed.
///
/// docs/reproduction.md says of each where it differs, and why.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux reproduce crux-fig20
  crux reproduce sjfbco-fig5 --seed 7 --seeds 1 --format json
  crux reproduce all --html reproductions.html")]
pub(crate) struct Args {
    /// The experiment, by the figure that it repeats
    #[arg(value_name = "NAME", value_parser = names())]
    name: String,
    #[command(flatten)]
    options: Options,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// What every experiment takes.
#[derive(clap::Args, Clone, Copy, Debug)]
struct Options {
    /// First seed of what is drawn: ports, placements, jobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw so often, with this seed and the following, and print means
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

impl Options {
    fn all(self) -> impl Iterator<Item = u64> {
        (0..self.seeds).map(move |more| self.seed.wrapping_add(more))
    }
}

struct Experiment {
    name: &'static str,
    run: fn(Options) -> Result<Reproduction, Failure>,
}

/// All experiments, in the order of the papers.
const EXPERIMENTS: [Experiment; 13] = [
    Experiment {
        name: "crux-fig7",
        run: calibration::fig7,
    },
    Experiment {
        name: "crux-fig16",
        run: decisions::fig16,
    },
    Experiment {
        name: "crux-fig19",
        run: testbed::fig19,
    },
    Experiment {
        name: "crux-fig20",
        run: testbed::fig20,
    },
    Experiment {
        name: "crux-fig23",
        run: cluster::fig23,
    },
    Experiment {
        name: "crux-fig24",
        run: snapshot::fig24,
    },
    Experiment {
        name: "crux-fig25",
        run: cluster::fig25,
    },
    Experiment {
        name: "sjfbco-fig4",
        run: rings::fig4,
    },
    Experiment {
        name: "sjfbco-fig5",
        run: rings::fig5,
    },
    Experiment {
        name: "sjfbco-fig6",
        run: rings::fig6,
    },
    Experiment {
        name: "crius-jct",
        run: cells::jct,
    },
    Experiment {
        name: "crius-ablation",
        run: cells::ablation,
    },
    Experiment {
        name: "who-gains",
        run: cluster::pairs,
    },
];

/// The name that stands for all of them.
const ALL: &str = "all";

fn names() -> clap::builder::PossibleValuesParser {
    let names = EXPERIMENTS.iter().map(|experiment| experiment.name);
    names.chain([ALL]).collect::<Vec<_>>().into()
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let asked = |experiment: &&Experiment| args.name == ALL || args.name == experiment.name;
    let mut done = Vec::new();
    for experiment in EXPERIMENTS.iter().filter(asked) {
        if args.name == ALL {
            eprintln!("{} ...", experiment.name);
        }
        let mut reproduction = (experiment.run)(args.options)?;
        reproduction.experiment = experiment.name.to_owned();
        done.push(reproduction);
    }
    if let Some(file) = &args.html {
        fs::write(file, page::page(&done)).map_err(|error| Failure::input(file, error))?;
        eprintln!("wrote {file}");
    }
    match (args.output.format, &done[..]) {
        (Format::Json, [one]) => output::print_json(one),
        (Format::Json, many) => output::print_json(&All { experiments: many }),
        (Format::Table, _) => done.iter().try_for_each(report::print),
    }
}

/// Several reproductions as a document.
#[derive(Serialize)]
struct All<'a> {
    experiments: &'a [Reproduction],
}
