//! What commands print: tables for people, JSON for programs.

use std::io::{self, ErrorKind, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::command_error::CommandError;

/// Output format, the value of `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs; keys never change meaning
    Json,
}

/// The option that every command with a result takes.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct FormatArg {
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}

/// An empty table with these headings.
pub fn new_table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings);
    table
}

/// Prints text and a line end. A reader that went away (`crux … | head`) is no failure.
pub fn print_line(text: impl std::fmt::Display) -> Result<(), CommandError> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::failed(&error)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    print_line(serde_json::to_string_pretty(value).map_err(CommandError::failed)?)
}
