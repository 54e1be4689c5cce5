//! `standard_metadata`: where a program keeps the fields that simple_switch reads and writes.
//!
//! `device` fills and reads them around each half of the pipeline.

use crate::spec::FieldRef;

/// Where a program keeps them; the optional ones may be missing from older programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardMetadata {
    pub(crate) ingress_port: FieldRef,
    pub(crate) egress_spec: FieldRef,
    pub(crate) egress_port: FieldRef,
    pub(crate) packet_length: FieldRef,
    pub(crate) instance_type: Option<FieldRef>,
    pub(crate) egress_rid: Option<FieldRef>,
    pub(crate) priority: Option<FieldRef>,
    pub(crate) multicast: Option<FieldRef>,
    pub(crate) parser_error: Option<FieldRef>,
    pub(crate) checksum_error: Option<FieldRef>,
    pub(crate) ingress_timestamp: Option<FieldRef>,
    pub(crate) egress_timestamp: Option<FieldRef>,
    pub(crate) enqueue_timestamp: Option<FieldRef>,
    pub(crate) enqueue_depth: Option<FieldRef>,
    pub(crate) dequeue_delta: Option<FieldRef>,
    pub(crate) dequeue_depth: Option<FieldRef>,
}
