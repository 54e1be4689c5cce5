//! The period of a training job from the counters of its NICs, without its help (Crux §5).
//!
//! [`ByteSeries`] turns irregular readings of counters into bytes in equal intervals of time, and
//! [`estimate_period`] finds what repeats in them: seconds and bytes of an iteration. Both are pure:
//! times are arguments. Agents use it on the counters of hosts, the controller on those of switches.

mod byte_series;
mod iteration_period;

pub use byte_series::ByteSeries;
pub use iteration_period::{IterationPeriod, estimate_period};
