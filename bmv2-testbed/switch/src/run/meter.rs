//! Two-rate three-colour meters (RFC 2698 without its marking), as BMv2 runs them.
//!
//! A meter colours a packet by two token buckets: red when the peak bucket lacks tokens, else
//! yellow when the committed one does, else green. Both fill from the same instant, so that no
//! rounding adds up. A meter that nobody has configured colours everything green.

use crate::spec::MeterUnit;
use crate::time::Nanos;

/// The rates of a meter, in its unit per second and in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate, not below the committed one.
    pub pir: u64,
    /// Peak burst.
    pub pburst: u64,
}

/// One meter.
#[derive(Clone, Debug)]
pub(crate) struct TwoRateMeter {
    unit: MeterUnit,
    config: Option<MeterConfig>,
    committed: TokenBucket,
    peak: TokenBucket,
}

#[derive(Clone, Copy, Debug, Default)]
struct TokenBucket {
    tokens: u64,
    /// Tokens that had come since time 0 when it was last filled.
    accrued: u64,
}

/// The colours as numbers, as P4 programs see them.
const GREEN: u8 = 0;
const YELLOW: u8 = 1;
const RED: u8 = 2;

impl TwoRateMeter {
    /// A meter without rates.
    pub(crate) fn new(unit: MeterUnit) -> Self {
        let (committed, peak) = (TokenBucket::default(), TokenBucket::default());
        Self { unit, config: None, committed, peak }
    }

    /// Its rates; none when it colours everything green.
    pub(crate) fn config(&self) -> Option<MeterConfig> {
        self.config
    }

    /// Sets or removes the rates; both buckets are full then.
    pub(crate) fn set_config(&mut self, config: Option<MeterConfig>) {
        self.config = config;
        let full = |burst: fn(&MeterConfig) -> u64| TokenBucket {
            // Buckets begin full (RFC 2698), so that the first burst is green.
            tokens: config.as_ref().map_or(0, burst),
            accrued: 0,
        };
        self.committed = full(|config| config.cburst);
        self.peak = full(|config| config.pburst);
    }

    /// The colour of one packet.
    pub(crate) fn color_packet(&mut self, now: Nanos, bytes: u64) -> u8 {
        let Some(config) = self.config else {
            return GREEN;
        };
        let cost = match self.unit {
            MeterUnit::Bytes => bytes,
            MeterUnit::Packets => 1,
        };
        // The peak bucket first: a red packet takes no committed tokens (RFC 2698).
        if !self.peak.take_tokens(now, config.pir, config.pburst, cost) {
            RED
        } else if !self.committed.take_tokens(now, config.cir, config.cburst, cost) {
            YELLOW
        } else {
            GREEN
        }
    }
}

impl TokenBucket {
    /// Fills the bucket up to now and takes `cost` tokens out, if it holds as many.
    fn take_tokens(&mut self, now: Nanos, rate: u64, burst: u64, cost: u64) -> bool {
        // From the total since time 0, so that the rounding of single packets does not add up.
        let total = u128::from(now / 1_000) * u128::from(rate) / 1_000_000;
        let accrued = u64::try_from(total).unwrap_or(u64::MAX);
        // After a configuration this is the total since time 0, which the burst bounds below.
        let new = accrued.saturating_sub(self.accrued);
        self.accrued = accrued;
        self.tokens = self.tokens.saturating_add(new).min(burst);
        let enough = self.tokens >= cost;
        if enough {
            self.tokens -= cost;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Two tokens a second committed, four peak; bursts of one and two.
    fn meter() -> TwoRateMeter {
        let mut meter = TwoRateMeter::new(MeterUnit::Packets);
        meter.set_config(Some(MeterConfig { cir: 2, cburst: 1, pir: 4, pburst: 2 }));
        meter
    }

    #[test]
    fn a_burst_goes_from_green_over_yellow_to_red() {
        let mut meter = meter();
        let at_once: Vec<u8> = (0..4).map(|_| meter.color_packet(0, 64)).collect();
        assert_eq!(at_once, [GREEN, YELLOW, RED, RED]);
    }

    #[test]
    fn buckets_fill_at_their_rates() {
        let mut meter = meter();
        let mut colours = |count: u64, gap: Nanos, from: Nanos| -> Vec<u8> {
            (0..count).map(|n| meter.color_packet(from + n * gap, 64)).collect()
        };
        assert_eq!(colours(4, SECOND / 2, SECOND), [GREEN; 4], "two a second");
        let alternating = [GREEN, YELLOW, GREEN, YELLOW];
        assert_eq!(colours(4, SECOND / 4, 10 * SECOND), alternating, "four a second");
    }

    #[test]
    fn a_meter_without_rates_is_green() {
        let mut meter = TwoRateMeter::new(MeterUnit::Bytes);
        assert_eq!(meter.color_packet(0, 1500), GREEN);
    }
}
