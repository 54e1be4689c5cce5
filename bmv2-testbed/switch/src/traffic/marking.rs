//! Marks by the length of a queue: random early detection on the instantaneous length, the
//! congestion point of DCQCN (Zhu et al., SIGCOMM 2015, §3.1 and figure 5).

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// How likely a packet is marked that finds so many bytes at its level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarkingRamp {
    /// `Kmin`: up to so many bytes nothing is marked.
    pub kmin_bytes: u64,
    /// `Kmax`: beyond so many bytes everything is.
    pub kmax_bytes: u64,
    /// `Pmax`: the probability at `Kmax`, 0 to 1.
    pub pmax: f64,
}

impl MarkingRamp {
    /// The probability that a packet behind `queued` bytes is marked.
    pub fn probability(&self, queued: u64) -> f64 {
        if queued <= self.kmin_bytes {
            return 0.0;
        }
        if queued > self.kmax_bytes {
            return 1.0;
        }
        let part = (queued - self.kmin_bytes) as f64 / (self.kmax_bytes - self.kmin_bytes) as f64;
        part * self.pmax
    }
}

/// How ramps follow the rates of ports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarkingSlope {
    /// `Kmin` for each Gb/s, in bytes.
    pub kmin_bytes_per_gbps: f64,
    /// `Kmax` for each Gb/s, in bytes.
    pub kmax_bytes_per_gbps: f64,
    /// `Pmax`, 0 to 1.
    pub pmax: f64,
    /// The longest packet, in bytes.
    pub packet_bytes: u32,
}

/// Where a ramp ends at least, in lengths of its least beginning.
const SHORTEST_RAMP: f64 = 10.0;

impl Default for MarkingSlope {
    /// `Kmin` = 5 kB, `Kmax` = 200 kB and `Pmax` = 1 % at 40 Gb/s (Zhu et al., SIGCOMM 2015, figure
    /// 14), in proportion to the rate; RoCEv2 packets of 4,096 bytes in IPv4, with their headers.
    fn default() -> Self {
        Self {
            kmin_bytes_per_gbps: 125.0,
            kmax_bytes_per_gbps: 5_000.0,
            pmax: 0.01,
            packet_bytes: 4_154,
        }
    }
}

impl MarkingSlope {
    /// The ramp of a port: it begins at two packets or later, as every queue holds those now and
    /// then, and on slow ports ends ten times as far.
    pub fn ramp(&self, bits_per_second: u64) -> MarkingRamp {
        let gbps = bits_per_second as f64 / 1e9;
        let least = 2.0 * f64::from(self.packet_bytes);
        let kmin = (self.kmin_bytes_per_gbps * gbps).max(least);
        let kmax = (self.kmax_bytes_per_gbps * gbps).max(SHORTEST_RAMP * least).max(kmin);
        MarkingRamp { kmin_bytes: kmin as u64, kmax_bytes: kmax as u64, pmax: self.pmax }
    }
}

/// The random stream of one port.
#[derive(Clone, Debug)]
pub(crate) struct MarkingDraws(ChaCha8Rng);

impl MarkingDraws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Whether a packet behind `queued` bytes is marked; draws only between the ends of the ramp.
    pub(crate) fn marks(&mut self, ramp: &MarkingRamp, queued: u64) -> bool {
        let probability = ramp.probability(queued);
        probability >= 1.0 || probability > 0.0 && self.0.random::<f64>() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAMP: MarkingRamp = MarkingRamp { kmin_bytes: 5_000, kmax_bytes: 200_000, pmax: 0.01 };

    #[test]
    fn the_ramp_is_that_of_the_paper() {
        for (queued, expected) in
            [(0, 0.0), (5_000, 0.0), (102_500, 0.005), (200_000, 0.01), (200_001, 1.0)]
        {
            assert!((RAMP.probability(queued) - expected).abs() < 1e-12, "{queued}");
        }
        let step = MarkingRamp { kmin_bytes: 10, kmax_bytes: 10, pmax: 1.0 };
        assert_eq!([10, 11].map(|queued| step.probability(queued)), [0.0, 1.0]);
    }

    #[test]
    fn the_share_of_marks_is_the_probability() {
        let mut draws = MarkingDraws::new(1);
        let marks = (0..200_000).filter(|_| draws.marks(&RAMP, 102_500)).count();
        // 1,000 are expected, with a standard deviation of 32.
        assert!((900..1_100).contains(&marks), "{marks}");
    }

    #[test]
    fn ramps_follow_the_rate() {
        let ramp = |gbps: f64| {
            let ramp = MarkingSlope::default().ramp((gbps * 1e9) as u64);
            (ramp.kmin_bytes, ramp.kmax_bytes)
        };
        assert_eq!(ramp(400.0), (50_000, 2_000_000));
        assert_eq!(ramp(40.0), (8_308, 200_000));
        assert_eq!(ramp(0.01), (8_308, 83_080));
    }
}
