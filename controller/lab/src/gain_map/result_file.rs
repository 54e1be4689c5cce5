//! Results on disk: a line of JSON for each cell that a run has ended, so that an interrupted run
//! goes on where it was and the files of shards make one map.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::cell::MapCell;
use super::cell_run::{CellResult, HashResult};
use command_io::CommandError;

/// Where the map is stored in the source tree, beside the results of reproductions.
const STORED: &str = "controller/simulator/benches/results/gain-map.json.gz";

/// A file that a run appends to.
pub(super) struct ResultFile {
    name: String,
    file: File,
    /// Cells with their seeds.
    done: BTreeSet<(usize, u64)>,
}

impl ResultFile {
    /// Opens or makes a file. What a killed run left of its last line is removed.
    ///
    /// # Errors
    /// It is not a file of results.
    pub(super) fn open(name: &str) -> Result<Self, CommandError> {
        let failed = |error: io::Error| CommandError::input(name, error);
        let text = match fs::read_to_string(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(failed)?,
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let known = parse_lines(name, &text[..whole])?;
        let file = OpenOptions::new().create(true).append(true).open(name).map_err(failed)?;
        file.set_len(whole as u64).map_err(failed)?;
        let done = known.iter().map(|known| (known.cell, known.seed)).collect();
        Ok(Self { name: name.to_owned(), file, done })
    }

    pub(super) fn has_cell(&self, cell: usize, seed: u64) -> bool {
        self.done.contains(&(cell, seed))
    }

    /// Adds a cell, on disk before the next one begins.
    pub(super) fn append(&mut self, result: &CellResult) -> Result<(), CommandError> {
        let line = serde_json::to_string(result).map_err(CommandError::failed)? + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| CommandError::input(&self.name, error))
    }
}

fn parse_lines(name: &str, text: &str) -> Result<Vec<CellResult>, CommandError> {
    let lines = text.lines().enumerate();
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                let what = format!("not a result of crux map run: {error}");
                CommandError::input(format_args!("{name}:{}", number + 1), what)
            })
        })
        .collect()
}

/// A whole map: every cell once with every seed, by cell and then by seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GainMap {
    pub(super) seeds: Vec<u64>,
    results: Vec<CellResult>,
}

impl GainMap {
    /// The map that the files of all shards make.
    ///
    /// # Errors
    /// A cell is missing with a seed that another one has, or has two different results.
    pub(super) fn merge(names: &[String]) -> Result<Self, CommandError> {
        let mut results: BTreeMap<(usize, u64), CellResult> = BTreeMap::new();
        for name in names {
            let text =
                fs::read_to_string(name).map_err(|error| CommandError::input(name, error))?;
            for result in parse_lines(name, &text)? {
                let CellResult { cell, seed, .. } = result;
                let known = results.insert((cell, seed), result.clone());
                if known.is_some_and(|known| known != result) {
                    let what = format!(
                        "cell {cell} with seed {seed} has another result than in the other files; \
                         they are of different versions, so run all shards with one"
                    );
                    return Err(CommandError::input(name, what));
                }
            }
        }
        let seeds: BTreeSet<u64> = results.keys().map(|(_, seed)| *seed).collect();
        let cells = 0..MapCell::all().len();
        let all = cells.flat_map(|cell| seeds.iter().map(move |seed| (cell, *seed)));
        let mut missing = all.filter(|key| !results.contains_key(key));
        match missing.next() {
            None if !seeds.is_empty() => {}
            None => return Err(CommandError::input(names.join(", "), "no results")),
            Some((cell, seed)) => {
                let what = format!(
                    "{} results are missing, the first is cell {cell} with seed {seed}; end the \
                     runs of all shards first",
                    missing.count() + 1
                );
                return Err(CommandError::input(names.join(", "), what));
            }
        }
        drop(missing);
        Ok(Self { seeds: seeds.into_iter().collect(), results: results.into_values().collect() })
    }

    /// The map that is stored in this source tree.
    pub(super) fn read_stored(root: &str) -> Result<Self, CommandError> {
        let path = stored_path(root);
        let name = path.to_string_lossy();
        let file = File::open(&path).map_err(|error| CommandError::input(&*name, error))?;
        serde_json::from_reader(GzDecoder::new(file))
            .map_err(|error| CommandError::input(&*name, error))
    }

