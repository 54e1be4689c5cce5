//! Lossless levels: what a switch can do, the buffer that they need, and what is set on it.
//!
//! Priority flow control (IEEE 802.1Qbb) pauses the sender of a level whose buffer fills. Until the
//! pause takes effect bytes still arrive; the *headroom* takes them, for each port and each
//! lossless level. Everything here is a function of what the fabric document says of rates, cables
//! and packets, and nothing is assumed of a switch that says nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fabric::{Fabric, Link, Switch};
use crate::ids::LinkId;
use crate::units::Bandwidth;

/// The most levels of a switch: priorities of IEEE 802.1Q.
pub(crate) const MAX_LEVELS: u8 = 8;

/// The longest IP packet that is carried where no document says otherwise, bytes: 4,096 bytes of
/// RoCEv2 payload, the largest path MTU of InfiniBand, in IPv6 with its headers and room for more.
const DEFAULT_MTU_BYTES: u32 = 4_200;

/// Ethernet header and check sequence (18) of a frame, and preamble and gap between frames (20).
const FRAME_BYTES: u64 = 38;

/// A pause frame on the wire, bytes: 64, preamble and gap.
const PAUSE_FRAME_BYTES: u64 = 84;

/// Light in a fibre, and a signal in copper, seconds for a metre.
const SECONDS_PER_METRE: f64 = 5e-9;

/// How long a sender may take to stop, bit times at up to so many Gb/s (IEEE 802.3, 31B.3.7: 60,
/// 80, 118, 394 and 905 quanta of 512 bits).
const RESPONSE_BITS: [(f64, u64); 5] =
    [(10.0, 30_720), (25.0, 40_960), (40.0, 60_416), (100.0, 201_728), (400.0, 463_360)];

/// What the queues and the buffer of a switch can do, as far as a document says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchQueues {
    /// Levels that its ports serve strictly, 1..=8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// How many of them lose nothing (PFC), 1..=8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lossless_levels: Option<u8>,
    /// Packet buffer that all ports share, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u64>,
    /// The longest IP packet, bytes; 4,200 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
}

impl SwitchQueues {
    /// These, and `defaults` for what they leave open.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            levels: self.levels.or(defaults.levels),
            lossless_levels: self.lossless_levels.or(defaults.lossless_levels),
            buffer_bytes: self.buffer_bytes.or(defaults.buffer_bytes),
            mtu_bytes: self.mtu_bytes.or(defaults.mtu_bytes),
        }
    }

    /// Levels that jobs can have here; none if the document does not say.
    pub fn job_levels(self) -> Option<u8> {
        [self.levels, self.lossless_levels].into_iter().flatten().min()
    }

    /// The longest IP packet, bytes.
    pub fn packet_bytes(self) -> u32 {
        self.mtu_bytes.unwrap_or(DEFAULT_MTU_BYTES)
    }

    /// The first field that makes no sense, and what would.
    pub(crate) fn problem(self) -> Option<(&'static str, String)> {
        let levels =
            [("levels", self.levels), ("lossless_levels", self.lossless_levels)].into_iter();
        let mut outside = levels.filter_map(|(field, value)| Some((field, value?)));
        if let Some((field, found)) = outside.find(|(_, value)| !(1..=MAX_LEVELS).contains(value)) {
            return Some((field, format!("must be 1 to {MAX_LEVELS}, found {found}")));
        }
        if let (Some(levels), Some(lossless)) = (self.levels, self.lossless_levels)
            && lossless > levels
        {
            let problem = format!("{lossless} of {levels} levels; at most all can be lossless");
            return Some(("lossless_levels", problem));
        }
        if self.buffer_bytes == Some(0) {
            return Some(("buffer_bytes", "must be above 0, found 0".to_owned()));
        }
        let mtu = self.mtu_bytes.filter(|mtu| !(576..=9_600).contains(mtu))?;
        Some(("mtu_bytes", format!("must be 576 to 9600, found {mtu}")))
    }
}

/// What is configured where a port receives one lossless level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcHeadroom {
    /// Bytes that may arrive after the switch has decided to pause the sender.
    pub bytes: u64,
}

impl PfcHeadroom {
    /// The headroom behind a link of `metres` that carries packets of up to so many bytes (IEEE
    /// 802.1Q, annex N, "Buffer requirements for priority-based flow control").
    ///
    /// The pause frame waits for a frame that has just begun, is sent, crosses the cable and takes
    /// effect when the sender has reacted and finished the frame that it has just begun; what is on
    /// the cable then still arrives.
    pub fn behind_link(bandwidth: Bandwidth, metres: f64, packet_bytes: u32) -> Self {
        let frame = u64::from(packet_bytes) + FRAME_BYTES;
        let on_cable = 2.0 * metres * SECONDS_PER_METRE * bandwidth.bytes_per_second();
        let response = response_bits(bandwidth.gbps()).div_ceil(8);
        Self { bytes: 2 * frame + PAUSE_FRAME_BYTES + response + on_cable.ceil() as u64 }
    }
}

/// Bit times that a sender may take to stop. Above the fastest rate with a figure, the time is the
/// same as there.
fn response_bits(gbps: f64) -> u64 {
    let known = RESPONSE_BITS.iter().find(|(most, _)| gbps <= *most);
    let (fastest, bits) = RESPONSE_BITS[RESPONSE_BITS.len() - 1];
    known.map_or_else(|| (bits as f64 * gbps / fastest).ceil() as u64, |(_, bits)| *bits)
}

/// Marking of congestion: up to `min_bytes` of a queue nothing is marked, from there to `max_bytes`
/// ever more, up to `max_probability`, and above everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnThresholds {
    /// `Kmin`, bytes.
    pub min_bytes: u64,
    /// `Kmax`, bytes.
    pub max_bytes: u64,
    /// `Pmax`, 0..=1.
    pub max_probability: f64,
}

