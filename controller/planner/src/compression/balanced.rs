//! The compression of Varys: the sorted jobs split evenly.

/// Levels of `nodes` jobs in descending priority.
pub fn balanced_levels(nodes: usize, levels: u8) -> Vec<u8> {
    let share = nodes.div_ceil(usize::from(levels.max(1))).max(1);
    let highest = levels.saturating_sub(1);
    (0..nodes)
        .map(|node| highest.saturating_sub(u8::try_from(node / share).unwrap_or(u8::MAX)))
        .collect()
}
