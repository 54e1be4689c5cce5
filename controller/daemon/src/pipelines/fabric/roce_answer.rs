//! `roce_answer`: responses of RoCEv2 have the highest level, above all jobs.
//!
//! A sender's window waits for acknowledgments, which take paths that no plan considers: at their
//! job's level they would queue behind any job that fills such a path. They are a few per cent of
//! the traffic that they acknowledge. The rows do not depend on the jobs.

use p4::entry::TableEntry;
use p4::fabric::{self, PriorityLevel};

use super::switch_context::SwitchContext;

/// Opcodes of the base transport header (InfiniBand §9.2): acknowledgments of messages and of
/// atomic operations over reliable connections, and congestion notifications (annex A17).
const ANSWERS: [u8; 3] = [0x11, 0x12, 0x81];

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let is_edge = !site.nics().is_empty();
    match PriorityLevel::all_levels().take(site.shared.plan.levels.into()).last() {
        Some(highest) if is_edge => {
            ANSWERS.map(|opcode| fabric::roce_answer(opcode, highest)).into()
        }
        _ => Vec::new(),
    }
}
