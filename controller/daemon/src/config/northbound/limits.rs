//! What the callers of the northbound address may cost, each and all together.
//!
//! The decision: every bound is of the configuration, so that an operator can read what a caller
//! can cost at most; docs/operations.md has the table.

use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{ConfigError, positive_count, positive_duration};

/// Bounds of connections, requests and planning on behalf of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NorthboundLimits {
    /// Open connections.
    pub connections: NonZeroUsize,
    /// Open connections of one address.
    pub connections_per_address: NonZeroUsize,
    /// Deadline of the TLS handshake and the first request of a connection.
    pub first_request: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long a response may wait for a client that does not read it.
    pub stalled: Duration,
    /// Requests in progress, streams of events included.
    pub requests: NonZeroUsize,
    /// Requests in progress of one caller.
    pub requests_per_caller: NonZeroUsize,
    /// Bytes of all bodies in progress.
    pub bodies: NonZeroUsize,
    /// Deadline for receiving a body.
    pub body: Duration,
    /// Largest policy document, bytes.
    pub document: NonZeroUsize,
    /// Previews and documents that are computed at once.
    pub planning_threads: NonZeroUsize,
    /// Previews and documents that wait for that.
    pub planning_queue: NonZeroUsize,
}

/// Bounds of connections, requests and planning on behalf of callers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawNorthboundLimits {
    /// Open connections; at most half of the descriptors of the process are used for them. When
    /// there is no room, the connection that has waited longest without a request is closed.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// Open connections of one address.
    #[schemars(range(min = 1))]
    pub connections_per_address: usize,
    /// Deadline of the TLS handshake and of the headers of a request.
    #[schemars(range(min = 1))]
    pub first_request_ms: u64,
    /// How long a connection may be without a request.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// How long a response may wait for a client that does not read it.
    #[schemars(range(min = 1))]
    pub stalled_ms: u64,
    /// Requests in progress, streams of events included; more are refused (503).
    #[schemars(range(min = 1))]
    pub requests: usize,
    /// Requests in progress of one token, or of one address where there are no tokens; more are
    /// refused (429).
    #[schemars(range(min = 1))]
    pub requests_per_caller: usize,
    /// Bytes of all bodies in progress; one caller has at most a quarter of them, and at least one
    /// body.
    #[schemars(range(min = 1))]
    pub bodies_bytes: usize,
    /// Deadline for receiving a body.
    #[schemars(range(min = 1))]
    pub body_ms: u64,
    /// Largest policy document.
    #[schemars(range(min = 1))]
    pub document_bytes: usize,
    /// Previews that are computed at once, on threads of their own.
    #[schemars(range(min = 1))]
    pub planning_threads: usize,
    /// Previews that wait for one of these threads; more are refused (503), and one token has at
    /// most half of the places (429).
    #[schemars(range(min = 1))]
    pub planning_queue: usize,
}

impl Default for RawNorthboundLimits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            connections_per_address: 512,
            first_request_ms: 10_000,
            idle_ms: 120_000,
            stalled_ms: 30_000,
            requests: 1_024,
            requests_per_caller: 256,
            bodies_bytes: 32 << 20,
            body_ms: 10_000,
            document_bytes: 256 << 10,
            planning_threads: 1,
            planning_queue: 8,
        }
    }
}

impl TryFrom<&RawNorthboundLimits> for NorthboundLimits {
    type Error = ConfigError;

    fn try_from(raw: &RawNorthboundLimits) -> Result<Self, ConfigError> {
        let count = positive_count;
        let time = positive_duration;
        Ok(Self {
            connections: count("northbound.limits.connections", raw.connections)?,
            connections_per_address: count(
                "northbound.limits.connections_per_address",
                raw.connections_per_address,
            )?,
            first_request: time("northbound.limits.first_request_ms", raw.first_request_ms)?,
            idle: time("northbound.limits.idle_ms", raw.idle_ms)?,
            stalled: time("northbound.limits.stalled_ms", raw.stalled_ms)?,
            requests: count("northbound.limits.requests", raw.requests)?,
            requests_per_caller: count(
                "northbound.limits.requests_per_caller",
                raw.requests_per_caller,
            )?,
            bodies: count("northbound.limits.bodies_bytes", raw.bodies_bytes)?,
            body: time("northbound.limits.body_ms", raw.body_ms)?,
            document: count("northbound.limits.document_bytes", raw.document_bytes)?,
            planning_threads: count("northbound.limits.planning_threads", raw.planning_threads)?,
            planning_queue: count("northbound.limits.planning_queue", raw.planning_queue)?,
        })
    }
}
