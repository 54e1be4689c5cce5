//! What happened, in the order in which it was observed: events for operators.
//!
//! An `EventSnapshot` is what the controller shows at one instant. Comparing two of them gives the
//! [`OperatorEvent`]s between; [`EventRing`] keeps the latest. A task of
//! [`runtime`](crate::runtime) takes the snapshots. The decision: events are derived by comparison
//! only, so no part of the controller can forget to report one.

mod event;
mod event_ring;
mod snapshot;

pub use self::event::{EventKind, FlowMove, OperatorEvent, describe_drift};
pub use self::event_ring::{EventPage, EventPosition, EventRing};
pub(crate) use self::snapshot::{EventSnapshot, SessionSummary, revisions_from};
