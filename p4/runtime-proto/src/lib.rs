//! The P4Runtime v1.5 protobufs for prost and tonic.
