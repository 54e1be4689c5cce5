//! The tables of a page, and the comments above them that say what each cell prints.
//!
//! ```text
//! <!-- check crux-fig19
//! $risk = Fig. 6: at risk of contention
//! 2..5: GPU utilisation, {} BERT, 8 conn.
//! -
//! 2: {row} @ $risk ; "36.3"
//! ^
//! -->
//! ```
//!
//! Below the name of an experiment there is a line for each row of the table: its columns, counted
//! from 1, and for each number in them the measure that it is, separated by semicolons. `{}` stands
//! for the heading of the column and `{row}` for the first cell of the row; `$name = text` defines
//! an abbreviation, and `^` is the line before. ` @ ` separates a measure from its part, and
//! `name :: ` before it takes it from another experiment. `least` and `most` take one of several
//! measures, in whose names `*` stands for anything; `minus` turns the sign. What is in quotes is
//! not measured, and a row of `-` is not checked. A table of which nothing is measured has `<!--
//! unchecked: why -->`.

use std::fmt;

use super::table_cell::{ExpectedFigure, correct_cell, has_plus};
use super::{MeasuredFigure, MeasuredFigures};

/// A table with a comment.
#[derive(Debug, PartialEq)]
pub(super) struct DocumentedTable {
    /// The experiment of measures that name none.
    experiment: String,
    headings: Vec<String>,
    rows: Vec<DocumentedRow>,
}

/// A row, and what it prints.
#[derive(Debug, PartialEq)]
struct DocumentedRow {
    /// Counted from 1.
    line: usize,
    cells: Vec<String>,
    /// The line of the comment, and where it stands.
    check: (usize, String),
}

/// A comment or table that makes no sense.
#[derive(Debug, PartialEq)]
pub(super) struct TableProblem {
    /// Counted from 1.
    pub(super) line: usize,
    problem: String,
}

impl fmt::Display for TableProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl TableProblem {
    fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

/// A cell that prints another figure than the measured one.
#[derive(Debug, PartialEq)]
pub(super) struct StaleCell {
    /// Counted from 1.
    pub(super) line: usize,
    /// Counted from 0.
    column: usize,
    printed: String,
    corrected: String,
    /// What is measured, as the comment says it.
    measures: String,
}

impl fmt::Display for StaleCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, printed, corrected, measures, .. } = self;
        write!(f, "column {}: `{printed}` is stale, now `{corrected}` ({measures})", column + 1)
    }
}

/// All tables of a page whose cells are checked.
///
/// # Errors
/// A table has no comment, or one with other rows.
pub(super) fn parse_tables(page: &str) -> Result<Vec<DocumentedTable>, TableProblem> {
    let lines: Vec<&str> = page.lines().collect();
    let mut tables = Vec::new();
    let mut comment: Option<(usize, Vec<&str>)> = None;
    let mut at = 0;
    while at < lines.len() {
        if let Some(first) = lines[at].strip_prefix("<!-- ") {
            let end = (at..lines.len()).find(|line| lines[*line].ends_with("-->"));
            let end = end.ok_or_else(|| TableProblem::new(at + 1, "comment without an end"))?;
            let inner = std::iter::once(first).chain(lines[at + 1..=end].iter().copied());
            comment = Some((at, inner.map(|line| line.trim_end_matches("-->").trim()).collect()));
            at = end + 1;
        } else if lines[at].starts_with('|') {
            let end = (at..lines.len()).find(|line| !lines[*line].starts_with('|'));
            let end = end.unwrap_or(lines.len());
            tables.extend(read_table(at, &lines[at..end], comment.take())?);
            at = end;
        } else {
            at += 1;
        }
    }
    Ok(tables)
}

/// A table below its comment, which begins at a line counted from 0; none if it is not checked.
fn read_table(
    at: usize,
    lines: &[&str],
    comment: Option<(usize, Vec<&str>)>,
) -> Result<Option<DocumentedTable>, TableProblem> {
    let missing = "a table without a comment: `<!-- check NAME` with a line for each row, or \
                   `<!-- unchecked: why -->` (crux reproduce --check)";
    let (begins, comment) = comment.ok_or_else(|| TableProblem::new(at + 1, missing))?;
    if comment[0].starts_with("unchecked:") {
        return Ok(None);
    }
    let experiment =
        comment[0].strip_prefix("check").ok_or_else(|| TableProblem::new(at + 1, missing))?;
    let checks = expand_checks(begins + 1, &comment[1..]);
    let rows = lines.len().saturating_sub(2);
    if checks.len() != rows {
        let problem = format!("{} lines in the comment of a table of {rows} rows", checks.len());
        return Err(TableProblem::new(begins + 1, problem));
    }
    let body = lines.iter().enumerate().skip(2).zip(checks);
    Ok(Some(DocumentedTable {
        experiment: experiment.trim().to_owned(),
        headings: split_cells(lines[0]),
        rows: body
            .map(|((number, line), check)| DocumentedRow {
                line: at + number + 1,
                cells: split_cells(line),
                check,
            })
            .collect(),
    }))
}

