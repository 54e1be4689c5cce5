//! The unary calls and `Read`: who may make them, then one hop to the device's thread.

use std::sync::{Arc, PoisonError};

use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::write_request::Atomicity;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::RwLockReadGuard;
use tonic::{Code, Status};

use super::SwitchInstance;
use super::error::{RequestFailure, batch_status};
use super::pipeline::{DevicePipelines, VerifiedPipeline};
use super::sessions::{SessionRegistry, from_uint128};
use crate::device::Device;

/// Entities per `ReadResponse`: a table entry takes about 100 bytes, so a message about 100 kB.
const ENTITIES_PER_RESPONSE: usize = 1024;

/// What a `Read` streams.
pub(super) type ReadResponses = Vec<Result<p4rt::ReadResponse, Status>>;

impl SwitchInstance {
    pub(super) fn check_device(&self, asked: u64) -> Result<(), RequestFailure> {
        let here = self.device_id;
        if asked == here {
            return Ok(());
        }
        Err(RequestFailure::not_found(format!(
            "unknown device {asked}: this switch is device {here}"
        )))
    }

    /// Holds the right to write: while the guard lives, no other controller is notified that it is
    /// the primary, so a write that has begun ends before the next primary begins.
    async fn authorize_write(
        &self,
        role: &str,
        election_id: Option<p4rt::Uint128>,
    ) -> Result<RwLockReadGuard<'_, SessionRegistry>, RequestFailure> {
        let sessions = self.sessions.read().await;
        sessions.election().authorize_write(role, election_id.map(from_uint128))?;
        Ok(sessions)
    }

    /// Runs one step on the device's thread.
    pub(super) async fn on_device<R: Send + 'static>(
        &self,
        step: impl FnOnce(&mut DevicePipelines, &mut Device) -> R + Send + 'static,
    ) -> Result<R, RequestFailure> {
        let pipelines = Arc::clone(&self.pipelines);
        let result = self.device.with_device(move |device| {
            step(&mut pipelines.lock().unwrap_or_else(PoisonError::into_inner), device)
        });
        Ok(result.await?)
    }

    pub(super) async fn handle_write(&self, request: p4rt::WriteRequest) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        drop(self.authorize_write(&request.role, request.election_id).await?);
        if request.atomicity() != Atomicity::ContinueOnError {
            let feature = request.atomicity().as_str_name();
            return Err(RequestFailure::unimplemented(feature).into());
        }
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).on_write();
        if !fault.delay.is_zero() {
            tokio::time::sleep(fault.delay).await;
        }
        // Checked again, because the primary may have changed during the injected delay.
        let sessions = self.authorize_write(&request.role, request.election_id).await?;
        let (updates, faults) = (request.updates, Arc::clone(&self.faults));
        let results = self
            .on_device(move |pipelines, device| {
                let mut injector = faults.lock().unwrap_or_else(PoisonError::into_inner);
                pipelines.write_updates(device, &updates, |table| injector.on_update(table))
            })
            .await??;
        drop(sessions);
        if fault.restart {
            self.restart.notify_one();
        }
        batch_status("updates", &results)
    }

    /// The answers in bounded messages; failed queries are reported after the last.
    pub(super) async fn handle_read(
        &self,
        request: p4rt::ReadRequest,
    ) -> Result<ReadResponses, Status> {
        self.check_device(request.device_id)?;
        let queries = request.entities;
        let answers = self
            .on_device(move |pipelines, device| pipelines.read_entities(device, &queries))
            .await??;
        let mut entities = Vec::new();
        let mut results = Vec::new();
        for answer in answers {
            results.push(answer.map(|found| entities.extend(found)));
        }
        let mut messages: ReadResponses = Vec::new();
        let mut remaining = entities.into_iter().peekable();
        while remaining.peek().is_some() {
            let entities = remaining.by_ref().take(ENTITIES_PER_RESPONSE).collect();
            messages.push(Ok(p4rt::ReadResponse { entities }));
        }
        messages.extend(batch_status("queries", &results).err().map(Err));
        Ok(messages)
    }

    pub(super) async fn set_pipeline(
        &self,
        request: p4rt::SetForwardingPipelineConfigRequest,
    ) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        let sessions = self.authorize_write(&request.role, request.election_id).await?;
        let action = request.action();
        let verified = match (action, request.config) {
            (Action::Unspecified, _) => {
                return Err(RequestFailure::invalid_argument("no action is given").into());
            }
            (Action::Commit, Some(_)) => {
                return Err(RequestFailure::invalid_argument("COMMIT takes no config").into());
            }
            (Action::Commit, None) => None,
            (_, Some(config)) => Some(VerifiedPipeline::verify_config(config)?),
            (_, None) => return Err(RequestFailure::invalid_argument("no config is given").into()),
        };
        let schema = self
            .on_device(move |pipelines, device| {
                apply_pipeline_action(pipelines, device, action, verified)?;
                Ok::<_, RequestFailure>(pipelines.running_schema())
            })
            .await??;
        self.schema.send_replace(schema);
        drop(sessions);
        Ok(())
    }

    pub(super) async fn get_pipeline(
        &self,
        request: p4rt::GetForwardingPipelineConfigRequest,
    ) -> Result<Option<p4rt::ForwardingPipelineConfig>, Status> {
        self.check_device(request.device_id)?;
        let parts = request.response_type();
        Ok(self.on_device(move |pipelines, _| pipelines.pipeline_config(parts)).await?)
    }
}

/// What each action does with the verified config, if it takes one.
fn apply_pipeline_action(
    pipelines: &mut DevicePipelines,
    device: &mut Device,
    action: Action,
    verified: Option<VerifiedPipeline>,
) -> Result<(), RequestFailure> {
    match (action, verified) {
        (Action::VerifyAndSave, Some(pipeline)) => pipelines.save_pipeline(pipeline, device),
        (Action::VerifyAndCommit, Some(pipeline)) => pipelines.replace_pipeline(pipeline, device),
        (Action::ReconcileAndCommit, Some(pipeline)) => {
            pipelines.reconcile_pipeline(pipeline, device)?;
        }
        (Action::Commit, _) => pipelines.commit_saved(device)?,
        _ => {}
    }
    Ok(())
}

/// What a failure to reach the device means to a controller.
impl From<crate::OwnerStopped> for RequestFailure {
    fn from(gone: crate::OwnerStopped) -> Self {
        Self::new(Code::Unavailable, gone.to_string())
    }
}
