//! From the BMv2 JSON of p4c to a [`Program`](crate::Program) with every name resolved to an index.
//!
//! `loader` reads the JSON (`json`), refuses what this version cannot run and compiles the rest
//! into the structures of `run`. The decision behind it: an unsupported construct is refused here
//! with its name and place, so that nothing on the packet path sees a string, a map or a missing
//! object.

mod actions;
mod arrays;
mod controls;
mod expressions;
mod header_groups;
mod headers;
mod json;
mod loader;
mod objects;
mod parsers;
mod primitives;
mod specialization;

pub use loader::LoadError;
