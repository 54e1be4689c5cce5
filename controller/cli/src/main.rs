//! The one binary of Crux.

fn main() {}
