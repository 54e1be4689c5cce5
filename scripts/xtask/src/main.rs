//! Checks of the house rules: cargo xtask check.

fn main() {}
