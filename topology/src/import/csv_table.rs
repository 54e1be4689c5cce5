//! Tables with a header line (CSV, RFC 4180): cells by column name.

use super::inventory::field_error;
use super::{ImportError, NetboxTable};

/// The names that a column has, in small letters: that of the bulk import first, then those of
/// exports.
pub(super) type Column = &'static [&'static str];

/// The rows of a file.
pub(super) struct CsvTable {
    table: NetboxTable,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// One row, for its cells and its errors.
#[derive(Clone, Copy)]
pub(super) struct CsvRow<'a> {
    file: &'a CsvTable,
    index: usize,
}

impl CsvTable {
    /// Columns are found by name, whatever their order and case.
    pub(super) fn parse(
        table: NetboxTable,
        text: &str,
        needed: &[Column],
    ) -> Result<Self, ImportError> {
        let mut rows = split_rows(text.strip_prefix('\u{feff}').unwrap_or(text));
        let header = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
        let header: Vec<String> =
            header.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        let file = Self { table, header, rows };
        match needed.iter().find(|column| file.position(column).is_none()) {
            Some(column) => {
                let found = file.header.join(",").chars().take(80).collect::<String>();
                let names = column.join(" or ");
                let problem = format!("the header has no column {names}, found \"{found}\"");
                Err(field_error(format!("{table} line 1"), problem))
            }
            None => Ok(file),
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        (0..self.rows.len()).map(|index| CsvRow { file: self, index })
    }

    /// The columns that are not in `used` and have values, with how many.
    pub(super) fn unused_columns(&self, used: &[Column]) -> Vec<(String, usize)> {
        let is_used = |name: &str| used.iter().any(|column| column.contains(&name));
        let columns = self.header.iter().enumerate().filter(|(_, name)| !is_used(name));
        let filled = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.filter(|cell| !cell.trim().is_empty()).count()
        };
        let counted = columns.map(|(at, name)| (format!("{}.{name}", self.table), filled(at)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    fn position(&self, column: Column) -> Option<usize> {
        column.iter().find_map(|name| self.header.iter().position(|header| header == name))
    }
}

impl<'a> CsvRow<'a> {
    /// A cell; empty if the row or the table has none, or if it has the dash of an export.
    pub(super) fn cell(self, column: Column) -> &'a str {
        let row = &self.file.rows[self.index];
        let cell = self.file.position(column).and_then(|position| row.get(position));
        cell.map_or("", |text| text.trim()).trim_matches('\u{2014}')
    }

    /// Where it is in the file: rows are counted, which are lines unless a cell has several.
    pub(super) fn field(self) -> String {
        format!("{} row {}", self.file.table, self.index + 2)
    }

    pub(super) fn error(self, column: Column, problem: impl std::fmt::Display) -> ImportError {
        field_error(format!("{}, {}", self.field(), column[0]), problem.to_string())
    }
}

/// Rows of cells; a quoted cell may contain commas, ends of lines and, doubled, quotes.
fn split_rows(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut characters = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = characters.next() {
        let row = rows.last_mut().expect("there is one from the start");
        let cell = row.last_mut().expect("a row has a cell from the start");
        match c {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(String::new()),
            '\n' if !is_quoted => rows.push(vec![String::new()]),
            '\r' if !is_quoted => {}
            other => cell.push(other),
        }
    }
    rows.retain(|row| row.iter().any(|cell| !cell.trim().is_empty()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_cells_may_contain_anything() {
        let text = "Name,b\r\n\"a,\"\"b\"\"\n\",2\n\n3\n";
        let table = CsvTable::parse(NetboxTable::Devices, text, &[&["x", "name"], &["b"]]);
        let table = table.ok().unwrap();
        let cells: Vec<_> =
            table.rows().map(|row| (row.cell(&["name"]), row.cell(&["b"]))).collect();
        assert_eq!(cells, [("a,\"b\"", "2"), ("3", "")]);
        assert_eq!(table.unused_columns(&[&["name"]]), [("devices.b".to_owned(), 1)]);
    }
}
