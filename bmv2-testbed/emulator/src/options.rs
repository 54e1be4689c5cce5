//! How a testbed's hosts send and what its switches' queues do.
//!
//! Every default has its source beside it. Sizes that follow the rate of a link are given for each
//! gigabit per second, because the cables of a fabric differ.

use switch::{
    BufferSettings, LevelShares, MarkingPoint, MarkingSlope, Nanos, TrafficSettings, headroom_bytes,
};

use crate::connection::CongestionControl;
use crate::dcqcn::DcqcnParameters;
use crate::roce::{MTU, OVERHEAD};
use crate::scale::TimeScale;
use crate::transport::LossRecovery;

/// Properties of a testbed that neither fabric nor jobs determine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestbedOptions {
    /// Delay of every cable, including that of the switch behind it.
    pub delay_ns: Nanos,
    /// Priority levels of every port, 1 to 8.
    pub levels: u8,
    /// How hosts send.
    pub transport: HostTransport,
    /// What senders repeat; without it, what suits the fabric: everything from the first missing
    /// packet on where a connection has one path, and missing packets where packets are sprayed.
    pub recovery: Option<LossRecovery>,
}

impl Default for TestbedOptions {
    /// 200 ns (40 m of fibre, or a shorter cable and a part of a switch), eight levels, and
    /// windows.
    fn default() -> Self {
        Self { delay_ns: 200, levels: 8, transport: HostTransport::Window, recovery: None }
    }
}

/// How hosts send, and what switches do about their queues.
#[allow(clippy::large_enum_variant, reason = "a testbed has one, and it stays `Copy`")]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum HostTransport {
    /// A fixed window for each connection; queues have room for all of them.
    #[default]
    Window,
    /// DCQCN over lossless queues.
    Dcqcn(DcqcnOptions),
}

/// DCQCN at the hosts, and marks, pauses and one shared buffer in the switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnOptions {
    /// The parameters of all connections; without them those published, for the rate of each NIC.
    pub parameters: Option<DcqcnParameters>,
    /// When they repeat it, and how often.
    pub retries: RetrySettings,
    /// What switches do.
    pub queues: SwitchQueues,
}

impl Default for DcqcnOptions {
    /// Published parameters; retries as NCCL sets them.
    fn default() -> Self {
        Self {
            parameters: None,
            retries: RetrySettings::default(),
            queues: SwitchQueues::default(),
        }
    }
}

impl DcqcnOptions {
    /// The parameters of a connection from a NIC of this rate, under a time scale.
    pub fn parameters_at(&self, link_bps: f64, scale: TimeScale) -> DcqcnParameters {
        self.congestion_control().parameters(link_bps, scale)
    }

    pub(crate) fn congestion_control(&self) -> CongestionControl {
        self.parameters.map_or(CongestionControl::PublishedDcqcn, CongestionControl::Dcqcn)
    }
}

/// When a connection repeats what is not acknowledged, and how often before it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// `NCCL_IB_TIMEOUT`: a timeout is 4.096 us times two to this power (InfiniBand, Local ACK
    /// Timeout), 1 to 31.
    pub ib_timeout: u8,
    /// `NCCL_IB_RETRY_CNT`: timeouts in a row that a connection survives.
    pub retry_count: u32,
}

impl Default for RetrySettings {
    /// 20 and 7, so that a connection is lost after 34 s (NCCL user guide, *Environment variables*:
    /// 20 since NCCL 2.23, 18 before; 7).
    fn default() -> Self {
        Self { ib_timeout: 20, retry_count: 7 }
    }
}

impl RetrySettings {
    /// The timeout in seconds.
    pub fn timeout_seconds(self) -> f64 {
        4.096e-6 * f64::from(1_u32 << self.ib_timeout.min(31))
    }

    pub(crate) fn timeout_ns(self, scale: TimeScale) -> Nanos {
        scale.shrink_seconds(self.timeout_seconds()).max(1)
    }
}

