//! Times as people on this machine read them.

use controller::clock::timestamp_from_unix;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil::Date};

/// Date and time in the zone of this machine, from milliseconds of Unix time.
pub(super) fn format_time(at_ms: u64) -> String {
    format_in_zone(at_ms, TimeZone::system())
}

/// As [`format_time`], without the zone: for cells of a table whose heading names it.
pub(super) fn format_cell_time(at_ms: u64) -> String {
    format_as("%Y-%m-%d %H:%M:%S", at_ms, TimeZone::system())
}

/// Day and time as logs have them, for lines that are short.
pub(super) fn format_log_time(at_ms: u64) -> String {
    format_as("%b %d %H:%M:%S", at_ms, TimeZone::system())
}

/// The time of day alone.
pub(super) fn format_clock_time(at_ms: u64) -> String {
    format_as("%H:%M:%S", at_ms, TimeZone::system())
}

/// The heading of a column of [`format_cell_time`]: the zone of this machine, as it is now.
pub(super) fn time_heading() -> String {
    format!("time ({})", Timestamp::now().to_zoned(TimeZone::system()).strftime("%Z"))
}

fn format_in_zone(at_ms: u64, zone: TimeZone) -> String {
    format_as("%Y-%m-%d %H:%M:%S %Z", at_ms, zone)
}

fn format_as(pattern: &str, at_ms: u64, zone: TimeZone) -> String {
    let Some(stamp) = timestamp_from_unix(at_ms) else {
        return format!("{at_ms} ms after 1970");
    };
    stamp.to_zoned(zone).strftime(pattern).to_string()
}

/// The date in UTC so many days after 1970-01-01, of which a calendar has some millions.
pub(super) fn date_of_day(day: u64) -> Date {
    let seconds = i64::try_from(day).unwrap_or(i64::MAX).saturating_mul(86_400);
    let stamp = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    stamp.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::tz::Offset;

    use super::*;

    #[test]
    fn times_are_of_the_zone() {
        let east = TimeZone::fixed(Offset::constant(2));
        assert_eq!(format_in_zone(0, TimeZone::UTC), "1970-01-01 00:00:00 UTC");
        assert_eq!(format_in_zone(1_793_404_799_000, east.clone()), "2026-10-31 01:59:59 +02");
        // The variable TZ is looked up there, so a build without that lookup must not pass.
        if Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
            let berlin = TimeZone::get("Europe/Berlin").expect("zoneinfo has it");
            assert_eq!(format_in_zone(1_793_404_799_000, berlin), "2026-10-31 00:59:59 CET");
        }
        assert_eq!(format_in_zone(u64::MAX, TimeZone::UTC), "18446744073709551615 ms after 1970");
        let log_time = format_as("%b %d %H:%M:%S", 1_793_404_799_000, east);
        assert_eq!(log_time, "Oct 31 01:59:59");
        assert_eq!(date_of_day(11_016).to_string(), "2000-02-29");
    }
}
