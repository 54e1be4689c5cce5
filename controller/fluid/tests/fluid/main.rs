//! Tests of the fluid model through its public interface, one module per matter. Each states the
//! equation first, then the number.

#![allow(clippy::unwrap_used)] // Builders of test data outside the test functions.

mod bytes_sent;
mod changes;
mod coflows;
mod errors;
mod iterations;
mod observers;
mod proptests;
mod rates;
mod reference;
mod scenario;
mod waits;
