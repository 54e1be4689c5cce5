//! The house rules as one command.
//!
//! `cargo xtask check` runs formatting, lints and every rule of [`check`]; `cargo xtask generate`
//! writes
//! the files that are generated from the code. Each rule is a function from the tree to its
//! violations and is also a test, so `cargo test --workspace` holds the same rules.

mod book;
mod check;
mod configuration_page;
mod generate;
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
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = tree::workspace_root();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check::run_checks(&root),
        ["generate"] => generate::write_generated(&root, None),
        ["generate", programs] => generate::write_generated(&root, Some(programs)),
        ["book"] => book::build_book(&root),
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
