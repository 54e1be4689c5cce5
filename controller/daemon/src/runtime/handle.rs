//! A running controller, as who started it holds it.
//!
//! The decision: stopping is for one. Everything else that can be done with a controller is in
//! [`ControllerAccess`], of which there may be many.

use std::ops::Deref;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::ControllerAccess;

/// A running controller. Whatever it can be asked and told, its [`ControllerAccess`] can. Dropping
/// it stops the controller as [`ControllerHandle::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct ControllerHandle {
    pub(super) access: ControllerAccess,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
    pub(super) shutdown_deadline: Duration,
}

impl ControllerHandle {
    /// What others may hold of it.
    pub fn access(&self) -> &ControllerAccess {
        &self.access
    }

    /// Stops the controller and waits until its sessions have ended. Withdraws nothing: switches
    /// keep forwarding by what they hold.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if timeout(self.shutdown_deadline, &mut self.task).await.is_err() {
            warn!("sessions did not end in time; leaving them");
            self.task.abort();
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
