//! `roce_answer`: answers of RoCEv2 travel above all jobs.
//!
//! A sender's window waits for acknowledgments, which take ways that no plan looks at: at their
//! job's level they would stop behind any job that fills such a way. They are small, a few per
//! cent of what they answer. The rows are the same whatever the jobs.

use p4::entry::TableEntry;
use p4::fabric::{self, PriorityLevel};

use super::switch_context::SwitchContext;

/// Opcodes of the base transport header (InfiniBand §9.2): acknowledgments of messages and of
/// atomic operations over reliable connections, and congestion notifications (annex A17).
const ANSWERS: [u8; 3] = [0x11, 0x12, 0x81];

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let is_edge = site.nics().next().is_some();
    let highest = PriorityLevel::all_levels().take(site.shared.plan.levels.into()).last();
    let highest = highest.into_iter().filter(|_| is_edge);
    highest.flat_map(|level| ANSWERS.map(|opcode| fabric::roce_answer(opcode, level))).collect()
}