impl EcnThresholds {
    /// Those that the authors of HPCC state for DCQCN (Li et al., SIGCOMM 2019, §5.1): `Kmin` of
    /// 100 kB and `Kmax` of 400 kB for every 25 Gb/s of the link, and `Pmax` of 0.2.
    pub fn for_rate(bandwidth: Bandwidth) -> Self {
        let min_bytes = (bandwidth.gbps() * 4_000.0).round() as u64;
        Self { min_bytes, max_bytes: 4 * min_bytes, max_probability: 0.2 }
    }
}

/// The headroom of a switch: what its lossless levels need on all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferDemand {
    /// Lossless levels.
    pub levels: u8,
    /// Headroom of one level on all ports, bytes.
    pub level_bytes: u64,
    /// Of which the length of cables takes so many.
    pub cable_bytes: u64,
    /// The largest `Kmax` of a port, bytes.
    pub marking_bytes: u64,
    /// The buffer.
    pub buffer_bytes: u64,
}

impl BufferDemand {
    /// That of a switch; none unless the document says how many levels are lossless, the buffer,
    /// and the length of all its cables.
    pub fn of_switch(fabric: &Fabric, switch: &Switch) -> Option<Self> {
        let mut demand = Self {
            levels: switch.queues.lossless_levels?,
            level_bytes: 0,
            cable_bytes: 0,
            marking_bytes: 0,
            buffer_bytes: switch.queues.buffer_bytes?,
        };
        let packet_bytes = switch.queues.packet_bytes();
        for link in switch.ports.values().map(|link| fabric.link(link.reverse())) {
            let Link { bandwidth, metres, .. } = *link;
            let bytes = PfcHeadroom::behind_link(bandwidth, metres?, packet_bytes).bytes;
            demand.level_bytes += bytes;
            demand.cable_bytes +=
                bytes - PfcHeadroom::behind_link(bandwidth, 0.0, packet_bytes).bytes;
            let marking = EcnThresholds::for_rate(bandwidth).max_bytes;
            demand.marking_bytes = demand.marking_bytes.max(marking);
        }
        Some(demand)
    }

    /// The headroom of all lossless levels, bytes.
    pub fn headroom_bytes(self) -> u64 {
        u64::from(self.levels) * self.level_bytes
    }

    /// Buffer that is left for queues, bytes; none if the headroom does not fit.
    pub fn shared_bytes(self) -> Option<u64> {
        self.buffer_bytes.checked_sub(self.headroom_bytes())
    }

    /// Whether a congested queue is marked before its senders are paused: `Kmax` is below what one
    /// queue gets of the shared buffer under dynamic thresholds with a factor of 1, half of it
    /// (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6, 1998).
    pub fn marks_before_pause(self) -> bool {
        self.shared_bytes().is_some_and(|shared| 2 * self.marking_bytes <= shared)
    }

    /// Lossless levels whose headroom fits.
    pub fn levels_that_fit(self) -> u64 {
        self.buffer_bytes / self.level_bytes.max(1)
    }

    /// The share of all cables' length with which the headroom fits; none if no length does.
    pub fn cable_share_that_fits(self) -> Option<f64> {
        let without = u64::from(self.levels) * (self.level_bytes - self.cable_bytes);
        let left = self.buffer_bytes.checked_sub(without)? as f64;
        let cables = u64::from(self.levels) * self.cable_bytes;
        (cables > 0).then(|| left / cables as f64)
    }
}

impl Fabric {
    /// Levels that jobs can have on every switch: the least that any says; none if none says.
    pub fn job_levels(&self) -> Option<u8> {
        self.switches().iter().filter_map(|switch| switch.queues.job_levels()).min()
    }

    /// Headroom for packets that a switch receives over a link; none where a length is not known.
    pub fn headroom_behind(&self, link: LinkId) -> Option<PfcHeadroom> {
        let at = self.switch(self.switch_after(link)?);
        let Link { bandwidth, metres, .. } = *self.link(link);
        Some(PfcHeadroom::behind_link(bandwidth, metres?, at.queues.packet_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gbps(rate: f64) -> Bandwidth {
        Bandwidth::from_gbps(rate).unwrap()
    }

    /// The sum as a person would write it down: 100 Gb/s, 100 m, 4,200 bytes.
    #[test]
    fn headroom_is_two_frames_a_pause_the_reaction_and_the_cable() {
        let found = PfcHeadroom::behind_link(gbps(100.0), 100.0, 4_200).bytes;
        assert_eq!(found, 2 * 4_238 + 84 + 201_728 / 8 + 12_500);
        let faster = PfcHeadroom::behind_link(gbps(800.0), 0.0, 4_200).bytes;
        assert_eq!(faster, 2 * 4_238 + 84 + 2 * 463_360 / 8);
    }

    /// DCQCN (Zhu et al., SIGCOMM 2015, §4) has 22.4 kB at 40 Gb/s: more than without a cable, less
    /// than over 300 m.
    #[test]
    fn headroom_is_of_the_size_that_dcqcn_states() {
        let [near, far] =
            [0.0, 300.0].map(|metres| PfcHeadroom::behind_link(gbps(40.0), metres, 1_500).bytes);
        assert!(near < 22_400 && 22_400 < far, "{near} {far}");
    }

    #[test]
    fn marking_begins_at_what_hpcc_states_and_grows_with_the_rate() {
        let at = EcnThresholds::for_rate(gbps(25.0));
        assert_eq!((at.min_bytes, at.max_bytes), (100_000, 400_000));
        assert_eq!(EcnThresholds::for_rate(gbps(400.0)).max_bytes, 6_400_000);
    }
}
