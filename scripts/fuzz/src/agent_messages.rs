//! What a host's agent reads: messages of processes, and netlink.

use agent::communicator_jobs::CommunicatorJobs;
use agent::process_message::{ProcessMessage, parse_message};
use agent::queue_pairs::{
    DumpState, MAX_DEVICES, MAX_QUEUE_PAIRS, parse_devices, parse_queue_pairs,
};
use agent::{JobMonitor, ReportLimits};

/// Sequence number of the request that netlink replies to.
const SEQUENCE: u32 = 1;
/// Jobs of the host.
const JOBS: usize = 64;

/// Lines on the agent's socket, by two processes in turn, a second apart.
pub(crate) fn agent_messages(data: &[u8]) -> Option<()> {
    let mut monitor = JobMonitor::new(ReportLimits {
        window_seconds: 1.0,
        presence_seconds: 10.0,
        jobs: JOBS,
        sample_seconds: 0.1,
        memory_seconds: 30.0,
    });
    let mut accepted = None;
    let mut communicators = CommunicatorJobs::new("h1");
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let (process, now) = ((number % 2) as u64, number as f64);
        let Some(message) =
            std::str::from_utf8(line).ok().and_then(|line| parse_message(line).ok())
        else {
            continue;
        };
        let messages = match message {
            ProcessMessage::Communicator(traffic) => {
                communicators.record_traffic(process, &traffic).unwrap_or_default()
            }
            message => vec![message],
        };
        for message in messages {
            accepted = monitor.handle_message(process, message, now).ok().map(drop).or(accepted);
        }
        let _reports = monitor.tick_windows(now);
    }
    let _reports = monitor.remove_process(0);
    assert!(monitor.end_all().len() <= JOBS);
    accepted
}

/// A datagram of the kernel.
pub(crate) fn netlink(data: &[u8]) -> Option<()> {
    let mut devices = DumpState::default();
    let _refused = parse_devices(data, SEQUENCE, &mut devices);
    assert!(devices.items.len() <= MAX_DEVICES);
    let mut pairs = DumpState::default();
    let _refused = parse_queue_pairs(data, SEQUENCE, &mut pairs);
    assert!(pairs.items.len() <= MAX_QUEUE_PAIRS);
    (devices.items.len() + pairs.items.len() > 0).then_some(())
}
