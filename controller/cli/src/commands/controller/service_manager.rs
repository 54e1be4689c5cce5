//! What the service manager is told: ready, alive, ending (`Type=notify` of systemd).
//!
//! Without a service manager nothing is sent. A message that cannot be sent is logged once: the
//! service manager acts on its absence by itself.

use std::sync::Once;

use sd_notify::NotifyState;
use tracing::warn;

/// The controller serves; it has a plan, or will plan when its documents are valid.
pub(super) fn announce_ready() {
    send(NotifyState::Ready);
}

/// The event loop has answered. Sent however rarely `WatchdogSec` demands it.
pub(super) fn announce_alive() {
    if sd_notify::watchdog_enabled().is_some() {
        send(NotifyState::Watchdog);
    }
}

/// The controller ends; switches keep their entries.
pub(super) fn announce_end() {
    send(NotifyState::Stopping);
}

fn send(state: NotifyState<'_>) {
    static REPORTED: Once = Once::new();
    if let Err(error) = sd_notify::notify(&[state]) {
        REPORTED.call_once(|| warn!(%error, "cannot notify the service manager"));
    }
}
