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
use topology::{Finding, one_line};

use super::auth::CallerIdentity;
use super::service::{NorthboundService, ServiceError};
use crate::event_log::{EventPage, EventPosition};

/// An answer to an RPC.
type RpcResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Northbound for NorthboundService {
    async fn jobs(&self, _: Request<proto::Nothing>) -> RpcResult<proto::JobRows> {
        list_response("jobs", &Self::list_jobs(self).await.map_err(error_status)?)
    }

    async fn switches(&self, _: Request<proto::Nothing>) -> RpcResult<proto::SwitchRows> {
        list_response("switches", &Self::list_switches(self).await.map_err(error_status)?)
    }

    async fn links(&self, _: Request<proto::Nothing>) -> RpcResult<proto::LinkRows> {
        list_response("links", &Self::list_links(self).await.map_err(error_status)?)
    }

    async fn fabric(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Document> {
        rpc_response(&json_document(&Self::get_fabric(self).await.map_err(error_status)?))
    }

    async fn plan(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Document> {
        rpc_response(&json_document(&Self::get_plan(self).await.map_err(error_status)?))
    }

    async fn situation(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Document> {
        rpc_response(&json_document(&Self::get_planner_input(self).await.map_err(error_status)?))
    }

    async fn explain(&self, asked: Request<proto::Name>) -> RpcResult<proto::Explanation> {
        let name = &asked.get_ref().name;
        rpc_response(&Self::explain_job(self, name).await.map_err(error_status)?)
    }

    async fn doctor(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Findings> {
        list_response("findings", &Self::list_findings(self).await.map_err(error_status)?)
    }

    async fn policy(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Edition> {
        let edition = Self::get_policy(self).await.map_err(error_status)?;
        rpc_response(&revision_message(json!(edition)))
    }

    async fn policy_history(&self, _: Request<proto::Nothing>) -> RpcResult<proto::Chapters> {
        let chapters = self.list_policy_revisions().await.map_err(error_status)?.into_iter();
        let chapter = |chapter| {
            let mut chapter = json!(chapter);
            chapter["edition"] = revision_message(chapter["edition"].take());
            chapter
        };
        list_response("chapters", &chapters.map(chapter).collect::<Vec<_>>())
    }

    async fn policy_diff(&self, asked: Request<proto::Wish>) -> RpcResult<proto::Preview> {
        let wish = parse_request(asked.get_ref())?;
        rpc_response(&self.preview_policy(&wish).await.map_err(error_status)?)
    }

    async fn policy_apply(&self, asked: Request<proto::Order>) -> RpcResult<proto::Done> {
        let order = parse_request(asked.get_ref())?;
        let asked_by = self.for_caller(asked.extensions());
        rpc_response(&asked_by.apply_policy(&order).await.map_err(error_status)?)
    }

    async fn policy_confirm(&self, asked: Request<proto::Say>) -> RpcResult<proto::Done> {
        let say = parse_request(asked.get_ref())?;
        let asked_by = self.for_caller(asked.extensions());
        rpc_response(&asked_by.confirm_policy(&say).await.map_err(error_status)?)
    }

    async fn policy_rollback(&self, asked: Request<proto::Say>) -> RpcResult<proto::Done> {
        let say = parse_request(asked.get_ref())?;
        let asked_by = self.for_caller(asked.extensions());
        rpc_response(&asked_by.rollback_policy(&say).await.map_err(error_status)?)
    }

    type EventsStream = Pin<Box<dyn Stream<Item = Result<proto::Happenings, Status>> + Send>>;

    async fn events(&self, asked: Request<proto::Since>) -> RpcResult<Self::EventsStream> {
        let Some(since) = &asked.get_ref().since else {
            return Ok(event_stream(self, EventPosition::default()));
        };
        let refused = |why| error_status(ServiceError::Refused(vec![Finding::error("since", why)]));
        Ok(event_stream(self, since.parse().map_err(refused)?))
    }
}

/// What the server says of its services to who asks for that (gRPC reflection).
pub(super) fn reflection_service() -> ServerReflectionServer<impl ServerReflection> {
    let builder = Builder::configure().register_encoded_file_descriptor_set(api::DESCRIPTORS);
    builder.build_v1().expect("the descriptors are those that the services were made from")
}

impl NorthboundService {
    /// The same, for whoever the gate has let in.
    fn for_caller(&self, extensions: &Extensions) -> Self {
        let caller = extensions.get().cloned();
        let CallerIdentity(caller) = caller.unwrap_or_default();
        self.with_caller(caller)
    }
}

/// A stream of what happens after a position.
fn event_stream(
    service: &NorthboundService,
    since: EventPosition,
) -> Response<<NorthboundService as Northbound>::EventsStream> {
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

/// What a message asks for.
fn parse_request<T: DeserializeOwned>(message: &impl Serialize) -> Result<T, Status> {
    let wrong = |error: serde_json::Error| Status::invalid_argument(error.to_string());
    serde_json::from_value(json!(message)).map_err(wrong)
}

/// The message that says what an answer does.
fn to_message<T: DeserializeOwned>(answer: &impl Serialize) -> Result<T, Status> {
    // A test asks for every answer, so what is wrong here is wrong there.
    let wrong = |error: serde_json::Error| Status::internal(error.to_string());
    serde_json::from_value(json!(answer)).map_err(wrong)
}

fn rpc_response<T: DeserializeOwned>(answer: &impl Serialize) -> RpcResult<T> {
    to_message(answer).map(Response::new)
}

/// The same of a list, which is a field of its message.
fn list_response<T: DeserializeOwned>(name: &str, rows: &impl Serialize) -> RpcResult<T> {
    rpc_response(&json!({ name: rows }))
}

fn json_document(content: &impl Serialize) -> Value {
    json!({ "json": json!(content).to_string() })
}

/// An edition, the contents of which are documents.
fn revision_message(mut edition: Value) -> Value {
    edition["content"] = json_document(&edition["content"].take());
    if let Some(trial) = edition.get_mut("trial").filter(|trial| !trial.is_null()) {
        trial["before"] = json_document(&trial["before"].take());
    }
    edition
}

fn error_status(error: ServiceError) -> Status {
    match error {
        ServiceError::Refused(findings) => Status::failed_precondition(one_line(&findings)),
        ServiceError::Unknown(what) => Status::not_found(what),
        ServiceError::Controller(error) => Status::unavailable(error.to_string()),
    }
}
