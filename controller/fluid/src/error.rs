//! Errors in the input of the engine. Each is found when the input is given, never while time
//! passes: a run itself cannot fail.

use crate::job::JobIndex;

/// An invalid network, job or call. The engine is as it was before the call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FluidError {
    /// A capacity that is negative, infinite or not a number.
    #[error("link {link}: a capacity of {value} bytes/s; it must be finite and not negative")]
    Capacity {
        /// Index of the link.
        link: u32,
        /// What was given, bytes/s.
        value: f64,
    },
    /// A path over a link that has no capacity now: its flow would never end.
    #[error("flow {flow}: its path uses link {link}, which has no capacity")]
    NoCapacity {
        /// Index of the flow in its job.
        flow: u32,
        /// Index of the link.
        link: u32,
    },
    /// A link that the network does not have.
    #[error("there is no link {link}; the network has {links}")]
    UnknownLink {
        /// The index that was given.
        link: u32,
        /// How many links there are.
        links: usize,
    },
    /// A flow without a path.
    #[error("flow {flow}: it has no path")]
    NoPath {
        /// Index of the flow in its job.
        flow: u32,
    },
    /// A path that passes a link twice.
    #[error("flow {flow}: its path passes link {link} twice")]
    Loop {
        /// Index of the flow in its job.
        flow: u32,
        /// Index of the link.
        link: u32,
    },
    /// Bytes that are negative, infinite or not a number.
    #[error("flow {flow}: {value} bytes an iteration; they must be finite and not negative")]
    Bytes {
        /// Index of the flow in its job.
        flow: u32,
        /// What was given, bytes.
        value: f64,
    },
    /// A duration or an instant that is negative, not a number or beyond
    /// [`MAX_SECONDS`](crate::MAX_SECONDS).
    #[error("{what}: {value} s; it must be from 0 to {}", crate::MAX_SECONDS)]
    Seconds {
        /// Which duration or instant.
        what: &'static str,
        /// What was given, seconds.
        value: f64,
    },
    /// An `overlap_from` outside of 0..=1.
    #[error("overlap_from: {value}; it must be from 0 to 1")]
    OverlapFrom {
        /// What was given.
        value: f64,
    },
    /// A job that neither computes nor sends, or that is to do so zero times.
    #[error("a job without computation, bytes or latency: its iterations would take no time")]
    NothingToDo,
    /// No job has this index now.
    #[error("there is no job {}", .0.0)]
    UnknownJob(JobIndex),
    /// The job has no flow of this index.
    #[error("job {} has no flow {flow}", job.0)]
    UnknownFlow {
        /// The job.
        job: JobIndex,
        /// The index that was given.
        flow: u32,
    },
    /// A run to an instant that has passed.
    #[error("cannot run to {to} s: it is {now} s already")]
    Past {
        /// Where the run was to end, seconds.
        to: f64,
        /// The present, seconds.
        now: f64,
    },
}
