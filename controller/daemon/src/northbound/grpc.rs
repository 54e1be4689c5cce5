//! gRPC, over [`Service`]: the same questions and commands as HTTP, by the same names.
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

use super::gate::Caller;
use super::service::{Service, ServiceError};
use crate::chronicle::{Page, Position};

/// An answer to an RPC.
type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Northbound for Service {
    async fn jobs(&self, _: Request<proto::Nothing>) -> Answer<proto::JobRows> {
        list("jobs", &Self::jobs(self).await.map_err(status)?)
    }

    async fn switches(&self, _: Request<proto::Nothing>) -> Answer<proto::SwitchRows> {
        list("switches", &Self::switches(self).await.map_err(status)?)
    }

    async fn links(&self, _: Request<proto::Nothing>) -> Answer<proto::LinkRows> {
        list("links", &Self::links(self).await.map_err(status)?)
    }

    async fn fabric(&self, _: Request<proto::Nothing>) -> Answer<proto::Document> {
        answer(&document(&Self::fabric(self).await.map_err(status)?))
    }

    async fn plan(&self, _: Request<proto::Nothing>) -> Answer<proto::Document> {
        answer(&document(&Self::plan(self).await.map_err(status)?))
    }

    async fn situation(&self, _: Request<proto::Nothing>) -> Answer<proto::Document> {
        answer(&document(&Self::situation(self).await.map_err(status)?))
    }

    async fn explain(&self, asked: Request<proto::Name>) -> Answer<proto::Explanation> {
        let name = &asked.get_ref().name;
        answer(&Self::explain(self, name).await.map_err(status)?)
    }

    async fn doctor(&self, _: Request<proto::Nothing>) -> Answer<proto::Findings> {
        list("findings", &Self::doctor(self).await.map_err(status)?)
    }

    async fn policy(&self, _: Request<proto::Nothing>) -> Answer<proto::Edition> {
        let edition = Self::policy(self).await.map_err(status)?;
        answer(&whole(json!(edition)))
    }

    async fn policy_history(&self, _: Request<proto::Nothing>) -> Answer<proto::Chapters> {
        let chapters = self.history().await.map_err(status)?.into_iter();
        let chapter = |chapter| {
            let mut chapter = json!(chapter);
            chapter["edition"] = whole(chapter["edition"].take());
            chapter
        };
        list("chapters", &chapters.map(chapter).collect::<Vec<_>>())
    }

    async fn policy_diff(&self, asked: Request<proto::Wish>) -> Answer<proto::Preview> {
        let wish = asked_for(asked.get_ref())?;
        answer(&self.diff(&wish).await.map_err(status)?)
    }

    async fn policy_apply(&self, asked: Request<proto::Order>) -> Answer<proto::Done> {
        let order = asked_for(asked.get_ref())?;
        let asked_by = self.known(asked.extensions());
        answer(&asked_by.apply(&order).await.map_err(status)?)
    }

    async fn policy_confirm(&self, asked: Request<proto::Say>) -> Answer<proto::Done> {
        let say = asked_for(asked.get_ref())?;
        let asked_by = self.known(asked.extensions());
        answer(&asked_by.confirm(&say).await.map_err(status)?)
    }

    async fn policy_rollback(&self, asked: Request<proto::Say>) -> Answer<proto::Done> {
        let say = asked_for(asked.get_ref())?;
        let asked_by = self.known(asked.extensions());
        answer(&asked_by.roll_back(&say).await.map_err(status)?)
    }

    type EventsStream = Pin<Box<dyn Stream<Item = Result<proto::Happenings, Status>> + Send>>;

    async fn events(&self, asked: Request<proto::Since>) -> Answer<Self::EventsStream> {
        let Some(since) = &asked.get_ref().since else {
            return Ok(pages(self, Position::default()));
        };
        let refused = |why| status(ServiceError::Refused(vec![Finding::error("since", why)]));
        Ok(pages(self, since.parse().map_err(refused)?))
    }
}

/// What the server says of its services to who asks for that (gRPC reflection).
pub(super) fn reflection() -> ServerReflectionServer<impl ServerReflection> {
    let builder = Builder::configure().register_encoded_file_descriptor_set(api::DESCRIPTORS);
    builder
        .build_v1()
        .expect("the descriptors are those that the services were made from")
}

impl Service {
    /// The same, for whoever the gate has let in.
    fn known(&self, extensions: &Extensions) -> Self {
        let caller = extensions.get().cloned();
        let Caller(caller) = caller.unwrap_or_default();
        self.asked_by(caller)
    }
}

/// A stream of what happens after a position.
fn pages(service: &Service, since: Position) -> Response<<Service as Northbound>::EventsStream> {
    let pages = service
        .follow(since)
        .map(|page| message(&happenings(&page)));
    Response::new(Box::pin(pages))
}

/// A page whose events name their kind instead of having its fields.
fn happenings(page: &Page) -> Value {
    let mut page = json!(page);
    for event in page["events"].as_array_mut().into_iter().flatten() {
        let fields = event.clone();
        event["kind"] = json!({ event["kind"].as_str().unwrap_or_default(): fields });
    }
    page
}

/// What a message asks for.
fn asked_for<T: DeserializeOwned>(message: &impl Serialize) -> Result<T, Status> {
    let wrong = |error: serde_json::Error| Status::invalid_argument(error.to_string());
    serde_json::from_value(json!(message)).map_err(wrong)
}

/// The message that says what an answer does.
fn message<T: DeserializeOwned>(answer: &impl Serialize) -> Result<T, Status> {
    // A test asks for every answer, so what is wrong here is wrong there.
    let wrong = |error: serde_json::Error| Status::internal(error.to_string());
    serde_json::from_value(json!(answer)).map_err(wrong)
}

fn answer<T: DeserializeOwned>(answer: &impl Serialize) -> Answer<T> {
    message(answer).map(Response::new)
}

/// The same of a list, which is a field of its message.
fn list<T: DeserializeOwned>(name: &str, rows: &impl Serialize) -> Answer<T> {
    answer(&json!({ name: rows }))
}

fn document(content: &impl Serialize) -> Value {
    json!({ "json": json!(content).to_string() })
}

/// An edition, the contents of which are documents.
fn whole(mut edition: Value) -> Value {
    edition["content"] = document(&edition["content"].take());
    if let Some(trial) = edition.get_mut("trial").filter(|trial| !trial.is_null()) {
        trial["before"] = document(&trial["before"].take());
    }
    edition
}

fn status(error: ServiceError) -> Status {
    match error {
        ServiceError::Refused(findings) => Status::failed_precondition(one_line(&findings)),
        ServiceError::Unknown(what) => Status::not_found(what),
        ServiceError::Controller(error) => Status::unavailable(error.to_string()),
    }
}
