//! A watchdog of the event loop: notices that it no longer answers, says so, and in the end ends
//! the process, so that the service manager starts it again.
//!
//! The decision: it is a thread of its own, because a runtime whose threads are all busy runs no
//! task that could notice. Switches keep their entries meanwhile.

use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ::controller::ControllerAccess;
use tokio::runtime::Handle;
use tracing::{error, warn};

use super::service_manager;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Silence that is reported.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// Silence that ends the process.
const END_AFTER: Duration = Duration::from_secs(60);

/// What follows from a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StallAction {
    Wait,
    Report,
    EndProcess,
}

/// What to do after the event loop was silent for so long; `is_reported` if that is known.
fn stall_action(silence: Duration, is_reported: bool) -> StallAction {
    match silence {
        silence if silence >= END_AFTER => StallAction::EndProcess,
        silence if silence >= REPORT_AFTER && !is_reported => StallAction::Report,
        _ => StallAction::Wait,
    }
}

/// Starts the watchdog of a controller. It ends with the controller.
pub(super) fn start_watchdog(access: ControllerAccess, runtime: Handle) -> std::io::Result<()> {
    let thread = thread::Builder::new().name("watchdog".to_owned());
    thread.spawn(move || while watch_answer(&access, &runtime) {}).map(drop)
}

/// Asks once and waits for the answer; false when the controller has stopped.
fn watch_answer(access: &ControllerAccess, runtime: &Handle) -> bool {
    let (answered, answer) = mpsc::channel();
    let (asked, loop_access) = (Instant::now(), access.clone());
    runtime.spawn(async move {
        // The watchdog may have ended.
        answered.send(loop_access.query_state(|_| ()).await.is_ok()).ok();
    });
    let mut is_reported = false;
    loop {
        match answer.recv_timeout(INTERVAL) {
            Ok(is_running) => {
                let silence = asked.elapsed();
                if is_reported {
                    warn!(silence_ms = silence.as_millis() as u64, "the event loop answers again");
                }
                access.heartbeat().record_answer(tokio::time::Instant::now());
                service_manager::announce_alive();
                thread::sleep(INTERVAL.saturating_sub(silence));
                return is_running;
            }
            // The runtime is shutting down.
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        match stall_action(asked.elapsed(), is_reported) {
            StallAction::Wait => {}
            StallAction::Report => {
                is_reported = true;
                let silence_ms = asked.elapsed().as_millis() as u64;
                error!(silence_ms, "the event loop does not answer");
            }
            StallAction::EndProcess => {
                error!(
                    "the event loop has not answered for {} s; the process ends",
                    END_AFTER.as_secs()
                );
                process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_reported_once_and_ends_the_process_at_last() {
        let seconds = |seconds| Duration::from_secs(seconds);
        let cases = [
            (seconds(1), false, StallAction::Wait),
            (seconds(2), false, StallAction::Report),
            (seconds(30), true, StallAction::Wait),
            (seconds(60), true, StallAction::EndProcess),
        ];
        for (silence, is_reported, expected) in cases {
            assert_eq!(stall_action(silence, is_reported), expected, "{silence:?}");
        }
    }
}
