//! Dates of traces as seconds since 1970: `2017-10-09 07:01:55`, `2023/04/05 12:30`, and those of
//! RFC 3339 and ISO 8601, `2017-10-09T07:01:55.250+08:00`, or with a zone of North America by name,
//! `2017-10-09 00:01:55 PDT`, as Philly's logs of machines have it.
//!
//! Replay needs differences only, so a date without a time zone is read as one of UTC. A clock that
//! was put back in the trace stays so.

/// Seconds since 1970-01-01 00:00 UTC; none for a date that does not exist or is written otherwise.
pub(super) fn parse_date(text: &str) -> Option<f64> {
    let (text, ahead_seconds) = split_zone(text.trim())?;
    let (text, fraction) = split_fraction(text)?;
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
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - ahead_seconds;
    Some(seconds as f64 + fraction)
}

/// Hours that zones with a name are ahead of UTC; those of North America as in RFC 5322, 4.3.
const ZONES: [(&str, i64); 12] = [
    ("Z", 0),
    ("z", 0),
    ("UTC", 0),
    ("GMT", 0),
    ("EDT", -4),
    ("EST", -5),
    ("CDT", -5),
    ("CST", -6),
    ("MDT", -6),
    ("MST", -7),
    ("PDT", -7),
    ("PST", -8),
];

/// A date without its time zone, and how far the zone is ahead of UTC.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    let named = ZONES.iter().find_map(|(zone, hours)| Some((text.strip_suffix(zone)?, hours)));
    if let Some((date, hours)) = named {
        return Some((date.trim_end(), hours * 3_600));
    }
    // A sign before the time separates the parts of the date.
    let time = text.find(':').unwrap_or(text.len());
    let Some(sign) = text[time..].rfind(['+', '-']).map(|at| time + at) else {
        return Some((text, 0));
    };
    let digits = text[sign + 1..].replacen(':', "", 1);
    let is_offset = [2, 4].contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
    let (hours, minutes) = is_offset.then(|| digits.split_at(2))?;
    let hours: i64 = hours.parse().ok()?;
    let minutes: i64 = if minutes.is_empty() { 0 } else { minutes.parse().ok()? };
    let is_zone = hours <= 14 && minutes < 60;
    let ahead = (hours * 60 + minutes) * 60;
    let ahead = if text[sign..].starts_with('-') { -ahead } else { ahead };
    is_zone.then(|| (text[..sign].trim_end(), ahead))
}

/// A date without the fraction of its seconds, and the fraction.
fn split_fraction(text: &str) -> Option<(&str, f64)> {
    let Some((whole, digits)) = text.rsplit_once('.') else {
        return Some((text, 0.0));
    };
    let is_fraction = whole.matches(':').count() == 2
        && !digits.is_empty()
        && digits.bytes().all(|c| c.is_ascii_digit());
    is_fraction.then_some(())?;
    Some((whole, format!("0.{digits}").parse().ok()?))
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
            ("2017-10-09T07:01:55Z", Some(1_507_532_515.0)),
            ("2017-10-09 07:01:55 UTC", Some(1_507_532_515.0)),
            ("2017-10-09T15:01:55+08:00", Some(1_507_532_515.0)),
            ("2017-10-09T00:01:55-0700", Some(1_507_532_515.0)),
            ("2017-10-09 12:31:55 +0530", Some(1_507_532_515.0)),
            ("2017-10-09T09:01+02", Some(1_507_532_460.0)),
            ("2017-10-09T07:01:55.25Z", Some(1_507_532_515.25)),
            ("2017/10/09 07:01:55.5", Some(1_507_532_515.5)),
            ("2017-10-09T07:01:55+15:00", None),
            ("2017-10-09T07:01:55+8", None),
            ("2017-10-09T07:01:55+08:00:00", None),
            ("2017-10-09T07:01.5", None),
            ("2017-10-09T07:01:55.", None),
            ("2017-10-09 00:01:55 PDT", Some(1_507_532_515.0)),
            ("2017-10-08 23:01:55 PST", Some(1_507_532_515.0)),
            ("2017-10-09 07:01:55 CET", None),
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
