//! What the callers of the northbound address may cost, each and all together.
//!
//! The decision: every bound is of the configuration, so that an operator can read what a caller
//! can cost at most; docs/operations.md has the table.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::super::ConfigError;
use super::super::section::config_section;

config_section! {
    /// Bounds of connections, requests and planning on behalf of callers.
    RawNorthboundLimits => NorthboundLimits in "northbound.limits", check |_| Ok(());

    /// Open connections; at most half of the descriptors of the process are used for them. When
    /// there is no room, the connection that has waited longest without a request is closed.
    #[schemars(range(min = 1))]
    connections: usize = 8_192 => connections: NonZeroUsize,
    /// Open connections of one address.
    #[schemars(range(min = 1))]
    connections_per_address: usize = 512 => connections_per_address: NonZeroUsize,
    /// Deadline of the TLS handshake and of the headers of a request.
    #[schemars(range(min = 1))]
    first_request_ms: u64 = 10_000 => first_request: Duration,
    /// How long a connection may be without a request.
    #[schemars(range(min = 1))]
    idle_ms: u64 = 120_000 => idle: Duration,
    /// How long a response may wait for a client that does not read it.
    #[schemars(range(min = 1))]
    stalled_ms: u64 = 30_000 => stalled: Duration,
    /// Requests in progress, streams of events included; more are refused (503).
    #[schemars(range(min = 1))]
    requests: usize = 1_024 => requests: NonZeroUsize,
    /// Requests in progress of one token, or of one address where there are no tokens; more are
    /// refused (429).
    #[schemars(range(min = 1))]
    requests_per_caller: usize = 256 => requests_per_caller: NonZeroUsize,
    /// Bytes of all bodies in progress; one caller has at most a quarter of them, and at least one
    /// body.
    #[schemars(range(min = 1))]
    bodies_bytes: usize = 32 << 20 => bodies: NonZeroUsize,
    /// Deadline for receiving a body.
    #[schemars(range(min = 1))]
    body_ms: u64 = 10_000 => body: Duration,
    /// Largest policy document.
    #[schemars(range(min = 1))]
    document_bytes: usize = 256 << 10 => document: NonZeroUsize,
    /// Previews that are computed at once, on threads of their own.
    #[schemars(range(min = 1))]
    planning_threads: usize = 1 => planning_threads: NonZeroUsize,
    /// Previews that wait for one of these threads; more are refused (503), and one token has at
    /// most half of the places (429).
    #[schemars(range(min = 1))]
    planning_queue: usize = 8 => planning_queue: NonZeroUsize,
    /// Time of these threads that one token may use at once, or one address where there are no
    /// tokens; a quarter of the time that passes comes back. A preview that would use more is
    /// ended, and further ones are refused (429).
    #[schemars(range(min = 1))]
    planning_ms: u64 = 300_000 => planning: Duration,
}
