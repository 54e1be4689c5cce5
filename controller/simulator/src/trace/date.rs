//! Dates of traces: `2017-10-09 07:01:55` and `2023/04/05 12:30`, as seconds since 1970.
//!
//! Traces do not state their time zone, and replay needs differences only; so dates are read as if
//! there were none. A clock that was put back in the trace stays so.

/// Seconds since 1970-01-01 00:00; none for a date that does not exist or is written otherwise.
pub(super) fn parse_date(text: &str) -> Option<f64> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<i64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    let (hour, minute) = (number()?, number()?);
    let second = match numbers.next() {
        Some(text) => text.parse().ok()?,
        None => 0,
    };
    let exists = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !exists || numbers.next().is_some() {
        return None;
    }
    let days = days_since_1970(year, month) + day - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) as f64)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn leap_days_before(year: i64) -> i64 {
    (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400
}

/// Days from 1970-01-01 to the first of the month.
fn days_since_1970(year: i64, month: i64) -> i64 {
    let years = (year - 1970) * 365 + leap_days_before(year) - leap_days_before(1970);
    let months: i64 = (1..month).map(|month| days_of_month(year, month)).sum();
    years + months
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_or_nothing() {
        let cases = [
            ("1970-01-01 00:00:00", Some(0.0)),
            ("1970/03/01 00:01", Some(f64::from(59 * 86_400 + 60))),
            ("2000-02-29 23:59:59", Some(951_868_799.0)),
            ("2017-10-09 07:01:55", Some(1_507_532_515.0)),
            ("2100-02-29 00:00", None),
            ("2017-13-09 07:01:55", None),
            ("2017-10-09 24:00:00", None),
            ("2017-10-09", None),
            ("2017-10-09 07:01:xx", None),
            ("2017-10-09 07:01:55:01", None),
            ("99999999999999999999-10-09 07:01", None),
            ("9223372036854775807-10-09 07:01", None),
            ("-2017-10-09 07:01", None),
            ("", None),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_date(text), expect, "{text}");
        }
    }
}
