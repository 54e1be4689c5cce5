//! As Sincronia does: the first `K - 1` jobs alone in a level, the rest together in the lowest.

/// Levels of `nodes` jobs in descending priority.
pub fn sincronia_levels(nodes: usize, levels: u8) -> Vec<u8> {
    let highest = levels.saturating_sub(1);
    let rank = |node: usize| u8::try_from(node).unwrap_or(u8::MAX);
    (0..nodes).map(|node| highest.saturating_sub(rank(node))).collect()
}
