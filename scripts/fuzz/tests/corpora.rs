//! The short run: every target over its corpus, and over some thousand mutations of it.
//!
//! An input whose name begins with `refused` may be refused. All others must be accepted: after a
//! change of a format, they would test no more than its first check.
//!
//! `FUZZ_EXECUTIONS=N` makes it N mutations of each target, `FUZZ_SEED=S` other ones.

#![allow(clippy::unwrap_used, reason = "a test whose files are not there fails")]

use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuzz_targets::mutation::InputMutator;
use fuzz_targets::{FuzzTarget, TARGETS};

/// Bytes of a corpus.
const CORPUS_BYTES: usize = 16 * 1024;
/// No input may take longer, on however loaded a machine.
const INPUT_DEADLINE: Duration = Duration::from_secs(20);

/// Panics of any thread: those of tasks end nowhere else.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The inputs of a target, by name.
fn read_corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut inputs: Vec<_> = files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

fn environment_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs one input, and says which it was if anything panics. Returns whether it was accepted.
fn run_input(target: &FuzzTarget, input: &[u8], what: &str) -> bool {
    let begun = Instant::now();
    let returned = panic::catch_unwind(|| (target.run)(input));
    let is_sound = returned.is_ok() && PANICS.load(Ordering::SeqCst) == 0;
    assert!(is_sound, "{}, {what}: {}", target.name, input.escape_ascii());
    let taken = begun.elapsed();
    assert!(taken < INPUT_DEADLINE, "{}, {what}: {taken:?}", target.name);
    returned.is_ok_and(|accepted| accepted.is_some())
}

#[test]
fn no_target_panics_on_its_corpus_or_on_mutations_of_it() {
    let report_panic = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report_panic(info);
    }));
    let seed = environment_number("FUZZ_SEED").unwrap_or(1);
    for target in &TARGETS {
        let begun = Instant::now();
        let (names, corpus): (Vec<_>, Vec<_>) = read_corpus(target.name).into_iter().unzip();
        for (name, input) in names.iter().zip(&corpus) {
            let is_accepted = run_input(target, input, name);
            assert!(is_accepted || name.starts_with("refused"), "{}/{name}", target.name);
        }
        let mut mutator = InputMutator::new(&corpus, seed);
        let mutations = environment_number("FUZZ_EXECUTIONS").unwrap_or(target.short_run.into());
        for number in 0..mutations {
            run_input(target, &mutator.next_input(), &format!("mutation {number} of seed {seed}"));
        }
        println!(
            "{}: {} inputs, {:?}",
            target.name,
            corpus.len() as u64 + mutations,
            begun.elapsed()
        );
    }
}

#[test]
fn corpora_are_small_and_belong_to_targets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora");
    let mut folders: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let mut names = TARGETS.map(|target| target.name);
    names.sort_unstable();
    assert_eq!(folders, names);
    for name in names {
        let corpus = read_corpus(name);
        let bytes: usize = corpus.iter().map(|(_, input)| input.len()).sum();
        assert!(!corpus.is_empty() && bytes <= CORPUS_BYTES, "{name}: {bytes} bytes");
    }
}
