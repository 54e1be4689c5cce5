//! The data plane and the in-process fabric, seen from outside, on the compiled fabric.p4.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up ends there")]

#[path = "data_plane/bmv2_json.rs"]
mod bmv2_json;
#[path = "data_plane/flow_control.rs"]
mod flow_control;
#[path = "data_plane/forwarding.rs"]
mod forwarding;
#[path = "data_plane/frames.rs"]
mod frames;
#[path = "data_plane/hostile_frames.rs"]
mod hostile_frames;
#[path = "data_plane/ipv6.rs"]
mod ipv6;
#[path = "data_plane/isolation.rs"]
mod isolation;
#[path = "data_plane/isolation_property.rs"]
mod isolation_property;
#[path = "data_plane/neighbours.rs"]
mod neighbours;
#[path = "data_plane/queues.rs"]
mod queues;
#[path = "data_plane/real_ports.rs"]
mod real_ports;
#[path = "data_plane/robustness.rs"]
mod robustness;
#[path = "data_plane/sai.rs"]
mod sai;
#[path = "data_plane/support.rs"]
mod support;
#[path = "data_plane/tables.rs"]
mod tables;
#[path = "data_plane/virtual_clock.rs"]
mod virtual_clock;
