//! What commands print: tables for people, JSON for programs.

use std::borrow::Cow;
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

/// The text as a terminal may show it: what could move the cursor, change colours or the direction
/// of writing, or pretend to be another line of a table is written as its code.
fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| match c {
        '\n' | '\t' => false,
        // Marks that change the direction of writing, and those that are not seen.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        c => c.is_control(),
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|c| match is_harmful(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// Prints text and a line end; characters that control a terminal are escaped. A reader that went
/// away (`crux … | head`) is no failure.
pub fn print_line(text: impl std::fmt::Display) -> Result<(), CommandError> {
    let text = text.to_string();
    match writeln!(io::stdout().lock(), "{}", escape_controls(&text)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::failed(&error)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    print_line(serde_json::to_string_pretty(value).map_err(CommandError::failed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_controls_a_terminal() {
        assert_eq!(escape_controls("job ö\n\t1"), "job ö\n\t1");
        let evil = "a\u{1b}[2Jb\rc\0\u{202e}d\u{9b}e";
        assert_eq!(escape_controls(evil), "a\\u{1b}[2Jb\\rc\\u{0}\\u{202e}d\\u{9b}e");
    }
}
