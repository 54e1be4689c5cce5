//! The house rules as one command.
//!
//! `cargo xtask check` runs formatting, lints and every rule of [`check`]; `cargo xtask generate`
//! writes
//! the files that are generated from the code. Each rule is a function from the tree to its
//! violations and is also a test, so `cargo test --workspace` holds the same rules.

mod book;
mod check;
mod configuration_page;
mod fuzz;
mod generate;
mod nightly;
mod page_text;
mod source;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check      formatting, lints, floors, documentation and generated files
  generate [PROGRAMS]
             write man pages, JSON Schemas, the OpenAPI document and reference pages to
             target/generated, with the programs of a folder or those of this tree
  book       build the documentation as a site in target/book (needs mdbook)
  nightly [CASES [SEED]]
             run the property tests with so many cases each (4096), which follow from the seed (one
             that is new each time), one package after another
  fuzz [EXECUTIONS [SECONDS]] [TARGET...]
             fuzz the targets of scripts/fuzz, or those that are named, in turns of so many
             seconds (30), until together they have made so many executions (10,000,000)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = tree::workspace_root();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check::run_checks(&root),
        ["generate"] => generate::write_generated(&root, None),
        ["generate", programs] => generate::write_generated(&root, Some(programs)),
        ["book"] => book::build_book(&root),
        ["nightly", numbers @ ..] => match nightly::LongRun::parse_words(numbers) {
            Some(run) => run.run_properties(&root),
            None => print_misuse(),
        },
        ["fuzz", bounds @ ..] => fuzz::run_fuzzing(&root, bounds),
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => print_misuse(),
    }
}

fn print_misuse() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
