//! What is observed of switches over gNMI.

use std::time::Duration;

use super::ConfigError;
use super::section::config_section;

config_section! {
    /// Observation of switches over gNMI, where the fabric document has the address of their server.
    RawGnmi => GnmiConfig in "gnmi", check |_| Ok(());

    /// Whether the states of ports are followed and the maps of queues are checked.
    enabled: bool = true => is_enabled: bool,
    /// Time between two checks of the maps from DSCP to queues of a switch.
    #[schemars(range(min = 1))]
    queue_check_ms: u64 = 60_000 => queue_check_interval: Duration,
    /// Time between two readings of what the ports and queues of a switch count.
    #[schemars(range(min = 1))]
    counter_ms: u64 = 10_000 => counter_interval: Duration,
}
