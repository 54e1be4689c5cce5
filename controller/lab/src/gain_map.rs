//! `crux map`: where Crux gains, where nothing is to gain, and where it loses.
//!
//! A [`cell`] is a fabric with jobs by six parameters; [`cell_run`] simulates it under all
//! schedulers. A run appends to a [`result_file`], from which it goes on after an interruption; the
//! files of several shards are merged into the map that [`summary`] and [`figure`] show.

mod cell;
mod cell_run;
mod figure;
mod result_file;
mod summary;

use std::fs;
use std::str::FromStr;

use self::cell::MapCell;
use self::cell_run::CellResult;
use self::result_file::{GainMap, ResultFile};
use crate::progress::progress_bar;
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Compare all schedulers over oversubscription, connections, sharing of NICs, volume, periods of
/// jobs, and polarised hashes.
#[derive(clap::Subcommand)]
pub(crate) enum MapCommand {
    Run(MapRunArgs),
    Merge(MapMergeArgs),
    Show(MapShowArgs),
}

/// Run the cells of the map, or a shard of them; one that was interrupted goes on where it was.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux map run --results map.jsonl
  crux map run --results map-1.jsonl --shard 1/4 --seeds 3")]
pub(crate) struct MapRunArgs {
    /// File that gets a line for each cell and seed; those that it has are not run again
    #[arg(long, value_name = "FILE")]
    results: String,
    /// Only every N-th cell, from the I-th on
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// First seed of places, ports, computations and volumes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw so often, with this seed and the following
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

/// Merge the results of all shards into one map.
#[derive(clap::Args)]
#[command(after_help = "Example:  crux map merge map-1.jsonl map-2.jsonl --store")]
pub(crate) struct MapMergeArgs {
    /// Files of crux map run
    #[arg(required = true, value_name = "FILE")]
    results: Vec<String>,
    /// Store the map in this source tree, in place of the earlier one
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    store: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// Show the map that is stored in a source tree.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux map show
  crux map show --svg gain-map.svg
  crux map show --stored ~/crux --format json > map.json")]
pub(crate) struct MapShowArgs {
    /// The source tree
    #[arg(long, value_name = "DIR", default_value = ".")]
    stored: String,
    /// Also draw the map to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// A part of all cells: every `count`-th, from the one numbered `number` (from 1) on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    number: usize,
    count: usize,
}

impl Shard {
    fn has_cell(self, cell: usize) -> bool {
        cell % self.count == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/');
        let numbers =
            parts.and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((number, count)) if (1..=count).contains(&number) => Ok(Self { number, count }),
            _ => Err(format!("`{text}` must be I/N with I from 1 to N, such as 2/8")),
        }
    }
}

pub(crate) fn run_map(command: &MapCommand) -> Result<(), CommandError> {
    match command {
        MapCommand::Run(args) => run_cells(args),
        MapCommand::Merge(args) => {
            let map = GainMap::merge(&args.results)?;
            if let Some(root) = &args.store {
                eprintln!("wrote {}", map.store(root)?.display());
            }
            print_map(&map, args.output.format)
        }
        MapCommand::Show(args) => {
            let map = GainMap::read_stored(&args.stored)?;
            if let Some(file) = &args.svg {
                fs::write(file, figure::draw_map(&map))
                    .map_err(|error| CommandError::input(file, error))?;
                eprintln!("wrote {file}");
            }
            print_map(&map, args.output.format)
        }
    }
}

/// Seed by seed, so that an interrupted run has all cells with the first seeds.
fn run_cells(args: &MapRunArgs) -> Result<(), CommandError> {
    let mut results = ResultFile::open(&args.results)?;
    let cells = MapCell::all();
    let mine = cells.iter().enumerate().filter(|(number, _)| args.shard.has_cell(*number));
    let progress = progress_bar("cells", mine.clone().count() as u64 * args.seeds);
    for seed in (0..args.seeds).map(|more| args.seed.wrapping_add(more)) {
        for (number, cell) in mine.clone() {
            if !results.has_cell(number, seed) {
                results.append(&CellResult::run(number, cell, seed)?)?;
            }
            progress.inc(1);
        }
    }
    Ok(())
}

fn print_map(map: &GainMap, format: OutputFormat) -> Result<(), CommandError> {
    match format {
        OutputFormat::Json => output::print_json(map),
        OutputFormat::Table => summary::print_summary(map),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_every_cell_once() {
        let shards: Vec<Shard> =
            ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().unwrap()).collect();
        for cell in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has_cell(cell)).count(), 1);
        }
        for wrong in ["", "0/3", "4/3", "1", "1/0", "a/b", "-1/3"] {
            assert!(wrong.parse::<Shard>().unwrap_err().contains("from 1 to N"), "{wrong}");
        }
    }
}
