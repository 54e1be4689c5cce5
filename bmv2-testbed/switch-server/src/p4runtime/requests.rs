//! The unary calls and `Read`: who may make them, then one hop to the device's thread.

use std::sync::{Arc, PoisonError};

use p4rt::set_forwarding_pipeline_config_request::Action;
use p4rt::write_request::Atomicity;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::RwLockReadGuard;
use tonic::{Code, Status};

use super::SwitchInstance;
use super::error::{RequestFailure, batch_status};
use super::pipeline::{DevicePipelines, VerifiedPipeline, no_pipeline_failure};
use super::sessions::{SessionRegistry, from_uint128};
use crate::p4runtime::election::SwitchDialect;
use switch::Device;

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
        let fault = {
            let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.on_write(request.updates.len())
        };
        if let Some(limit) = fault.limit {
            let message = format!("a request has at most {limit} updates");
            return Err(RequestFailure::new(Code::ResourceExhausted, message).into());
        }
        if !fault.delay.is_zero() {
            tokio::time::sleep(fault.delay).await;
        }
        // Checked again, because the primary may have changed during the injected delay.
        let sessions = self.authorize_write(&request.role, request.election_id).await?;
        let (role, updates) = (request.role, request.updates);
        let faults = Arc::clone(&self.faults);
        let results = self
            .on_device(move |pipelines, device| {
                let mut injector = faults.lock().unwrap_or_else(PoisonError::into_inner);
                pipelines.write_updates(device, &role, &updates, |table| injector.on_update(table))
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
        let (queries, role) = (request.entities, request.role);
        let answers = self
            .on_device(move |pipelines, device| pipelines.read_entities(device, &queries, &role))
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
        if self.dialect == SwitchDialect::Pins {
            self.check_pins_action(action, request.config.is_some()).await?;
        }
        let verified = match (action, request.config) {
            (Action::Unspecified, _) => {
                return Err(RequestFailure::invalid_argument("no action is given").into());
            }
            (Action::Commit, Some(_)) => {
                return Err(RequestFailure::invalid_argument("COMMIT takes no config").into());
            }
            (Action::Commit, None) => None,
            (_, Some(config)) => Some(self.verify_config(config).await?),
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

    async fn verify_config(
        &self,
        config: p4rt::ForwardingPipelineConfig,
    ) -> Result<VerifiedPipeline, RequestFailure> {
        if self.dialect != SwitchDialect::Pins {
            return VerifiedPipeline::verify_config(config);
        }
        let built_in = self.on_device(|_, device| device.program().cloned()).await?;
        VerifiedPipeline::verify_for_pins(config, built_in.as_ref(), self.port_names.clone())
    }

    /// Refuses what PINS does not do with a configuration: it saves none for a later commit, and
    /// never clears the state of one that runs.
    async fn check_pins_action(
        &self,
        action: Action,
        has_config: bool,
    ) -> Result<(), RequestFailure> {
        let is_running = self.on_device(|pipelines, _| pipelines.is_running()).await?;
        match action {
            Action::Unspecified | Action::VerifyAndSave => {
                Err(RequestFailure::unimplemented(action.as_str_name()))
            }
            Action::VerifyAndCommit if is_running => {
                let message = "clearing the state is not supported: use RECONCILE_AND_COMMIT";
                Err(RequestFailure::new(Code::Unimplemented, message))
            }
            Action::Commit if !has_config => {
                let message = "no config was saved: use RECONCILE_AND_COMMIT";
                Err(RequestFailure::new(Code::FailedPrecondition, message))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn get_pipeline(
        &self,
        request: p4rt::GetForwardingPipelineConfigRequest,
    ) -> Result<Option<p4rt::ForwardingPipelineConfig>, Status> {
        self.check_device(request.device_id)?;
        let parts = request.response_type();
        let config = self.on_device(move |pipelines, _| pipelines.pipeline_config(parts)).await?;
        // Clients of bmv2 push their pipeline when they get this error.
        if config.is_none() && self.dialect == SwitchDialect::Bmv2 {
            return Err(no_pipeline_failure().into());
        }
        Ok(config)
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
impl From<switch::OwnerStopped> for RequestFailure {
    fn from(gone: switch::OwnerStopped) -> Self {
        Self::new(Code::Unavailable, gone.to_string())
    }
}
