//! The compression of Sincronia: the first `K - 1` jobs alone, the rest together in the lowest
//! level.

/// Levels of `nodes` jobs in descending priority.
pub fn sincronia_levels(nodes: usize, levels: u8) -> Vec<u8> {
    let highest = levels.saturating_sub(1);
    (0..nodes).map(|node| highest.saturating_sub(u8::try_from(node).unwrap_or(u8::MAX))).collect()
}
