//! What runs on every packet: the header vector, the parser, actions, tables and the deparser.
//!
//! `compile` builds these structures from the BMv2 JSON and `device` drives them. Nothing here
//! reads a clock, a name or a map of names: every reference is an index resolved at compile time.

pub(crate) mod action;
pub(crate) mod arrays;
pub(crate) mod counter;
pub(crate) mod deparser;
pub(crate) mod ecn;
pub(crate) mod expression;
pub(crate) mod hash;
pub(crate) mod header;
pub(crate) mod meter;
pub(crate) mod parser;
pub(crate) mod phv;
pub(crate) mod pipeline;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod standard_metadata;
pub(crate) mod table;
