//! The long run of the fuzz targets: libFuzzer, on the stable toolchain.
//!
//! The decision: targets take turns of equal time until together they have made the executions that
//! were asked for, so that the slow ones, which start a server or plan, get as much of the machine
//! as parsers. What they find is kept from turn to turn beside the build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The instrumentation that libFuzzer reads. These flags need no nightly compiler.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// With a target named, flags are not those of build scripts.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// An input that takes so many seconds hangs.
const TIMEOUT_SECONDS: u32 = 30;
/// Memory of a target, in MiB.
const MEMORY_MIB: u32 = 2_048;
/// The longest input.
const INPUT_BYTES: u32 = 8_192;

/// Executions of all targets, and seconds of a turn, where none are given.
const EXECUTIONS: u64 = 10_000_000;
const TURN_SECONDS: u64 = 30;

/// What a target did.
#[derive(Debug, Default)]
struct TargetTotals {
    executions: u64,
    seconds: u64,
    peak_mib: u64,
    /// Covered edges, of the latest turn.
    coverage: u64,
    failure: Option<String>,
}

/// Folders of the run.
struct FuzzRun {
    program: PathBuf,
    corpora: PathBuf,
    work: PathBuf,
    turn_seconds: u64,
}

/// What was asked for on the command line.
#[derive(Debug, PartialEq, Eq)]
struct FuzzArguments<'a> {
    executions: u64,
    turn_seconds: u64,
    /// The targets to run; all of them if none is named.
    targets: &'a [&'a str],
}

impl<'a> FuzzArguments<'a> {
    fn parse_words(words: &'a [&'a str]) -> Result<Self, String> {
        let is_number = |word: &&str| word.parse::<u64>().is_ok();
        let (numbers, targets) = words.split_at(words.iter().take_while(|w| is_number(w)).count());
        let numbers: Vec<u64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
        let (executions, turn_seconds) = match numbers[..] {
            [] => (EXECUTIONS, TURN_SECONDS),
            [executions] => (executions, TURN_SECONDS),
            [executions, seconds] => (executions, seconds),
            _ => return Err("usage: cargo xtask fuzz [EXECUTIONS [SECONDS]] [TARGET...]".into()),
        };
        Ok(Self { executions, turn_seconds, targets })
    }

    /// The named ones of all targets.
    fn select_targets(&self, all: Vec<String>) -> Result<Vec<String>, String> {
        if self.targets.is_empty() {
            return Ok(all);
        }
        let named: Vec<String> = self.targets.iter().map(|name| (*name).to_owned()).collect();
        match named.iter().find(|name| !all.contains(name)) {
            Some(unknown) => Err(format!("no target {unknown}; there are {}", all.join(", "))),
            None => Ok(named),
        }
    }
}

