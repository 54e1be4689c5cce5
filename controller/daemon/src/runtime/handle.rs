//! The owner's handle of a running controller.
//!
//! The decision: only the owner can stop a controller. Everything else is in [`ControllerAccess`],
//! of which there may be many.

use std::ops::Deref;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::ControllerAccess;

/// A running controller, with the methods of its [`ControllerAccess`]. Dropping it stops the
/// controller as [`ControllerHandle::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct ControllerHandle {
    pub(super) access: ControllerAccess,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
    /// Stores the plan in force, where there is a store.
    pub(super) keeper: Option<JoinHandle<()>>,
    pub(super) shutdown_deadline: Duration,
}

impl ControllerHandle {
    /// The access for others, which can be cloned.
    pub fn access(&self) -> &ControllerAccess {
        &self.access
    }

    /// Stops the controller and waits until its sessions have ended. No entry is deleted: switches
    /// keep forwarding by the tables that they hold.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if timeout(self.shutdown_deadline, &mut self.task).await.is_err() {
            warn!("sessions did not end in time; leaving them");
            self.task.abort();
        }
        if let Some(keeper) = &mut self.keeper
            && timeout(self.shutdown_deadline, keeper).await.is_err()
        {
            warn!("the plan in force was not stored in time; the next run continues from another");
        }
    }
}

impl Deref for ControllerHandle {
    type Target = ControllerAccess;

    fn deref(&self) -> &ControllerAccess {
        &self.access
    }
}

impl Drop for ControllerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