    /// Stores the map in a source tree.
    pub(super) fn store(&self, root: &str) -> Result<PathBuf, CommandError> {
        let path = stored_path(root);
        let failed = |error: io::Error| CommandError::input(path.to_string_lossy(), error);
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut packed, self).map_err(CommandError::failed)?;
        fs::write(&path, packed.finish().map_err(failed)?).map_err(failed)?;
        Ok(path)
    }

    /// What `value` makes of the utilisations of a cell, in the mean over the seeds.
    pub(super) fn mean(&self, cell: usize, hash: usize, value: impl Fn(&HashResult) -> f64) -> f64 {
        let seeds = self.seeds.len();
        let runs = &self.results[cell * seeds..(cell + 1) * seeds];
        runs.iter().map(|run| value(&run.hashes[hash])).sum::<f64>() / seeds as f64
    }
}

fn stored_path(root: &str) -> PathBuf {
    Path::new(root).join(STORED)
}

#[cfg(test)]
mod tests {
    use super::super::cell::HASHES;
    use super::super::cell_run::SCHEDULERS;
    use super::*;

    fn result(cell: usize, seed: u64, value: f64) -> CellResult {
        let all = SCHEDULERS.iter().map(|one| (one.name().to_owned(), value));
        let all: HashResult = all.collect();
        CellResult { cell, seed, hashes: HASHES.map(|_| all.clone()) }
    }

    fn write(folder: &Path, name: &str, cells: impl Iterator<Item = usize>) -> String {
        let path = folder.join(name).to_string_lossy().into_owned();
        let mut file = ResultFile::open(&path).unwrap();
        for cell in cells {
            for seed in [1, 2] {
                file.append(&result(cell, seed, (cell as f64) + seed as f64)).unwrap();
            }
        }
        path
    }

    #[test]
    fn a_line_that_a_kill_cut_off_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a", 0..3);
        let text = fs::read_to_string(&path).unwrap();
        for kept in [0, 1, text.len() / 2, text.len() - 1] {
            fs::write(&path, &text[..kept]).unwrap();
            let mut file = ResultFile::open(&path).unwrap();
            let all = (0..3).flat_map(|cell| [(cell, 1), (cell, 2)]);
            let missing = all.filter(|(cell, seed)| !file.has_cell(*cell, *seed));
            let missing: Vec<(usize, u64)> = missing.collect();
            assert!(!missing.is_empty());
            for (cell, seed) in missing {
                file.append(&result(cell, seed, (cell as f64) + seed as f64)).unwrap();
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn shards_make_a_map_and_errors_say_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let count = MapCell::all().len();
        let odd = write(folder.path(), "odd", (0..count).filter(|cell| cell % 2 == 1));
        let even = write(folder.path(), "even", (0..count).filter(|cell| cell % 2 == 0));
        let fails = |names: &[&String]| {
            let names: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
            GainMap::merge(&names).unwrap_err().to_string()
        };
        assert!(
            fails(&[&odd]).contains("384 results are missing, the first is cell 0 with seed 1")
        );
        let map = GainMap::merge(&[odd.clone(), even.clone()]).unwrap();
        assert_eq!(map, GainMap::merge(&[even.clone(), odd.clone()]).unwrap());
        assert!((map.mean(5, 1, |of| of["crux"] - 2.0) - 4.5).abs() < 1e-9);
        fs::create_dir_all(stored_path(&folder.path().to_string_lossy()).parent().unwrap())
            .unwrap();
        map.store(&folder.path().to_string_lossy()).unwrap();
        assert_eq!(GainMap::read_stored(&folder.path().to_string_lossy()).unwrap(), map);
        let path = folder.path().join("other").to_string_lossy().into_owned();
        fs::write(&path, serde_json::to_string(&result(0, 1, 7.0)).unwrap() + "\n").unwrap();
        assert!(fails(&[&odd, &even, &path]).contains("cell 0 with seed 1 has another result"));
        fs::write(&path, "{}\n").unwrap();
        assert!(fails(&[&path]).contains("other:1: not a result of crux map run"));
        fs::write(&path, "").unwrap();
        assert!(fails(&[&path]).contains("no results"));
    }
}
