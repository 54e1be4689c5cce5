//! What any bytes do to each parser and each service.
//!
//! A [`FuzzTarget`] is a function that takes bytes and must come back, soon and without a panic;
//! refusals are what is wanted. `tests/corpora.rs` runs every target over its corpus and over
//! [mutations](mutation) of it, on the stable toolchain; `libfuzzer/` is the long run, which
//! `scripts/fuzz/run` starts. The decision: bytes are read so that most of them get past the first
//! check. Packets match entries, programs are our own with parts replaced, requests come from the
//! primary, stores and frames of requests are whole but for what the bytes change.

#![allow(clippy::unwrap_used, reason = "a target that cannot set itself up ends there")]

#[path = "../../../bmv2-testbed/switch-server/examples/differential/chance.rs"]
#[allow(dead_code, reason = "shared with the comparison with bmv2, which uses all of it")]
mod chance;
#[path = "../../../bmv2-testbed/switch-server/examples/differential/controller.rs"]
mod controller_stub;
#[path = "../../../bmv2-testbed/switch-server/examples/differential/frames.rs"]
mod frames;
#[path = "../../../bmv2-testbed/switch/tests/data_plane/support.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod support;

mod agent_messages;
mod documents;
pub mod mutation;
mod northbound_requests;
mod p4runtime_requests;
mod recordings;
pub mod seeds;
mod store_files;
mod switch_messages;
mod switch_programs;
mod telemetry_reports;

/// What takes an input.
pub type FuzzFunction = fn(&[u8]) -> Option<()>;

/// A parser or a service, and what it is fed with.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name, and that of its folder in `corpora/`.
    pub name: &'static str,
    /// Takes any bytes; none if it refuses them at once. A panic is a bug.
    pub run: FuzzFunction,
    /// Mutations that the short run tries.
    pub short_run: u32,
}

/// The targets, those of documents first; each has a folder of its name in `corpora/`.
pub const TARGETS: [FuzzTarget; 16] = [
    target("fabrics", documents::fabrics, 8_000),
    target("jobs", documents::jobs, 8_000),
    target("policies", documents::policies, 8_000),
    target("plans", documents::plans, 1_000),
    target("configurations", documents::configurations, 8_000),
    target("traces", documents::traces, 8_000),
    target("agent_messages", agent_messages::agent_messages, 20_000),
    target("netlink", agent_messages::netlink, 20_000),
    target("telemetry_reports", telemetry_reports::telemetry_reports, 8_000),
    target("northbound_requests", northbound_requests::northbound_requests, 1_000),
    target("recordings", recordings::recordings, 2_000),
    target("store_files", store_files::store_files, 100),
    target("switch_messages", switch_messages::switch_messages, 5_000),
    target("p4runtime_requests", p4runtime_requests::p4runtime_requests, 1_000),
    target("packets", switch_programs::packets, 40_000),
    target("programs", switch_programs::programs, 500),
];

const fn target(name: &'static str, run: FuzzFunction, short_run: u32) -> FuzzTarget {
    FuzzTarget { name, run, short_run }
}

/// The target of this name.
pub fn find_target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}
