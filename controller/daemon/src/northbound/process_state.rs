//! The controller as a process: whether it answers, whether it is ready, and what it has stored.

use std::time::Duration;

use tokio::time::Instant;

use super::service::{NorthboundService, ServiceError};
use crate::access::ControllerError;
use crate::store::StateBackup;

/// Silence of the event loop after which it counts as stuck; its watchdog asks every second.
const SILENT_AFTER: Duration = Duration::from_secs(5);

impl NorthboundService {
    /// Whether the event loop answers its watchdog, if it has one.
    pub(super) fn is_alive(&self) -> bool {
        let silence = self.access.heartbeat().silence(Instant::now());
        silence.is_none_or(|silence| silence < SILENT_AFTER)
    }

    /// Whether a plan is in force, at a standby too.
    pub(super) fn is_ready(&self) -> bool {
        self.access.current_rollout().is_some()
    }

    /// A backup of what the controller has stored.
    ///
    /// # Errors
    /// The controller has no store of its own, or it cannot be read.
    pub async fn get_state_backup(&self) -> Result<StateBackup, ServiceError> {
        let Some(store) = &self.access.store else {
            let text = "the controller has no store (store.path); etcd is backed up by `etcdctl`";
            return Err(ServiceError::Unknown(text.to_owned()));
        };
        let store = store.upgrade().ok_or(ControllerError::Stopped)?;
        let backup = tokio::task::spawn_blocking(move || store.create_backup()).await;
        let backup = backup.map_err(|_| ControllerError::Stopped)?;
        Ok(backup.map_err(ControllerError::Store)?)
    }
}
