//! Flags of what queues do beyond strict priority.

use std::str::FromStr;
use std::time::Duration;

use switch::{
    BufferSettings, LevelShares, MarkingPoint, MarkingRamp, MarkingSlope, TrafficSettings,
};

use command_io::CommandError;

/// `KMIN:KMAX:PMAX`, or `published`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EcnRamp {
    /// At every port alike.
    Stated(MarkingRamp),
    /// By the rate of each port.
    Published,
}

impl FromStr for EcnRamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "published" {
            return Ok(Self::Published);
        }
        let expected =
            || "not published or KMIN:KMAX:PMAX in bytes, bytes and 0 to 1, as 5000:200000:0.01";
        let parts: Vec<&str> = text.split(':').collect();
        let [kmin, kmax, pmax] = parts[..] else {
            return Err(expected().to_owned());
        };
        let bytes = |text: &str| text.parse::<u64>().map_err(|_| expected().to_owned());
        let (kmin_bytes, kmax_bytes) = (bytes(kmin)?, bytes(kmax)?);
        let pmax: f64 = pmax.parse().map_err(|_| expected().to_owned())?;
        if kmin_bytes > kmax_bytes || !(0.0..=1.0).contains(&pmax) {
            return Err("KMIN is above KMAX, or PMAX is not from 0 to 1".to_owned());
        }
        Ok(Self::Stated(MarkingRamp { kmin_bytes, kmax_bytes, pmax }))
    }
}

/// Flags of queues; without any, ports have strict priority alone.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Queues")]
pub(crate) struct QueueFlags {
    /// Mark packets by the length of their level's queue with probability 0 at KMIN bytes and PMAX
    /// at KMAX bytes, and always beyond (ECN), if their sender takes part; `published` is the ramp
    /// of DCQCN's paper for the rate of each port
    #[arg(long, value_name = "KMIN:KMAX:PMAX|published", conflicts_with = "ecn_threshold")]
    ecn_ramp: Option<EcnRamp>,
    /// Levels that lose nothing: their senders are paused by frames of IEEE 802.1Qbb when the
    /// shared buffer fills, and pauses of neighbours are obeyed
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', value_parser = level_parser())]
    lossless: Vec<u8>,
    /// Bytes of the buffer that all ports share; only with --lossless
    #[arg(long, default_value_t = 32 << 20, requires = "lossless", value_name = "BYTES")]
    buffer_bytes: u64,
    /// Part of the free buffer that packets of one port and priority may have; with --lossless
    #[arg(long, default_value_t = 0.125, requires = "lossless", value_parser = parse_alpha)]
    buffer_alpha: f64,
    /// Shares of a port's rate that its levels get at least, from level 0
    #[arg(long, value_name = "SHARES", value_delimiter = ',')]
    level_shares: Vec<f64>,
    /// Empty a queue that a neighbour has paused for so long, and drop what comes until the pause
    /// ends
    #[arg(long, value_name = "MILLISECONDS", requires = "lossless")]
    pause_limit: Option<u64>,
    /// Draws the marks of --ecn-ramp
    #[arg(long, default_value_t = 1, requires = "ecn_ramp")]
    ecn_seed: u64,
}

fn level_parser() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=7)
}

fn parse_alpha(text: &str) -> Result<f64, String> {
    let alpha: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let sensible = alpha > 0.0 && alpha <= 16.0;
    sensible.then_some(alpha).ok_or_else(|| "not above 0 and at most 16".to_owned())
}

impl QueueFlags {
    /// Whether packets are marked by the rate of their port.
    pub(crate) fn marks_by_rate(&self) -> bool {
        self.ecn_ramp == Some(EcnRamp::Published)
    }

    /// What the queues of a device of so many levels do; none for strict priority alone.
    ///
    /// # Errors
    /// The shares are more than the rate.
    pub(crate) fn traffic_settings(
        &self,
        levels: u8,
    ) -> Result<Option<TrafficSettings>, CommandError> {
        let is_off =
            self.ecn_ramp.is_none() && self.lossless.is_empty() && self.level_shares.is_empty();
        if is_off {
            return Ok(None);
        }
        let shares = LevelShares::new(self.level_shares.clone()).ok_or_else(|| {
            let what = "give numbers from 0 to 1 that are at most 1 together";
            CommandError::input("--level-shares", what)
        })?;
        let lossless = self.lossless.iter().fold(0, |mask, level| mask | 1_u8 << level);
        let buffer = BufferSettings {
            bytes: self.buffer_bytes,
            alpha: self.buffer_alpha,
            lossless,
            ..BufferSettings::lossless_levels(levels)
        };
        let pause_limit = self.pause_limit.map(Duration::from_millis);
        let (stated, slope) = match self.ecn_ramp {
            Some(EcnRamp::Stated(ramp)) => (Some(ramp), None),
            Some(EcnRamp::Published) => (None, Some(MarkingSlope::default())),
            None => (None, None),
        };
        Ok(Some(TrafficSettings {
            marking: vec![stated; usize::from(levels)],
            slope,
            marking_point: MarkingPoint::Enqueue,
            shares: (!self.level_shares.is_empty()).then_some(shares),
            buffer: (lossless != 0).then_some(buffer),
            pause_limit_ns: pause_limit.map(|limit| limit.as_nanos() as u64),
            seed: self.ecn_seed,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps_are_parsed_and_checked() {
        let ramp: EcnRamp = "5000:200000:0.01".parse().unwrap();
        let stated = MarkingRamp { kmin_bytes: 5_000, kmax_bytes: 200_000, pmax: 0.01 };
        assert_eq!(ramp, EcnRamp::Stated(stated));
        assert_eq!("published".parse(), Ok(EcnRamp::Published));
        for text in ["5000", "a:b:c", "9:8:0.1", "1:2:1.5", "1:2:3:4"] {
            assert!(text.parse::<EcnRamp>().is_err(), "{text}");
        }
    }
}