/// Fuzzes targets in turn, until the executions were made or each has failed. `words` are the
/// number of executions, the seconds of a turn and names of targets, as far as they are given.
pub(crate) fn run_fuzzing(root: &Path, words: &[&str]) -> ExitCode {
    match FuzzArguments::parse_words(words).and_then(|asked| fuzz_targets(root, &asked)) {
        Ok(totals) if totals.values().all(|total| total.failure.is_none()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fuzz_targets(
    root: &Path,
    asked: &FuzzArguments<'_>,
) -> Result<BTreeMap<String, TargetTotals>, String> {
    let run = build_run(root, asked.turn_seconds)?;
    let names = asked.select_targets(target_names(&run.corpora)?)?;
    let mut totals: BTreeMap<String, TargetTotals> =
        names.into_iter().map(|name| (name, TargetTotals::default())).collect();
    while totals.values().map(|total| total.executions).sum::<u64>() < asked.executions {
        let sound = totals.iter_mut().filter(|(_, total)| total.failure.is_none());
        let mut is_idle = true;
        for (name, total) in sound {
            run.take_turn(name, total)?;
            is_idle = false;
        }
        println!("{}", render_table(&totals));
        if is_idle {
            break;
        }
    }
    Ok(totals)
}

fn build_run(root: &Path, turn_seconds: u64) -> Result<FuzzRun, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let work = target.join("fuzz");
    let manifest = root.join("scripts/fuzz/libfuzzer/Cargo.toml");
    let built = Command::new("cargo")
        .args(["build", "--release", "--target", PLATFORM, "--manifest-path"])
        .arg(manifest)
        .env("RUSTFLAGS", INSTRUMENTATION)
        .env("CARGO_TARGET_DIR", &work)
        .status();
    match built {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("cargo build: {status}")),
        Err(error) => return Err(format!("cargo build: {error}")),
    }
    Ok(FuzzRun {
        program: work.join(PLATFORM).join("release/fuzz"),
        corpora: root.join("scripts/fuzz/corpora"),
        work,
        turn_seconds,
    })
}

/// The targets: each has a folder with its corpus.
fn target_names(corpora: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(corpora).map_err(|e| format!("{}: {e}", corpora.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.collect())
}

impl FuzzRun {
    fn take_turn(&self, name: &str, total: &mut TargetTotals) -> Result<(), String> {
        let found = self.work.join("found").join(name);
        let failures = self.work.join("failures");
        for folder in [&found, &failures] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let output = Command::new(&self.program)
            .env("FUZZ_TARGET", name)
            .arg(format!("-max_total_time={}", self.turn_seconds))
            .arg(format!("-timeout={TIMEOUT_SECONDS}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-max_len={INPUT_BYTES}"))
            .arg(format!("-artifact_prefix={}/{name}-", failures.display()))
            .arg("-print_final_stats=1")
            .args([&found, &self.corpora.join(name)])
            .stdout(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let log = String::from_utf8_lossy(&output.stderr);
        total.add_turn(&log, self.turn_seconds);
        if !output.status.success() {
            let log_file = failures.join(format!("{name}.log"));
            fs::write(&log_file, log.as_bytes()).map_err(|error| error.to_string())?;
            total.failure = Some(format!("{}: {}", output.status, log_file.display()));
        }
        Ok(())
    }
}

impl TargetTotals {
    /// Adds what libFuzzer says at the end of a turn.
    fn add_turn(&mut self, log: &str, seconds: u64) {
        let number = |name: &str| {
            let line = log.lines().rev().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        self.executions += number("stat::number_of_executed_units:");
        self.peak_mib = self.peak_mib.max(number("stat::peak_rss_mb:"));
        self.seconds += seconds;
        let covered = log.lines().rev().find_map(|line| line.split_once(" cov: "));
        let covered = covered.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        self.coverage = covered.unwrap_or(self.coverage);
    }
}

fn render_table(totals: &BTreeMap<String, TargetTotals>) -> String {
    let mut text = String::from("| target | executions | seconds | peak MiB | edges | failure |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for (name, total) in totals {
        let failure = total.failure.as_deref().unwrap_or("none");
        let TargetTotals { executions, seconds, peak_mib, coverage, .. } = total;
        let row = format!("| {executions} | {seconds} | {peak_mib} | {coverage} | {failure} |\n");
        text.push_str(&format!("| `{name}` {row}"));
    }
    let all: u64 = totals.values().map(|total| total.executions).sum();
    text + &format!("| all | {all} | | | | |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_two_numbers_and_names_of_targets() {
        let asked = FuzzArguments::parse_words(&["9000", "60", "jobs", "store"]).unwrap();
        assert_eq!((asked.executions, asked.turn_seconds), (9_000, 60));
        let all = || ["jobs", "netlink", "store"].map(str::to_owned).to_vec();
        assert_eq!(asked.select_targets(all()).unwrap(), ["jobs", "store"]);
        let none = FuzzArguments::parse_words(&[]).unwrap();
        assert_eq!(none.select_targets(all()).unwrap(), all());
        let unknown = FuzzArguments::parse_words(&["jbos"]).unwrap().select_targets(all());
        assert!(unknown.unwrap_err().contains("netlink"));
        assert!(FuzzArguments::parse_words(&["1", "2", "3"]).is_err());
    }

    #[test]
    fn turns_add_up_and_their_table_has_every_target() {
        let log = "#9\tNEW    cov: 812 ft: 9 corp: 1/1b\n#10\tDONE   cov: 830 ft: 9\n\
                   stat::number_of_executed_units: 1000\nstat::peak_rss_mb:              61\n";
        let mut total = TargetTotals::default();
        total.add_turn(log, 30);
        total.add_turn(log, 30);
        let counted = (total.executions, total.seconds, total.peak_mib, total.coverage);
        assert_eq!(counted, (2_000, 60, 61, 830));
        let table = render_table(&BTreeMap::from([("jobs".to_owned(), total)]));
        assert!(table.contains("| `jobs` | 2000 | 60 | 61 | 830 | none |"), "{table}");
        assert!(table.contains("| all | 2000 |"), "{table}");
    }
}
