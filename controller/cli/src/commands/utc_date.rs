//! Dates of the Gregorian calendar in UTC, from Unix time.

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Year, month and day of a day since 1970-01-01.
///
/// Years begin in March here, so that a leap day is the last of its year (Hinnant, "chrono-
/// compatible low-level date algorithms", `civil_from_days`).
pub(super) fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Date and time in UTC, from milliseconds of Unix time.
pub(super) fn format_utc(at_ms: u64) -> String {
    let seconds = at_ms / 1_000;
    let (year, month, day) = civil_date(seconds / DAY);
    let of_day = seconds % DAY;
    let [hours, minutes, seconds] = [of_day / 3_600, of_day / 60 % 60, of_day % 60];
    format!("{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_in_utc() {
        let cases = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_793_404_799_000, "2026-10-30 23:59:59Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ];
        for (at_ms, expected) in cases {
            assert_eq!(format_utc(at_ms), expected, "{at_ms}");
        }
    }
}
