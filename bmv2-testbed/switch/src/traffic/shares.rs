//! What lower levels get beside strict priority: a share of the port's rate while they have
//! packets.

/// The share of the rate that each level gets at least, from level 0.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelShares(Vec<f64>);

impl LevelShares {
    /// `None` unless every share is from 0 to 1 and they are at most 1 together. Levels beyond the
    /// list have no share.
    pub fn new(shares: Vec<f64>) -> Option<Self> {
        let sensible = shares.iter().all(|share| (0.0..=1.0).contains(share));
        // A little above 1: tenths that add up to 1 do not do so exactly.
        (sensible && shares.iter().sum::<f64>() <= 1.0 + 1e-9).then_some(Self(shares))
    }

    pub(crate) fn of_level(&self, level: usize) -> f64 {
        self.0.get(level).copied().unwrap_or(0.0)
    }
}

/// What a level is owed: bytes that its share allows it and that others have had.
///
/// The decision: credit is earned in bytes that the port sends, not in time, so an idle port owes
/// nothing and the shares hold at any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ShareCredit {
    share: f64,
    bytes: f64,
}

impl ShareCredit {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, bytes: 0.0 }
    }

    /// Whether it is owed a packet of so many bytes.
    pub(crate) fn covers(&self, bytes: u64) -> bool {
        self.share > 0.0 && self.bytes >= bytes as f64
    }

    /// The port sends a packet of so many bytes, while this level waits.
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.bytes += self.share * bytes as f64;
    }

    /// The packet is of this level. Bytes beyond its share are not held against it.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
    }

    /// Nothing waits: what it could have had is gone.
    pub(crate) fn reset(&mut self) {
        self.bytes = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_beyond_the_rate_are_refused() {
        assert!(LevelShares::new(vec![0.5, 0.6]).is_none());
        assert!(LevelShares::new(vec![-0.1]).is_none());
        assert!(LevelShares::new(vec![f64::NAN]).is_none());
        let tenths = LevelShares::new(vec![0.1; 10]).unwrap();
        assert_eq!((tenths.of_level(9), tenths.of_level(10)), (0.1, 0.0));
    }
}
