//! Virtual time, as every part of the switch counts it.

/// Virtual time, in nanoseconds since the network started.
pub type Nanos = u64;
