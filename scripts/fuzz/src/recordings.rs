//! Files of lines of JSON: recordings, which are replayed, and the audit trail.

use controller::audit::{AuditRecord, verify_chain};
use controller::recorder::replay::replay_recording;

/// Bytes beyond which a recording tests the planner and no longer the reader.
const FILE_BYTES: usize = 64 * 1024;

/// A file of the flight recorder if it begins so, and else one of the audit trail.
pub(crate) fn recordings(data: &[u8]) -> Option<()> {
    let mut file = data.get(..FILE_BYTES).unwrap_or(data);
    if file.starts_with(b"{\"b") {
        return replay_recording(&mut file, &mut |_| {}).ok().map(drop);
    }
    let lines = file.split(|byte| *byte == b'\n');
    let records: Vec<AuditRecord> =
        lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    verify_chain(&records).ok()
}
