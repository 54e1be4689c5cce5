//! Test support: the STF runner of the P4 compiler's corpus, and faults injected into the service.

pub mod faults;
pub mod stf;
