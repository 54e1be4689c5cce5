//! `cargo xtask nightly`: the property tests with many cases, one package after another.
//!
//! A change is guarded by few cases of each (`.cargo/config.toml`). Properties are found in the
//! sources, so that a new one is in the long run without being listed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::source::{block_length, read_tokens};
use crate::tree::{self, SourceFile};

/// Cases of each property, if the command names no number.
const CASES: u32 = 4096;

/// Names of property tests by the package that has them.
type Properties = BTreeMap<String, BTreeSet<String>>;

/// What a run has of each property.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LongRun {
    cases: u32,
    /// The cases follow from it. It is an argument alone: cargo sets the variable of a change for
    /// this program as well.
    seed: u64,
}

impl LongRun {
    /// The number of cases and the seed, as far as they are given; none for other words.
    pub(crate) fn parse_words(words: &[&str]) -> Option<Self> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let new_seed = since_epoch.as_secs();
        match words {
            [] => Some(Self { cases: CASES, seed: new_seed }),
            [cases] => Some(Self { cases: cases.parse().ok()?, seed: new_seed }),
            [cases, seed] => Some(Self { cases: cases.parse().ok()?, seed: seed.parse().ok()? }),
            _ => None,
        }
    }

    /// Runs all property tests; a package that fails does not keep others from being run.
    pub(crate) fn run_properties(&self, root: &Path) -> ExitCode {
        let Self { cases, seed } = self;
        let properties = match find_workspace_properties(root) {
            Ok(properties) => properties,
            Err(error) => {
                eprintln!("xtask nightly: {error}");
                return ExitCode::FAILURE;
            }
        };
        let mut failed = Vec::new();
        for (package, names) in &properties {
            println!(
                "== {package}: {} properties, {cases} cases each from seed {seed}",
                names.len()
            );
            let run = Command::new("cargo")
                .args(["test", "--quiet", "--package", package, "--tests", "--"])
                .args(names)
                .env("PROPTEST_CASES", cases.to_string())
                .env("PROPTEST_RNG_SEED", seed.to_string())
                .current_dir(root)
                .status();
            if !run.is_ok_and(|status| status.success()) {
                failed.push(package.as_str());
            }
        }
        if failed.is_empty() {
            return ExitCode::SUCCESS;
        }
        eprintln!("xtask nightly: properties failed in {}", failed.join(", "));
        ExitCode::FAILURE
    }
}

fn find_workspace_properties(root: &Path) -> Result<Properties, String> {
    let manifests = tree::read_files(root, "Cargo.toml")?;
    let sources = tree::rust_files(root)?;
    let mut found = Properties::new();
    for source in &sources {
        let names = property_names(&source.text);
        if names.is_empty() {
            continue;
        }
        let package = package_of(source, &manifests)
            .ok_or_else(|| format!("{}: no manifest above it has a name", source.path))?;
        found.entry(package.to_owned()).or_default().extend(names);
    }
    Ok(found)
}

/// The name in the nearest manifest above a file.
fn package_of<'a>(source: &SourceFile, manifests: &'a [SourceFile]) -> Option<&'a str> {
    let above = manifests.iter().filter(|manifest| {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        source.path.starts_with(folder) && manifest.text.contains("[package]")
    });
    let nearest = above.max_by_key(|manifest| manifest.path.len())?;
    let name = nearest.text.lines().find_map(|line| line.strip_prefix("name = \""))?;
    name.strip_suffix('"')
}

/// The functions in the blocks of `proptest!`.
fn property_names(text: &str) -> BTreeSet<String> {
    let tokens = read_tokens(text);
    let mut names = BTreeSet::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.is("proptest")) {
        let [_, bang, block @ ..] = &tokens[at..] else { continue };
        if !bang.is("!") || !block.first().is_some_and(|token| token.is("{")) {
            continue;
        }
        let block = &block[..block_length(block)];
        let functions = block.windows(2).filter(|pair| pair[0].is("fn"));
        names.extend(functions.map(|pair| pair[1].text.to_owned()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_the_one_that_is_given_and_no_variable() {
        let run = LongRun::parse_words(&["9", "5"]);
        assert_eq!(run, Some(LongRun { cases: 9, seed: 5 }));
        // Cargo has set PROPTEST_RNG_SEED to 1 here as in the program.
        assert!(LongRun::parse_words(&[]).is_some_and(|run| run.seed > 1_000_000));
        assert_eq!(LongRun::parse_words(&["--help"]), None);
    }

    #[test]
    fn properties_are_found_with_their_package() {
        let text = "use proptest::prelude::*;\nfn a() {}\nproptest! {\n#[test]\nfn b(x in 0..9) { \
                    if x > 1 {} }\n#[test]\nfn c(y in any::<u8>()) {}\n}\nfn d() {}\n";
        assert_eq!(property_names(text), ["b", "c"].map(str::to_owned).into());
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let manifests = [
            file("Cargo.toml", "[workspace]\n"),
            file("p4/Cargo.toml", "[package]\nname = \"p4\"\n"),
            file("p4/runtime-proto/Cargo.toml", "[package]\nname = \"p4runtime-proto\"\n"),
        ];
        assert_eq!(package_of(&file("p4/src/a.rs", ""), &manifests), Some("p4"));
        let inner = file("p4/runtime-proto/src/a.rs", "");
        assert_eq!(package_of(&inner, &manifests), Some("p4runtime-proto"));
        assert_eq!(package_of(&file("src/a.rs", ""), &manifests), None);
    }

    #[test]
    fn every_property_of_the_tree_is_in_the_long_run() {
        let root = tree::workspace_root();
        let found = find_workspace_properties(&root).unwrap();
        let files = tree::rust_files(&root).unwrap();
        let blocks = files.iter().filter(|file| file.text.contains("\nproptest! {"));
        for file in blocks {
            assert!(!property_names(&file.text).is_empty(), "{}", file.path);
        }
        for package in ["planner", "p4", "topology", "controller", "switch"] {
            assert!(found.contains_key(package), "{package}");
        }
    }
}
