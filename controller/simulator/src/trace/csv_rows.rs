//! Lines of a CSV file, one at a time, in memory that does not grow with the file.
//!
//! Rows of the published traces stand on one line each, so a quote that is open at the end of its
//! line is damage and spoils that row only. A general CSV parser would read on to the next quote,
//! which may be gigabytes away. Buffers are kept from row to row.

use std::io::{BufRead, ErrorKind};

use super::{SkipReason, TraceError};

/// Longest line of a row, in bytes; those of the published traces have some hundred.
const MAX_LINE: usize = 64 * 1024;

/// The rows of an input.
#[derive(Debug)]
pub(super) struct CsvRows<R> {
    input: R,
    line: u64,
    bytes: Vec<u8>,
    fields: RowFields,
}

/// The values of one row.
#[derive(Debug, Default)]
pub(super) struct RowFields {
    text: String,
    ends: Vec<usize>,
}

impl RowFields {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The value at `position`, without surrounding space; empty if the row is shorter.
    pub(super) fn get(&self, position: usize) -> &str {
        let start = match position.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(self.text.len()),
            None => 0,
        };
        let end = self.ends.get(position).copied().unwrap_or(self.text.len());
        self.text[start..end].trim()
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|position| self.get(position))
    }

    /// Takes the values of `line` apart at its commas; quotes protect commas, two make one.
    fn parse_line(&mut self, line: &str) -> Result<(), SkipReason> {
        self.text.clear();
        self.ends.clear();
        let mut quoted = false;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    self.text.push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => self.ends.push(self.text.len()),
                other => self.text.push(other),
            }
        }
        self.ends.push(self.text.len());
        if quoted {
            return Err(SkipReason::Quote);
        }
        Ok(())
    }
}

impl<R: BufRead> CsvRows<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 0, bytes: Vec::new(), fields: RowFields::default() }
    }

    /// The line of the latest row, from 1.
    pub(super) fn line_number(&self) -> u64 {
        self.line
    }

    /// The next row that is not blank; none at the end.
    pub(super) fn next_row(
        &mut self,
    ) -> Result<Option<Result<&RowFields, SkipReason>>, TraceError> {
        loop {
            let Some(complete) = self.read_line()? else {
                return Ok(None);
            };
            if !self.bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(self.parse_row(complete)));
            }
        }
    }

    fn parse_row(&mut self, complete: bool) -> Result<&RowFields, SkipReason> {
        if !complete {
            return Err(SkipReason::LongLine);
        }
        let line = std::str::from_utf8(&self.bytes).map_err(|_| SkipReason::NotText)?;
        // A byte order mark, which some spreadsheets write before the first line.
        self.fields.parse_line(line.trim_start_matches('\u{feff}'))?;
        Ok(&self.fields)
    }

    /// Reads a line into `bytes`; none at the end, otherwise whether all of it is there.
    fn read_line(&mut self) -> Result<Option<bool>, TraceError> {
        self.bytes.clear();
        self.line += 1;
        let (mut any, mut complete) = (false, true);
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => {
                    let line = self.line;
                    return Err(TraceError::Read { line, source });
                }
            };
            if chunk.is_empty() {
                return Ok(any.then_some(complete));
            }
            any = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let kept = part.len().min(MAX_LINE - self.bytes.len());
            complete &= kept == part.len();
            self.bytes.extend_from_slice(&part[..kept]);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(complete));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expect: &[Result<&[&str], SkipReason>]) {
        let mut rows = CsvRows::new(text);
        let mut found = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            found.push(row.map(|fields| fields.iter().map(str::to_owned).collect::<Vec<_>>()));
        }
        let expect = expect
            .iter()
            .map(|row| row.map(|fields| fields.iter().map(|field| (*field).to_owned()).collect()));
        assert_eq!(found, expect.collect::<Vec<_>>());
    }

    #[test]
    fn quotes_protect_commas_and_damage_stays_on_its_line() {
        let text =
            b"\xef\xbb\xbfa, b ,c\r\n\n\"x,y\",\"{\"\"gpu\"\": 8}\",\n\"open,1\nlast,\xff,2\n,";
        check(
            text,
            &[
                Ok(&["a", "b", "c"]),
                Ok(&["x,y", "{\"gpu\": 8}", ""]),
                Err(SkipReason::Quote),
                Err(SkipReason::NotText),
                Ok(&["", ""]),
            ],
        );
    }

    #[test]
    fn a_long_line_is_passed_over_in_bounded_memory() {
        let mut text = vec![b'x'; 40 * MAX_LINE];
        text.extend_from_slice(b"\na,b\n");
        check(&text, &[Err(SkipReason::LongLine), Ok(&["a", "b"])]);
        let mut rows = CsvRows::new(&text[..]);
        while rows.next_row().unwrap().is_some() {
            assert!(rows.bytes.capacity() <= 2 * MAX_LINE);
        }
    }
}