/// The lines of a comment for the rows, without abbreviations; the first is after line `begins`.
fn expand_checks(begins: usize, lines: &[&str]) -> Vec<(usize, String)> {
    let mut abbreviations: Vec<(&str, &str)> = Vec::new();
    let mut checks: Vec<(usize, String)> = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        if let Some(abbreviation) = line.split_once(" = ").filter(|_| line.starts_with('$')) {
            abbreviations.push(abbreviation);
            continue;
        }
        let check = match (*line, checks.last()) {
            ("^", Some((_, before))) => before.clone(),
            _ => abbreviations
                .iter()
                .fold((*line).to_owned(), |line, (short, text)| line.replace(short, text)),
        };
        checks.push((begins + number + 1, check));
    }
    checks
}

/// The cells of a row, without the spaces around them.
fn split_cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

impl DocumentedTable {
    /// Its cells that print something else than `figures` have.
    ///
    /// # Errors
    /// The comment names what there is not.
    pub(super) fn find_stale_cells(
        &self,
        figures: &MeasuredFigures,
    ) -> Result<Vec<StaleCell>, TableProblem> {
        let mut stale = Vec::new();
        for row in &self.rows {
            let (line, check) = &row.check;
            for columns in check.split(" | ").filter(|columns| *columns != "-") {
                let found = self.stale_in_columns(row, columns, figures);
                stale.extend(found.map_err(|problem| TableProblem::new(*line, problem))?);
            }
        }
        Ok(stale)
    }

    fn stale_in_columns(
        &self,
        row: &DocumentedRow,
        check: &str,
        figures: &MeasuredFigures,
    ) -> Result<Vec<StaleCell>, String> {
        let columns = check.split_once(": ").ok_or("no column, as in `2: measure`")?;
        let (first, last) = columns.0.split_once("..").unwrap_or((columns.0, columns.0));
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is no column"));
        let row_is_signed = row.cells.iter().any(|cell| has_plus(cell));
        let mut stale = Vec::new();
        for column in number(first)?..=number(last)? {
            let place = column.saturating_sub(1);
            let (Some(cell), Some(heading)) = (row.cells.get(place), self.headings.get(place))
            else {
                return Err(format!("the table has no column {column}"));
            };
            let measures = columns.1.replace("{}", heading).replace("{row}", &row.cells[0]);
            let expected = measures.split(" ; ");
            let expected = expected.map(|measure| self.resolve_measure(measure, figures));
            let expected = expected.collect::<Result<Vec<ExpectedFigure>, String>>()?;
            if let Some(corrected) = correct_cell(cell, &expected, row_is_signed)? {
                stale.push(StaleCell {
                    line: row.line,
                    column: place,
                    printed: cell.clone(),
                    corrected,
                    measures,
                });
            }
        }
        Ok(stale)
    }

    fn resolve_measure(
        &self,
        text: &str,
        figures: &MeasuredFigures,
    ) -> Result<ExpectedFigure, String> {
        let text = text.trim();
        if let Some(literal) = text.strip_prefix('"') {
            let value = literal.trim_end_matches('"').parse();
            return value
                .map(ExpectedFigure::Literal)
                .map_err(|_| format!("`{text}` is no number in quotes"));
        }
        let (experiment, text) = text.split_once(" :: ").unwrap_or((&self.experiment, text));
        let figures = figures
            .get(experiment)
            .ok_or_else(|| format!("there is no experiment `{experiment}`"))?;
        let (word, name) = match text.split_once(' ') {
            Some((word @ ("least" | "most" | "minus"), name)) => (word, name),
            _ => ("", text),
        };
        let named = find_measures(figures, name);
        let one = || match named[..] {
            [one] => Ok(one.clone()),
            [] => Err(format!("{experiment} measures no `{name}`")),
            _ => Err(format!("{experiment} has {} measures `{name}`", named.len())),
        };
        let of_all = |extreme: fn(f64, f64) -> f64| {
            let ours = named.iter().map(|one| one.ours).reduce(extreme);
            let ours = ours.ok_or_else(|| format!("{experiment} measures no `{name}`"))?;
            Ok::<_, String>(MeasuredFigure { ours, ..MeasuredFigure::default() })
        };
        Ok(ExpectedFigure::Measured(match word {
            "least" => of_all(f64::min)?,
            "most" => of_all(f64::max)?,
            "minus" => one()?.negated(),
            _ => one()?,
        }))
    }
}

