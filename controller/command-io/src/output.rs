//! What commands print: tables for people, JSON for programs.
//!
//! The decision: terminals alone see colours and lines broken to their width; what goes to a file
//! or a pipe is the same everywhere.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Cell, ContentArrangement, Row, Table, presets};
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

/// An empty table with these headings, as wide as the terminal at most.
pub fn new_table(headings: impl IntoIterator<Item = impl Into<Cell>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(Row::from(headings));
    if let Some((terminal_size::Width(columns), _)) = terminal_size::terminal_size_of(io::stdout())
    {
        table.set_width(columns);
    }
    table
}

/// What a word says to whom a colour says it faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordMeaning {
    Bad,
    Doubtful,
    Good,
}

impl WordMeaning {
    /// The sequence that begins its colour on a terminal.
    fn colour(self) -> &'static str {
        match self {
            Self::Bad => "\u{1b}[31m",
            Self::Doubtful => "\u{1b}[33m",
            Self::Good => "\u{1b}[32m",
        }
    }
}

const COLOUR_END: &str = "\u{1b}[0m";

/// Words that begin a line.
const LINE_WORDS: [(&str, WordMeaning); 5] = [
    ("error:", WordMeaning::Bad),
    ("FAILS:", WordMeaning::Bad),
    ("warning:", WordMeaning::Doubtful),
    ("holds:", WordMeaning::Good),
    ("no problems found", WordMeaning::Good),
];

/// Words that fill a cell of a table.
const CELL_WORDS: [(&str, WordMeaning); 6] = [
    ("down", WordMeaning::Bad),
    ("disconnected", WordMeaning::Bad),
    ("drained", WordMeaning::Doubtful),
    ("returning", WordMeaning::Doubtful),
    ("being profiled", WordMeaning::Doubtful),
    ("better", WordMeaning::Good),
];

/// The text with colours for words that say whether something is well.
fn colour_by_meaning(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(colour_line).collect();
    lines.join("\n")
}

fn colour_line(line: &str) -> String {
    if let Some((word, meaning)) = LINE_WORDS.iter().find(|(word, _)| line.starts_with(word)) {
        return format!("{}{word}{COLOUR_END}{}", meaning.colour(), &line[word.len()..]);
    }
    let mut coloured = line.to_owned();
    for (word, meaning) in CELL_WORDS {
        // Cells are apart by two spaces; a row begins and ends with one.
        let cell = format!("  {word} ");
        let shown = format!("  {}{word}{COLOUR_END} ", meaning.colour());
        if coloured.starts_with(' ') {
            coloured = coloured.replace(&cell, &shown);
        }
    }
    coloured
}

/// Whether the output goes to a terminal whose user wants colours (<https://no-color.org>).
fn wants_colours() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_unwanted
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
    let text = escape_controls(&text);
    match wants_colours() {
        true => write_line(&colour_by_meaning(&text)),
        false => write_line(&text),
    }
}

fn write_line(text: &str) -> Result<(), CommandError> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::failed(&error)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value).map_err(CommandError::failed)?;
    write_line(&escape_controls(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_colour_of_what_they_mean() {
        let red = |word: &str| format!("\u{1b}[31m{word}\u{1b}[0m");
        assert_eq!(colour_by_meaning("error: leaf1: down"), red("error:") + " leaf1: down");
        let row = " leaf1   down   primary ";
        assert_eq!(colour_by_meaning(row), format!(" leaf1   {}   primary ", red("down")));
        for plain in ["leaf1 is down", " gpt down-town  7 ", "an error: in words", ""] {
            assert_eq!(colour_by_meaning(plain), plain);
        }
    }

    #[test]
    fn a_table_fits_eighty_columns() {
        let mut table = new_table(["job", "level", "known by", "problems"]);
        table.set_width(80);
        table.add_row([
            "gpt-2".to_owned(),
            "7".to_owned(),
            "telemetry".to_owned(),
            "x ".repeat(90),
        ]);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }

    #[test]
    fn nothing_that_is_printed_controls_a_terminal() {
        assert_eq!(escape_controls("job ö\n\t1"), "job ö\n\t1");
        let evil = "a\u{1b}[2Jb\rc\0\u{202e}d\u{9b}e";
        assert_eq!(escape_controls(evil), "a\\u{1b}[2Jb\\rc\\u{0}\\u{202e}d\\u{9b}e");
    }
}
