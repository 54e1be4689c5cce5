//! The figures in a cell of a table, and whether they are the measured ones, rounded as printed.

use super::MeasuredFigure;

/// A number in the text of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PrintedNumber {
    /// Its bytes in the cell, with the sign.
    start: usize,
    end: usize,
    value: f64,
    /// Digits after the point.
    decimals: usize,
    /// Whether positive ones have a sign.
    is_signed: bool,
}

/// What a number of a cell should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpectedFigure {
    /// The mean of a measure, with the least and the most in brackets after it if the cell has
    /// these.
    Measured(MeasuredFigure),
    /// This number, which nothing measures.
    Literal(f64),
}

impl PrintedNumber {
    /// The number as it should be printed; none if it is printed so.
    fn correction(&self, value: f64, signed: bool) -> Option<String> {
        let apart = (value - self.value).abs();
        let allowed = 0.5 * 0.1_f64.powi(self.decimals as i32) * (1.0 + 1e-9) + 1e-9;
        (apart > allowed || value.is_nan()).then(|| {
            let text = format!("{value:.*}", self.decimals);
            let is_zero = text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.'));
            match (is_zero, signed && value > 0.0) {
                (true, _) => text.trim_start_matches('-').to_owned(),
                (false, true) => format!("+{text}"),
                (false, false) => text,
            }
        })
    }
}

/// The numbers of a cell. A number that follows a letter or a digit is part of a name.
pub(super) fn find_numbers(cell: &str) -> Vec<PrintedNumber> {
    let bytes = cell.as_bytes();
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let is_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] >= 0x80);
        if !bytes[at].is_ascii_digit() || is_name {
            at += 1;
            continue;
        }
        let end = number_end(bytes, at);
        let start = sign_start(bytes, at);
        let digits = &cell[at..end];
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let magnitude: f64 = digits.parse().unwrap_or(f64::NAN);
        let is_negative = start < at && bytes[start] == b'-';
        numbers.push(PrintedNumber {
            start,
            end,
            value: if is_negative { -magnitude } else { magnitude },
            decimals,
            is_signed: start < at,
        });
        at = end;
    }
    numbers
}

/// Past the digits and the point between two of them.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .map_or(bytes.len(), |n| from + n)
    };
    let whole = digits(start);
    let has_decimals =
        bytes.get(whole) == Some(&b'.') && bytes.get(whole + 1).is_some_and(u8::is_ascii_digit);
    if has_decimals { digits(whole + 1) } else { whole }
}

/// Where the sign of a number is, if it has one.
fn sign_start(bytes: &[u8], digits: usize) -> usize {
    let has_sign = digits > 0 && matches!(bytes[digits - 1], b'+' | b'-');
    let is_dash = digits > 1 && bytes[digits - 2].is_ascii_alphanumeric();
    if has_sign && !is_dash { digits - 1 } else { digits }
}

/// The cell with the expected figures; none if it has them.
///
/// # Errors
/// It has more or fewer numbers than are expected.
pub(super) fn correct_cell(
    cell: &str,
    expected: &[ExpectedFigure],
    row_is_signed: bool,
) -> Result<Option<String>, String> {
    let numbers = find_numbers(cell);
    let mut rest = &numbers[..];
    let mut corrections = Vec::new();
    for figure in expected {
        let (wanted, taken): (Vec<f64>, usize) = match figure {
            ExpectedFigure::Literal(value) => (vec![*value], 1),
            ExpectedFigure::Measured(measured) if is_range(cell, rest) => {
                let [least, most] = measured.ours_range;
                (vec![measured.ours, least, most], 3)
            }
            ExpectedFigure::Measured(measured) => (vec![measured.ours], 1),
        };
        if rest.len() < taken {
            return Err(format!("`{cell}` has {} numbers; more are named", numbers.len()));
        }
        let (own, others) = rest.split_at(taken);
        for (number, value) in own.iter().zip(wanted) {
            let signed = number.is_signed || (row_is_signed && number.value == 0.0);
            corrections.extend(number.correction(value, signed).map(|text| (*number, text)));
        }
        rest = others;
    }
    if !rest.is_empty() {
        return Err(format!("`{cell}` has {} numbers; fewer are named", numbers.len()));
    }
    let mut corrected = cell.to_owned();
    for (number, text) in corrections.iter().rev() {
        corrected.replace_range(number.start..number.end, text);
    }
    Ok((!corrections.is_empty()).then_some(corrected))
}

/// Whether the first number has its least and most behind it: `1.5 (1.2 to 1.9)`.
fn is_range(cell: &str, numbers: &[PrintedNumber]) -> bool {
    let [mean, least, most, ..] = numbers else {
        return false;
    };
    cell[mean.end..least.start].trim_end_matches(['+', '-']).ends_with('(')
        && &cell[least.end..most.start] == " to "
        && cell[most.end..].starts_with(')')
}

/// Whether one of its numbers has a plus.
pub(super) fn has_plus(cell: &str) -> bool {
    find_numbers(cell).iter().any(|number| cell.as_bytes()[number.start] == b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ours: f64, ours_range: [f64; 2]) -> ExpectedFigure {
        ExpectedFigure::Measured(MeasuredFigure { ours, ours_range, ..MeasuredFigure::default() })
    }

    #[test]
    fn cells_are_right_if_rounded_so() {
        let one = measured(1.949, [-0.04, 12.25]);
        for (cell, expected, corrected) in [
            ("+1.9 %", vec![one.clone()], None),
            ("+1.8 %", vec![one.clone()], Some("+1.9 %")),
            ("+1.9 % (0.0 to 12.3)", vec![one.clone()], None),
            ("+1.9 % (-1.0 to 12.3)", vec![one.clone()], Some("+1.9 % (0.0 to 12.3)")),
            ("0.0", vec![one.clone()], Some("+1.9")),
            ("2, 3.00 %", vec![one.clone(), one.clone()], Some("2, 1.95 %")),
            (
                "at x16: -2 of 16",
                vec![one.clone(), ExpectedFigure::Literal(16.0)],
                Some("at x16: +2 of 16"),
            ),
        ] {
            let found = correct_cell(cell, &expected, true).unwrap();
            assert_eq!(found.as_deref(), corrected, "{cell}");
        }
        assert!(correct_cell("1, 2", std::slice::from_ref(&one), false).is_err());
        assert!(correct_cell("1", &[one.clone(), one], false).is_err());
    }

    #[test]
    fn names_and_dashes_are_no_numbers() {
        let values = |cell| find_numbers(cell).iter().map(|n| n.value).collect::<Vec<f64>>();
        assert_eq!(values("h1 has 4-6 of 3.5."), [4.0, 6.0, 3.5]);
        assert_eq!(values("-0.5 (+1)"), [-0.5, 1.0]);
    }
}
