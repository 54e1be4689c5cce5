//! gRPC, over [`NorthboundService`]: the same questions and commands as HTTP, by the same names.
//!
//! The decision: messages have the fields of the JSON answers, so one is made from the other by the
//! names of the fields and neither can say what the other does not; what users know as whole
//! documents stays one.

use std::pin::Pin;

use api::northbound as proto;
use api::northbound::northbound_server::Northbound;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt};
use tonic::{Extensions, Request, Response, Status};
use tonic_reflection::server::Builder;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use topology::one_line;

use super::auth::CallerIdentity;
use super::events::invalid_position;
use super::service::{ListPolicyRevisionsRequest, NorthboundService, ServiceError};
use super::utilization::UtilizationPage;
use crate::event_log::{EventPage, EventPosition};

/// An answer to an RPC.
type RpcResult<T> = Result<Response<T>, Status>;

/// The service: what `lists` answers is a field of its message, what `documents` answers is a JSON
/// document in it, and what `commands` answers has the fields of its message; the rest is written
/// out.
macro_rules! northbound_service {
    (
        lists { $($list:ident: $rows:ident = $field:literal,)* }
        documents { $($document:ident,)* }
        commands { $($command:ident: $request:ident -> $answer:ident,)* }
        $($rest:tt)*
    ) => {
        #[tonic::async_trait]
        impl Northbound for NorthboundService {
            $(async fn $list(&self, _: Request<()>) -> RpcResult<proto::$rows> {
                list_response($field, &Self::$list(self).await.map_err(error_status)?)
            })*

            $(async fn $document(&self, _: Request<()>) -> RpcResult<proto::JsonDocument> {
                rpc_response(&json_document(&Self::$document(self).await.map_err(error_status)?))
            })*

            $(async fn $command(
                &self,
                request: Request<proto::$request>,
            ) -> RpcResult<proto::$answer> {
                let service = self.for_caller(request.extensions());
                let parsed = parse_request(request.get_ref())?;
                rpc_response(&Self::$command(&service, &parsed).await.map_err(error_status)?)
            })*

            $($rest)*
        }
    };
}

northbound_service! {
    lists {
        list_jobs: ListJobsResponse = "jobs",
        list_queues: ListQueuesResponse = "queues",
        list_switches: ListSwitchesResponse = "switches",
        list_links: ListLinksResponse = "links",
        list_learned_flows: ListLearnedFlowsResponse = "flows",
        list_findings: ListFindingsResponse = "findings",
        list_audit_records: ListAuditRecordsResponse = "records",
        list_fabric_revisions: ListFabricRevisionsResponse = "revisions",
    }
    documents {
        get_fabric,
        get_fabric_graph,
        get_link_loads,
        get_plan,
        get_planner_input,
        get_state_backup,
    }
    commands {
        take_lead: TakeLeadRequest -> ClusterStatus,
        step_down: TakeLeadRequest -> ClusterStatus,
        preview_fabric: PreviewFabricRequest -> FabricPreview,
        apply_fabric: ApplyFabricRequest -> FabricChangeResponse,
        rollback_fabric: RollbackFabricRequest -> FabricChangeResponse,
        preview_policy: PreviewPolicyRequest -> PolicyPreview,
        apply_policy: ApplyPolicyRequest -> PolicyChangeResponse,
        confirm_policy: ConfirmPolicyRequest -> PolicyChangeResponse,
        rollback_policy: RollbackPolicyRequest -> PolicyChangeResponse,
    }

    async fn list_job_flows(
        &self,
        request: Request<proto::ListJobFlowsRequest>,
    ) -> RpcResult<proto::ListJobFlowsResponse> {
        let name = &request.get_ref().name;
        list_response("flows", &Self::list_job_flows(self, name).await.map_err(error_status)?)
    }

    async fn explain_job(
        &self,
        request: Request<proto::ExplainJobRequest>,
    ) -> RpcResult<proto::ExplainJobResponse> {
        let name = &request.get_ref().name;
        rpc_response(&Self::explain_job(self, name).await.map_err(error_status)?)
    }

    async fn get_utilization(
        &self,
        request: Request<proto::GetUtilizationRequest>,
    ) -> RpcResult<proto::JsonDocument> {
        let proto::GetUtilizationRequest { samples, seconds } = *request.get_ref();
        let page = UtilizationPage { samples, seconds };
        let history = Self::get_utilization(self, &page).await.map_err(error_status)?;
        rpc_response(&json_document(&history))
    }

    async fn get_cluster(&self, _: Request<()>) -> RpcResult<proto::ClusterStatus> {
        rpc_response(&Self::get_cluster(self).await.map_err(error_status)?)
    }

    async fn get_policy(&self, _: Request<()>) -> RpcResult<proto::PolicyRevision> {
        let revision = Self::get_policy(self).await.map_err(error_status)?;
        rpc_response(&revision_message(json!(revision)))
    }

    async fn list_policy_revisions(
        &self,
        request: Request<proto::ListPolicyRevisionsRequest>,
    ) -> RpcResult<proto::ListPolicyRevisionsResponse> {
        let proto::ListPolicyRevisionsRequest { before, limit } = *request.get_ref();
        let page = ListPolicyRevisionsRequest { before, limit };
        let diffs = Self::list_policy_revisions(self, &page).await.map_err(error_status)?;
        let mut diffs = json!(diffs);
        for diff in diffs.as_array_mut().into_iter().flatten() {
            diff["revision"] = revision_message(diff["revision"].take());
        }
        list_response("revisions", &diffs)
    }

    type WatchEventsStream = Pin<Box<dyn Stream<Item = Result<proto::EventPage, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<proto::WatchEventsRequest>,
    ) -> RpcResult<Self::WatchEventsStream> {
        let since = match &request.get_ref().since {
            None => EventPosition::default(),
            Some(text) => text.parse().map_err(|error| error_status(invalid_position(error)))?,
        };
        Ok(event_stream(self, since))
    }
}

