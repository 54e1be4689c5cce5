//! Which pins match what their jobs send.
//!
//! A pin that nothing hits is one whose job sends from another port, over other NICs, or not at
//! all. The decision: a pin counts only once it has been read for some seconds, so that a job that
//! has just been planned is not reported.

use planner::JobId;
use topology::Finding;

/// Seconds over which a pin has to count nothing to be a miss.
pub(super) const MISS_SECONDS: f64 = 10.0;
/// Misses that a finding names.
const NAMED_MISSES: usize = 8;

/// The pins that were read for ten seconds, and those among them that nothing hit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinHits {
    /// Pins.
    pub pins: usize,
    /// Flows whose pins have counted nothing, with their jobs; in the order of both names.
    pub misses: Vec<(JobId, String)>,
}

impl PinHits {
    /// What an operator should know of misses: `pins hit: 20 of 26`, and which flows lack.
    pub fn finding(&self) -> Option<Finding> {
        let (missing, pins) = (self.misses.len(), self.pins);
        let names = self.misses.iter().take(NAMED_MISSES);
        let names: Vec<String> = names.map(|(job, flow)| format!("{flow} of {job}")).collect();
        let more = match missing.saturating_sub(NAMED_MISSES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "pins hit: {} of {pins}; nothing is counted of {}{more}. If their hosts send from \
             other ports, announce them without ports",
            pins - missing,
            names.join(", "),
        );
        (missing > 0).then(|| Finding::info("pins", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_counted_and_the_first_are_named() {
        assert_eq!(PinHits { pins: 26, misses: Vec::new() }.finding(), None);
        let misses = (0..10).map(|port| ("gpt".into(), format!("h1>h3:{port}"))).collect();
        let text = PinHits { pins: 26, misses }.finding().unwrap().text;
        assert!(text.starts_with("pins hit: 16 of 26; nothing is counted of h1>h3:0 of gpt, "));
        assert!(text.contains("h1>h3:7 of gpt and 2 more."), "{text}");
    }
}