/// The measures of a name, which may have a part and stand for several.
fn find_measures<'a>(figures: &'a [MeasuredFigure], name: &str) -> Vec<&'a MeasuredFigure> {
    let (measure, part) = name.split_once(" @ ").unwrap_or((name, ""));
    let is_named = |figure: &&MeasuredFigure| {
        matches_pattern(&figure.measure, measure) && matches_pattern(&figure.part, part)
    };
    figures.iter().filter(is_named).collect()
}

/// Whether a name is that of a pattern, in which `*` stands for anything.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((begins, rest)) => name.strip_prefix(begins).is_some_and(|name| {
            let ends = (0..=name.len()).filter(|end| name.is_char_boundary(*end));
            ends.map(|end| &name[end..]).any(|name| matches_pattern(name, rest))
        }),
    }
}

/// The page with these cells corrected.
pub(super) fn replace_cells(page: &str, stale: &[StaleCell]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    for cell in stale {
        let mut cells = split_cells(&lines[cell.line - 1]);
        cells[cell.column].clone_from(&cell.corrected);
        lines[cell.line - 1] = format!("| {} |", cells.join(" | ")).replace("|  |", "| |");
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
Text.

<!-- check fig
$clos = @ Clos
2..3: {row}, {} jobs $clos
-
2: other :: x ; least gain, * $clos
-->

| | 2 | 4 |
|---|---|---|
| gain | +1.0 % | +2.5 % |
| text | 7 | |
| mixed | 3 and 1 | |

<!-- unchecked: parameters -->

| a |
|---|
| 1 |
";

    fn figures(gain: f64) -> MeasuredFigures {
        let figure = |part: &str, measure: &str, ours| MeasuredFigure {
            part: part.to_owned(),
            measure: measure.to_owned(),
            ours,
            ours_range: [ours, ours],
        };
        let gains = vec![
            figure("Clos", "gain, 2 jobs", gain),
            figure("Clos", "gain, 4 jobs", 2.51),
            figure("double-sided", "gain, 4 jobs", 9.0),
        ];
        MeasuredFigures::from([("fig", gains), ("other", vec![figure("", "x", 3.1)])])
    }

    fn stale_cells(page: &str, gain: f64) -> Result<Vec<StaleCell>, TableProblem> {
        let tables = parse_tables(page)?;
        let found = tables.iter().map(|table| table.find_stale_cells(&figures(gain)));
        found.collect::<Result<Vec<_>, _>>().map(|cells| cells.into_iter().flatten().collect())
    }

    #[test]
    fn a_stale_cell_has_its_line_and_what_would_be_right() {
        assert_eq!(stale_cells(PAGE, 1.04).unwrap(), []);
        let stale = stale_cells(PAGE, 1.9).unwrap();
        let texts: Vec<String> =
            stale.iter().map(|cell| format!("{}: {cell}", cell.line)).collect();
        assert_eq!(
            texts,
            [
                "12: column 2: `+1.0 %` is stale, now `+1.9 %` (gain, 2 jobs @ Clos)",
                "14: column 2: `3 and 1` is stale, now `3 and 2` (other :: x ; least gain, * @ \
                 Clos)",
            ]
        );
        let fixed = replace_cells(PAGE, &stale);
        assert!(fixed.contains("| gain | +1.9 % | +2.5 % |\n"), "{fixed}");
        assert_eq!(stale_cells(&fixed, 1.9).unwrap(), []);
    }

    #[test]
    fn comments_that_name_nothing_are_errors() {
        for (from, to, line, problem) in [
            ("<!-- unchecked: parameters -->", "", 18, "a table without a comment"),
            ("-\n2: other", "2: other", 3, "2 lines in the comment of a table of 3 rows"),
            ("other ::", "another ::", 7, "there is no experiment `another`"),
            ("other :: x", "other :: y", 7, "other measures no `y`"),
            ("least gain", "gain", 7, "fig has 2 measures `gain, * @ Clos`"),
            ("2..3:", "2..4:", 5, "the table has no column 4"),
            ("3 and 1", "3", 7, "`3` has 1 numbers; more are named"),
        ] {
            let error = stale_cells(&PAGE.replace(from, to), 1.04).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().starts_with(problem), "{error}");
        }
    }
}
