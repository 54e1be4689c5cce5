//! What the queues of a device do beyond strict priority, and how much of it: marks by queue
//! length, shares of lower levels, one buffer for all ports, and pauses of who sends into it.
//!
//! Pure: settings and state machines; [`PortScheduler`](crate::PortScheduler) and the owners of
//! devices (`emulated_network`, `ports`) call them. The decision: a device without
//! [`TrafficSettings`] has none of it, and its packets pass one test each for that.

pub(crate) mod marking;
pub(crate) mod pause_frame;
pub(crate) mod shared_buffer;
pub(crate) mod shares;

pub use marking::{MarkingRamp, MarkingSlope};
pub use pause_frame::{PauseFrame, PauseFrameError};
pub use shared_buffer::{BufferCounts, BufferSettings, headroom_bytes};
pub use shares::LevelShares;

use crate::time::Nanos;

/// When it is decided whether a packet is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkingPoint {
    /// When it joins its queue, by what it finds there.
    #[default]
    Enqueue,
    /// When it leaves its queue, by what it leaves behind: the mark does not wait in the queue.
    Dequeue,
}

/// What the queues of a device do beyond strict priority; the default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficSettings {
    /// When packets of each level are marked, from level 0.
    pub marking: Vec<Option<MarkingRamp>>,
    /// When packets of levels without a ramp of their own are, by the rate of their port; without
    /// it they never are.
    pub slope: Option<MarkingSlope>,
    /// When that is decided.
    pub marking_point: MarkingPoint,
    /// What lower levels get at least.
    pub shares: Option<LevelShares>,
    /// The buffer that all ports share; without it a queue has the room of its
    /// [`QueueLimits`](crate::QueueLimits) and nobody is paused.
    pub buffer: Option<BufferSettings>,
    /// A queue that has been paused for so long while packets wait is emptied, and drops what comes
    /// until the pause ends; without it a pause may last for ever.
    pub pause_limit_ns: Option<Nanos>,
    /// Draws which packets are marked between the ends of a ramp.
    pub seed: u64,
}

impl TrafficSettings {
    /// The ramp of a level of a port of so many bits per second.
    pub fn ramp(&self, level: usize, bits_per_second: u64) -> Option<MarkingRamp> {
        let own = self.marking.get(level).copied().flatten();
        own.or_else(|| Some(self.slope?.ramp(bits_per_second)))
    }
}
