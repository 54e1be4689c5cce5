//! The results of all experiments, stored beside the simulator: pages and figures can be had without
//! a run of minutes or hours.
//!
//! They are one document, that of `crux reproduce all --format json`, as gzip.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::report::PaperReproduction;
use super::{EXPERIMENTS, SeedOptions};
use command_io::CommandError;
use command_io::output;

/// Where results are stored in the source tree.
const RESULTS: &str = "controller/simulator/benches/results/reproductions.json.gz";

/// Several reproductions as a document.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reproductions {
    pub(super) experiments: Vec<PaperReproduction>,
}

impl Reproductions {
    /// The results that are stored in this source tree.
    pub(super) fn read(root: &str) -> Result<Self, CommandError> {
        let path = results_path(root);
        let name = path.to_string_lossy();
        let file = File::open(&path).map_err(|error| CommandError::input(&*name, error))?;
        serde_json::from_reader(GzDecoder::new(file))
            .map_err(|error| CommandError::input(&*name, error))
    }

    /// What is stored of an experiment.
    pub(super) fn find(&self, experiment: &str) -> Result<&PaperReproduction, CommandError> {
        let found = self.experiments.iter().find(|one| one.experiment == experiment);
        found.ok_or_else(|| {
            CommandError::Failed(format!(
                "{RESULTS} has no {experiment}; run it: crux reproduce {experiment} --store"
            ))
        })
    }

    /// Stores these results in a source tree, where those of other experiments stay.
    pub(super) fn store(&self, root: &str) -> Result<(), CommandError> {
        let mut all = Self::read(root)?.experiments;
        all.retain(|one| self.experiments.iter().all(|new| new.experiment != one.experiment));
        all.extend(self.experiments.iter().cloned());
        // The order of the papers, so that a file does not depend on what was run last.
        let place = |name: &str| EXPERIMENTS.iter().position(|one| one.name == name);
        all.sort_by_key(|one| place(&one.experiment));
        let path = results_path(root);
        let failed = |error| CommandError::input(path.to_string_lossy(), error);
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut packed, &Self { experiments: all })
            .map_err(CommandError::failed)?;
        let packed = packed.finish().map_err(failed)?;
        fs::write(&path, packed).map_err(failed)?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }
}

fn results_path(root: &str) -> PathBuf {
    Path::new(root).join(RESULTS)
}

/// Runs all experiments again, or those that take seconds, and names every stored figure that the
/// run does not give.
pub(super) fn compare_with_runs(
    root: &str,
    short: bool,
    options: SeedOptions,
) -> Result<(), CommandError> {
    let stored = Reproductions::read(root)?;
    let mut stale = 0;
    for experiment in EXPERIMENTS.iter().filter(|one| !(short && one.takes_minutes())) {
        eprintln!("{} ...", experiment.name);
        let fresh = experiment.run_seeds(options)?;
        let outdated = count_differences(stored.find(experiment.name)?, &fresh);
        if outdated > 0 {
            output::print_line(format_args!(
                "{}: {outdated} stored figures are stale",
                experiment.name
            ))?;
        }
        stale += outdated;
    }
    match stale {
        0 => output::print_line("the stored results are those of this run"),
        stale => Err(CommandError::Failed(format!(
            "{stale} stored figures are stale: find out what changed them, then store the new ones \
             with `crux reproduce NAME --store`"
        ))),
    }
}

/// Figures that are in one of the two only or differ by more than rounding.
fn count_differences(stored: &PaperReproduction, fresh: &PaperReproduction) -> usize {
    let stored = &stored.rows;
    let common = stored.iter().filter(|one| fresh.rows.iter().any(|other| one.is_near(other)));
    stored.len().max(fresh.rows.len()) - common.count()
}

#[cfg(test)]
mod tests {
    use super::super::report::MeasureRow;
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn found(experiment: &str, rows: &[(&str, f64)]) -> PaperReproduction {
        let row = |(measure, ours): &(&str, f64)| MeasureRow::new(*measure, "%", None, &[*ours]);
        PaperReproduction {
            experiment: experiment.to_owned(),
            rows: rows.iter().map(row).collect(),
            ..PaperReproduction::default()
        }
    }

    #[test]
    fn stored_results_that_a_run_does_not_give_are_counted() {
        let stored = found("x", &[("a", 1.0), ("b", 2.0)]);
        assert_eq!(count_differences(&stored, &stored), 0);
        assert_eq!(count_differences(&stored, &found("x", &[("a", 1.1), ("b", 2.0)])), 1);
        assert_eq!(count_differences(&stored, &found("x", &[("a", 1.0)])), 1);
        assert_eq!(count_differences(&found("x", &[("a", 1.0)]), &stored), 1);
    }

    #[test]
    fn every_experiment_is_stored_in_the_order_of_the_papers() {
        let stored = Reproductions::read(ROOT).unwrap();
        let names: Vec<&str> = stored.experiments.iter().map(|one| &*one.experiment).collect();
        assert_eq!(names, EXPERIMENTS.map(|experiment| experiment.name));
        assert!(stored.experiments.iter().all(|one| !one.rows.is_empty()));
    }

    #[test]
    fn a_run_replaces_what_is_stored_of_its_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        fs::create_dir_all(results_path(root).parent().unwrap()).unwrap();
        fs::copy(results_path(ROOT), results_path(root)).unwrap();
        let new = Reproductions { experiments: vec![found("crux-fig7", &[("a", 1.0)])] };
        new.store(root).unwrap();
        let [before, after] = [ROOT, root].map(|root| Reproductions::read(root).unwrap());
        assert_eq!(after.experiments.len(), before.experiments.len());
        for (before, after) in before.experiments.iter().zip(&after.experiments) {
            assert_eq!(before.experiment, after.experiment);
            let is_new = after.experiment == "crux-fig7";
            assert_eq!(count_differences(before, after) > 0, is_new, "{}", after.experiment);
        }
    }
}
