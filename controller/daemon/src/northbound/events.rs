//! What happens, over HTTP: as a document of what is kept, or as server-sent events as it comes.
//!
//! The one endpoint that goes on, so it stands beside the table of [`openapi`](super::openapi). The
//! decision: a reader has a position and no queue (see [`event_log`](crate::event_log)). Its
//! connection is written to when it has room, so a slow reader falls behind, is told how much it
//! missed, and holds up nobody.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::ErrorBody;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use topology::Finding;

use super::http::{build_response, encode_body};
use super::openapi::json_content;
use super::service::{NorthboundService, ServiceError};
use crate::event_log::{EventPage, EventPosition};

/// Where they are served.
pub(super) const PATH: &str = "/v1/events";

/// Events that a reader is handed at once.
const AT_ONCE: usize = 256;

/// A reader that hears nothing for so long is sent a comment, so that both ends see whether the
/// other is there.
const ALIVE: Duration = Duration::from_secs(15);

/// How long a reader waits before it asks again.
const RETRY: Duration = Duration::from_secs(1);

/// The data of a server-sent event `missed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissedEvents {
    /// How many events the reader was too slow for, or came too late for.
    pub missed: u64,
}

impl NorthboundService {
    /// What happened after a position, as far as it is kept.
    pub fn events_since(&self, since: EventPosition) -> EventPage {
        self.access.watch_events().borrow().events_since(since, usize::MAX)
    }

    /// Pages of events after a position, then of new ones, until the controller ends.
    pub fn follow_events(&self, since: EventPosition) -> impl Stream<Item = EventPage> + use<> {
        stream::unfold((self.access.watch_events(), since), |(mut log, since)| async move {
            loop {
                let page = log.borrow_and_update().events_since(since, AT_ONCE);
                if page.missed > 0 || !page.events.is_empty() {
                    let read = page.end_position();
                    return Some((page, (log, read)));
                }
                log.changed().await.ok()?;
            }
        })
    }
}

/// Answers a request: a stream, unless a document is asked for.
pub(super) async fn handle_request(
    State(service): State<Arc<NorthboundService>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let asked = query.as_deref().unwrap_or_default().split('&');
    let asked = { asked }.find_map(|field| field.strip_prefix("since="));
    // A browser that reconnects sends the last event that it has, which is later than the query.
    let position = header_text(&headers, "last-event-id").or(asked).unwrap_or("0");
    let since = match position.parse() {
        Ok(since) => since,
        Err(why) => return build_response(Err(invalid_position(why))),
    };
    let wants_document = header_text(&headers, header::ACCEPT.as_str()).is_some_and(|accept| {
        accept.contains("application/json") && !accept.contains("text/event-stream")
    });
    if wants_document {
        build_response(encode_body(&service.events_since(since)))
    } else {
        stream_response(service.follow_events(since))
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(super) fn invalid_position(why: String) -> ServiceError {
    ServiceError::Refused(vec![Finding::error("since", why)])
}

fn stream_response(pages: impl Stream<Item = EventPage> + Send + 'static) -> Response {
    let hello = Event::default().retry(RETRY).comment("crux");
    let frames = pages.flat_map(|page| stream::iter(encode_frames(&page)));
    let frames = stream::once(async { hello }).chain(frames);
    Sse::new(frames.map(Ok::<_, Infallible>))
        .keep_alive(KeepAlive::new().interval(ALIVE))
        .into_response()
}

fn encode_frames(page: &EventPage) -> Vec<Event> {
    let missed = (page.missed > 0).then(|| {
        let frame = Event::default().event("missed");
        frame.data(to_json(&MissedEvents { missed: page.missed }))
    });
    let events = page.events.iter().map(|event| {
        let id = EventPosition { run: Some(page.run), sequence: event.sequence };
        Event::default().id(id.to_string()).data(to_json(event))
    });
    missed.into_iter().chain(events).collect()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("events have text for keys")
}

/// How the OpenAPI document describes it.
pub(super) fn describe_operation(schemas: &mut SchemaGenerator) -> Value {
    let since = "Read from here on: the last sequence number that was read, or RUN.SEQUENCE as \
        in the ids of server-sent events; without it, from the earliest that is kept";
    let stream = "Server-sent events: the data of each is an event (Event), its id a \
        position; an event `missed` says how many the reader was too slow for (MissedEvents)";
    schemas.subschema_for::<MissedEvents>();
    let mut content = json_content(&schemas.subschema_for::<EventPage>());
    content["text/event-stream"] = json!({"schema": {"type": "string", "description": stream}});
    let problem = json_content(&schemas.subschema_for::<ErrorBody>());
    json!({"get": {
        "operationId": "WatchEvents",
        "summary": "What happens, as it happens; as a document where only that is accepted",
        "parameters": [{
            "name": "since", "in": "query", "required": false, "description": since,
            "schema": {"type": "string"}
        }],
        "responses": {
            "200": {"description": "The answer", "content": content},
            "default": {
                "description": "Why there is no answer",
                "content": problem
            }
        }
    }})
}
