//! What a switch can do for a plan, as far as that differs between pipelines.
//!
//! The controller's pipelines state it for each switch, and the planner's input carries it. The
//! decision: numbers and granularities only, never names of tables, so that a plan can be judged
//! without knowing the program on a switch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one switch can hold and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchCapabilities {
    /// The finest traffic that a pin can select.
    pub pin_granularity: PinGranularity,
    /// Size of the table that holds pins, in entries.
    pub pins_max: usize,
    /// Ingress ports, the first of a switch, at which a pin of all flows from one NIC to another
    /// takes none of these entries; 0 where every pin does.
    #[serde(default)]
    pub pair_ports_max: usize,
    /// Priority levels that its ports serve strictly.
    pub levels: u8,
    /// Whether pins count packets and bytes.
    pub counts_pins: bool,
    /// Whether ports count packets and bytes by level.
    pub counts_levels: bool,
    /// Whether switches give packets the level of their job. Where they do not, hosts have to, by
    /// DSCP.
    #[serde(default = "sets_levels")]
    pub sets_levels: bool,
}

fn sets_levels() -> bool {
    true
}

/// The finest traffic that a pin can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PinGranularity {
    /// One flow, by its five-tuple.
    Flow,
    /// All flows from one NIC to another.
    NicPair,
    /// All flows to one NIC.
    Destination,
}
