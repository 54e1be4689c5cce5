//! The duration of a collective by the bytes that it moves, as a table of measured points.
//!
//! Between two points the duration is interpolated. Below the first point it is constant. Above the
//! last point the bytes are sent as whole maxima and a rest. [`CollectiveTimes::from_latency`]
//! derives points for a fabric that is described by a latency and a speed.

/// Seconds that a collective takes, by its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveTimes {
    /// (bytes, seconds), by bytes; at least one.
    points: Vec<(f64, f64)>,
}

/// Bytes of the least and the most of the points made from a latency and a speed.
const DERIVED_BYTES: [f64; 2] = [1024.0, 1_073_741_824.0];

impl CollectiveTimes {
    /// The table of some measurements; none without measurements, or if a size or a time is not a
    /// positive number.
    pub fn new(mut points: Vec<(f64, f64)>) -> Option<Self> {
        if points.is_empty()
            || !points.iter().all(|(bytes, seconds)| {
                bytes.is_finite() && *bytes > 0.0 && seconds.is_finite() && *seconds > 0.0
            })
        {
            return None;
        }
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        points.dedup_by(|(a, _), (b, _)| a == b);
        Some(Self { points })
    }

    /// The table of a fabric that takes `latency_seconds` and then sends at `bytes_per_second`.
    pub fn from_latency(latency_seconds: f64, bytes_per_second: f64) -> Self {
        Self {
            points: DERIVED_BYTES
                .map(|bytes| (bytes, latency_seconds + bytes / bytes_per_second))
                .to_vec(),
        }
    }

    /// Seconds to move `bytes`; none take no time.
    pub fn transfer_seconds(&self, bytes: f64) -> f64 {
        let (most, most_seconds) = self.points[self.points.len() - 1];
        if bytes <= 0.0 {
            return 0.0;
        }
        if bytes > most {
            let whole = (bytes / most).floor();
            return whole * most_seconds + self.transfer_seconds(bytes - whole * most);
        }
        let above = self.points.partition_point(|(point, _)| *point < bytes);
        let (right, right_seconds) = self.points[above];
        match above.checked_sub(1).map(|below| self.points[below]) {
            None => right_seconds,
            Some((left, left_seconds)) => {
                let share = (bytes - left) / (right - left);
                left_seconds + share * (right_seconds - left_seconds)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_interpolated_clamped_below_and_repeated_above() {
        let table = CollectiveTimes::new(vec![(4.0, 0.25), (1.0, 0.10), (2.0, 0.15)]).unwrap();
        for (bytes, seconds) in [(0.5, 0.10), (1.5, 0.125), (3.0, 0.20), (9.0, 0.60), (8.0, 0.5)] {
            let found = table.transfer_seconds(bytes);
            assert!((found - seconds).abs() < 1e-12, "{bytes}: {found}");
        }
        assert_eq!(table.transfer_seconds(0.0), 0.0);
    }

    #[test]
    fn invalid_measurements_make_no_table() {
        for points in [vec![], vec![(0.0, 1.0)], vec![(1.0, f64::NAN)]] {
            assert_eq!(CollectiveTimes::new(points), None);
        }
    }

    #[test]
    fn a_latency_and_a_speed_are_what_they_say() {
        let seconds = CollectiveTimes::from_latency(1e-5, 1e9).transfer_seconds(1e6);
        assert!((seconds - 1.01e-3).abs() < 1e-9, "{seconds}");
    }
}
