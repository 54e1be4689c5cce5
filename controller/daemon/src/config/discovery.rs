//! How links and hosts are discovered.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_duration};

/// How cables and hosts are discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveryConfig {
    /// Whether the controller probes by itself.
    pub is_enabled: bool,
    /// Time between two probes from a port.
    pub probe_interval: Duration,
    /// How long a cable without a probe counts as working.
    pub stale_after: Duration,
    /// Ports below this number are probed even if no document connects them.
    pub ports: u16,
    /// Assumptions on discovered parts, if the discovered fabric is the fabric.
    pub assumptions: Option<DiscoveryDefaults>,
}

/// Assumptions on what probes cannot measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscoveryDefaults {
    /// Speed of each cable that is in no document, in Gb/s.
    pub gbps: f64,
    /// GPUs of each host that is in no document.
    pub gpus: u32,
}

/// Discovery of cables and hosts: each port sends probes, and the receiving switch passes them to
/// the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawDiscovery {
    /// Whether the controller sends probes. A difference from the document is a finding, and a
    /// cable whose probes stop counts as failed.
    pub enabled: bool,
    /// Time between two probes of a port.
    #[schemars(range(min = 1))]
    pub interval_ms: u64,
    /// Time without a probe after which a cable counts as failed; at least two `interval_ms`.
    #[schemars(range(min = 1))]
    pub stale_ms: u64,
    /// Ports below this number are probed, less often, even if no document connects them.
    #[schemars(range(max = 511))]
    pub ports: u16,
    /// Whether the discovered fabric is the fabric. A document then needs switches only. Requires
    /// `enabled`.
    pub learn: bool,
    /// Assumed speed of a learned cable; above 0.
    pub gbps: f64,
    /// Assumed GPUs of a learned host.
    pub gpus: u32,
}

impl Default for RawDiscovery {
    fn default() -> Self {
        Self {
            enabled: false,
            interval_ms: 200,
            stale_ms: 700,
            ports: 64,
            learn: false,
            gbps: 100.0,
            gpus: 8,
        }
    }
}

impl TryFrom<&RawDiscovery> for DiscoveryConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawDiscovery) -> Result<Self, ConfigError> {
        let enough = raw.stale_ms >= raw.interval_ms.saturating_mul(2);
        let wanted = "at least two discovery.interval_ms";
        check_field("discovery.stale_ms", &raw.stale_ms, wanted, enough)?;
        // Ports have nine bits; the last ones are reserved by the program.
        check_field("discovery.ports", &raw.ports, "at most 511", raw.ports <= 511)?;
        let is_speed = raw.gbps.is_finite() && raw.gbps > 0.0;
        check_field("discovery.gbps", &raw.gbps, "above 0", is_speed)?;
        let probes = raw.enabled || !raw.learn;
        check_field("discovery.learn", &raw.learn, "false without discovery.enabled", probes)?;
        Ok(Self {
            is_enabled: raw.enabled,
            probe_interval: positive_duration("discovery.interval_ms", raw.interval_ms)?,
            stale_after: positive_duration("discovery.stale_ms", raw.stale_ms)?,
            ports: raw.ports,
            assumptions: raw.learn.then_some(DiscoveryDefaults { gbps: raw.gbps, gpus: raw.gpus }),
        })
    }
}
