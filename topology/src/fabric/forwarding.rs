//! Who chooses among the equal-cost paths of a packet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a fabric chooses among the equal-cost paths of RoCEv2 packets.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Forwarding {
    /// The controller chooses a path for each flow and pins the flow to it.
    #[default]
    Pin,
    /// Switches spread the packets of every RoCEv2 connection over all paths. The controller decides
    /// levels, and start shifts, and no paths. NICs must accept packets out of order.
    Spray,
    /// Whichever is expected to keep more GPUs busy, for each group of jobs that could share links: pins
    /// for its flows, or none, and what has no pin is sprayed.
    Auto,
}

impl Forwarding {
    /// Whether switches spray what has no pin.
    pub fn sprays(self) -> bool {
        self != Self::Pin
    }
}

impl std::fmt::Display for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pin => "pin",
            Self::Spray => "spray",
            Self::Auto => "auto",
        })
    }
}