/// Describes the services to clients (gRPC reflection).
pub(super) fn reflection_service() -> ServerReflectionServer<impl ServerReflection> {
    let builder = Builder::configure().register_encoded_file_descriptor_set(api::DESCRIPTORS);
    builder.build_v1().expect("the descriptors are those that the services were made from")
}

impl NorthboundService {
    /// The service on behalf of the authenticated caller of a request.
    fn for_caller(&self, extensions: &Extensions) -> Self {
        let caller = extensions.get().cloned();
        let CallerIdentity(caller) = caller.unwrap_or_default();
        self.with_caller(caller)
    }
}

/// A stream of the events after a position.
fn event_stream(
    service: &NorthboundService,
    since: EventPosition,
) -> Response<<NorthboundService as Northbound>::WatchEventsStream> {
    let pages = service.follow_events(since).map(|page| to_message(&events_message(&page)));
    Response::new(Box::pin(pages))
}

/// A page whose events name their kind instead of having its fields.
fn events_message(page: &EventPage) -> Value {
    let mut page = json!(page);
    for event in page["events"].as_array_mut().into_iter().flatten() {
        let fields = event.clone();
        event["kind"] = json!({ event["kind"].as_str().unwrap_or_default(): fields });
    }
    page
}

/// The request in a message, whose fields have the names of the JSON request.
fn parse_request<T: DeserializeOwned>(message: &impl Serialize) -> Result<T, Status> {
    serde_json::from_value(json!(message))
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The message with the fields of a JSON response.
fn to_message<T: DeserializeOwned>(answer: &impl Serialize) -> Result<T, Status> {
    // A test requests every response, so a mismatch of the two forms fails there.
    serde_json::from_value(json!(answer)).map_err(|error| Status::internal(error.to_string()))
}

fn rpc_response<T: DeserializeOwned>(answer: &impl Serialize) -> RpcResult<T> {
    to_message(answer).map(Response::new)
}

/// The response with a list, which is a field of its message.
fn list_response<T: DeserializeOwned>(name: &str, rows: &impl Serialize) -> RpcResult<T> {
    rpc_response(&json!({ name: rows }))
}

fn json_document(content: &impl Serialize) -> Value {
    json!({ "json": json!(content).to_string() })
}

/// A revision, the contents of which are documents.
fn revision_message(mut revision: Value) -> Value {
    revision["content"] = json_document(&revision["content"].take());
    if let Some(trial) = revision.get_mut("trial").filter(|trial| !trial.is_null()) {
        trial["before"] = json_document(&trial["before"].take());
    }
    revision
}

fn error_status(error: ServiceError) -> Status {
    match error {
        ServiceError::Refused(findings) => Status::failed_precondition(one_line(&findings)),
        ServiceError::Unknown(what) => Status::not_found(what),
        ServiceError::TooMany(_) => Status::resource_exhausted(error.to_string()),
        ServiceError::Overloaded(_) => Status::unavailable(error.to_string()),
        ServiceError::Controller(error) => Status::unavailable(error.to_string()),
    }
}
