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
    /// The settings of the RoCE model of HPCC's authors for this rate: `Kmin` of 100 kB and `Kmax`
    /// of 400 kB at 25 Gb/s, in proportion to the rate, and `Pmax` of 0.2
    /// (alibaba-edu/High-Precision-Congestion-Control, `mix/config_doc.txt`: `KMIN_MAP`,
    /// `KMAX_MAP`, `PMAX_MAP`).
    pub fn for_rate(bits_per_second: u64) -> Self {
        Self {
            kmin_bytes: bits_per_second / 250_000,
            kmax_bytes: bits_per_second / 62_500,
            pmax: 0.2,
        }
    }

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
    fn defaults_follow_the_rate() {
        let ramp = MarkingRamp::for_rate(100_000_000_000);
        assert_eq!((ramp.kmin_bytes, ramp.kmax_bytes), (400_000, 1_600_000));
    }
}