/// What the queues of every switch do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchQueues {
    /// When packets are marked, by the rate of their port.
    pub marking: MarkingSlope,
    /// When a mark is decided.
    pub marking_point: MarkingPoint,
    /// The packet buffer of a switch, in bytes.
    pub buffer_bytes: u64,
    /// What the buffer beyond reserves and headroom, and the ends of ramps, are divided by. With
    /// the scale of the jobs a queue delays packets by as much of an iteration as it does in
    /// reality; without it, by that many times as much.
    pub depth_scale: TimeScale,
    /// `alpha`: the part of the free buffer that a priority group may have.
    pub buffer_alpha: f64,
    /// How far below its threshold a group resumes, in bytes.
    pub xon_offset_bytes: u64,
    /// The share of a port's rate that each level but the highest gets at least; 0 for strict
    /// priority alone.
    pub lower_share: f64,
    /// A pause longer than this is broken; none for pauses without end.
    pub pause_limit_ns: Option<Nanos>,
    /// Draws the marks.
    pub seed: u64,
}

impl Default for SwitchQueues {
    /// Marks as published; 32 MB and `alpha` = 1/8 (HPCC's RoCE model, `mix/config_doc.txt` and
    /// `third.cc`); no shares, no limit of pauses.
    fn default() -> Self {
        Self {
            marking: MarkingSlope { packet_bytes: MTU + OVERHEAD, ..MarkingSlope::default() },
            marking_point: MarkingPoint::Enqueue,
            buffer_bytes: 32 << 20,
            depth_scale: TimeScale::REAL,
            buffer_alpha: 0.125,
            xon_offset_bytes: BufferSettings::lossless_levels(1).xon_offset_bytes,
            lower_share: 0.0,
            pause_limit_ns: None,
            seed: 1,
        }
    }
}

impl SwitchQueues {
    /// What a switch of so many levels does, all of them lossless; its ports have wires of these
    /// rates and this delay.
    pub(crate) fn traffic_settings(
        &self,
        levels: u8,
        wires: impl Iterator<Item = u64>,
        delay_ns: Nanos,
        stream: u64,
    ) -> TrafficSettings {
        let lossless = BufferSettings::lossless_levels(levels);
        let of_port = |rate| headroom_bytes(rate, delay_ns, lossless.mtu_bytes);
        let of_ports = wires.map(|rate| of_port(rate) + lossless.reserve_bytes).sum::<u64>();
        let set_aside = u64::from(levels) * of_ports;
        let shared = self.buffer_bytes.saturating_sub(set_aside) as f64 / self.depth_scale.factor();
        let buffer = BufferSettings {
            bytes: set_aside.min(self.buffer_bytes) + shared as u64,
            alpha: self.buffer_alpha,
            xon_offset_bytes: self.xon_offset_bytes,
            ..lossless
        };
        let marking = MarkingSlope {
            kmin_bytes_per_gbps: self.marking.kmin_bytes_per_gbps / self.depth_scale.factor(),
            kmax_bytes_per_gbps: self.marking.kmax_bytes_per_gbps / self.depth_scale.factor(),
            ..self.marking
        };
        let lower = vec![self.lower_share; usize::from(levels.saturating_sub(1))];
        TrafficSettings {
            marking: Vec::new(),
            slope: Some(marking),
            marking_point: self.marking_point,
            shares: LevelShares::new(lower).filter(|_| self.lower_share > 0.0),
            buffer: Some(buffer),
            pause_limit_ns: self.pause_limit_ns,
            seed: self.seed.wrapping_mul(1_000_003).wrapping_add(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_under_nccl_lives_for_half_a_minute() {
        let retries = RetrySettings::default();
        let lost_after = retries.timeout_seconds() * f64::from(retries.retry_count + 1);
        assert!((lost_after - 34.36).abs() < 0.01, "{lost_after}");
        let scale = TimeScale::new(1000.0).unwrap();
        assert_eq!(retries.timeout_ns(scale), 4_294_967);
    }
}
