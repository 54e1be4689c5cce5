//! A profiler plugin of NCCL (`NCCL_PROFILER_PLUGIN=/path/libnccl_profiler_crux.so`) that reports
//! what a rank sends, to which peers, and how long an iteration lasts.
//!
//! ```text
//! threads of NCCL -> abi -> EventRecorder -> bounded queue -> one thread: TrafficAnalysis
//!                                                                -> lines to the agent's socket
//! ```
//!
//! [`abi`] has the three versions of the interface over one [`EventRecorder`]. On NCCL's threads an
//! event is a few atomic operations and at most one push to a queue that was allocated at the
//! start: nothing there allocates, takes a lock, waits or fails. The decision: what does not fit is
//! dropped and counted, and the count is reported with the traffic.

pub mod abi;
mod analysis;
mod event;
mod iteration;
mod message;
mod operation;
mod recorder;
mod reporter;

pub use analysis::TrafficAnalysis;
pub use event::{CommunicatorInfo, EventQueue, NcclEvent};
pub use iteration::{MeasuredOperation, NcclIteration, find_iteration};
pub use message::{CommunicatorMessage, JobEnvironment};
pub use operation::{DataType, NcclFunction};
pub use recorder::{EventHandle, EventRecorder, StartedOperation, StartedTransfer};
