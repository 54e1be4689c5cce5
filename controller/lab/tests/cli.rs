//! The program as a user meets it: what it prints, what it writes, and what it says of input that
//! makes no sense.

#![allow(clippy::unwrap_used, reason = "a test fails where its own set-up fails")]

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/capture.rs"]
mod capture;
#[path = "cli/contexts.rs"]
mod contexts;
#[path = "cli/decisions.rs"]
mod decisions;
#[path = "cli/emulated_run.rs"]
mod emulated_run;
#[path = "cli/examples.rs"]
mod examples;
#[path = "cli/hardening.rs"]
mod hardening;
#[path = "cli/identity.rs"]
mod identity;
#[path = "cli/kubernetes.rs"]
mod kubernetes;
#[path = "cli/operations.rs"]
mod operations;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/port_scan.rs"]
mod port_scan;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/scheduler_command.rs"]
mod scheduler_command;
#[path = "cli/schedulers.rs"]
mod schedulers;
#[path = "cli/simulation.rs"]
mod simulation;
#[path = "cli/state_backup.rs"]
mod state_backup;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/tls_hello.rs"]
mod tls_hello;
