//! Which queue a packet takes by its DSCP, and how queues are set: what a SONiC switch has by
//! configuration, and what the programs for SAI P4 model by class selectors.

use switch::{MarkingRamp, TrafficSettings};

/// Queues, and classes of traffic, of a port.
pub(super) const CLASSES: usize = 8;

/// The maps from DSCP to class and from class to queue, and how each queue is served.
#[derive(Clone, Debug, PartialEq)]
pub struct QosMaps {
    /// The class of traffic of each DSCP.
    pub dscp_to_class: [u8; 64],
    /// The queue of each class.
    pub class_to_queue: [u8; CLASSES],
    /// How each queue is served.
    pub schedulers: [SchedulerType; CLASSES],
    /// How the queues of all ports mark, if they do and all do it alike.
    pub marking: Option<MarkingRamp>,
    /// Priorities that lose nothing: bit `p` is priority `p`.
    pub lossless: u8,
}

/// How a queue is served among the queues of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerType {
    /// Before all queues below it.
    Strict,
    /// By weight.
    Weighted,
}

impl QosMaps {
    /// The default maps of a device whose queues do this on ports of these rates, in bits per
    /// second; all levels of a port mark alike.
    #[must_use]
    pub fn of_traffic(traffic: &TrafficSettings, rates: impl IntoIterator<Item = u64>) -> Self {
        let mut ramps = rates.into_iter().map(|rate| traffic.ramp(0, rate));
        let first = ramps.next().flatten();
        Self {
            marking: first.filter(|_| ramps.all(|ramp| ramp == first)),
            lossless: traffic.buffer.map_or(0, |buffer| buffer.lossless),
            ..Self::default()
        }
    }
}

impl Default for QosMaps {
    /// Class selectors, one queue for each class, strict priority: what `sai.p4` does.
    fn default() -> Self {
        let mut dscp_to_class = [0; 64];
        (0_u8..).zip(&mut dscp_to_class).for_each(|(dscp, class)| *class = dscp >> 3);
        Self {
            dscp_to_class,
            class_to_queue: [0, 1, 2, 3, 4, 5, 6, 7],
            schedulers: [SchedulerType::Strict; CLASSES],
            marking: None,
            lossless: 0,
        }
    }
}
