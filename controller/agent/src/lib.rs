//! What can be told of a job from the outside: how many bytes its host or its flows sent by time,
//! and from that the period of its iterations.
//!
//! [`Series`] makes equal intervals of counters that were read whenever it was possible;
//! [`period::estimate`] finds what repeats in them. Pure: times are arguments, and nothing is read
//! here. A training job need not cooperate for this, or know of it (Crux §5).

pub mod period;
mod series;

pub use period::Period;
pub use series::Series;
