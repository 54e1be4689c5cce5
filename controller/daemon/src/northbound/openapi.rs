//! Every endpoint of the HTTP interface, and the OpenAPI document of them.
//!
//! The document is served at `/openapi.json` and kept in `docs/openapi.json`. Schemas come from the
//! types that are read and written.

use planner::PlanDocument;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use topology::Finding;
use topology::spec::FabricDocument;

use super::answers::{JobRow, LinkRow, SwitchRow};
use super::events;
use super::explain::Explanation;
use super::http::{Handler, name, read, take, tell, written};
use super::service::{Chapter, Done, Order, Say, Wish};
use super::situation::Situation;
use crate::ledger::Edition;
use crate::preview::Preview;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// One endpoint. It takes a document by POST, or nothing by GET.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) handler: Handler,
    /// What it does.
    summary: &'static str,
    /// The schema of what it takes.
    pub(super) takes: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// The schema of what it answers.
    gives: fn(&mut SchemaGenerator) -> Schema,
}

fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// The endpoints.
pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/v1/jobs",
        handler: tell!(jobs),
        summary: "The jobs in force, by rank",
        takes: None,
        gives: of::<Vec<JobRow>>,
    },
    Endpoint {
        path: "/v1/switches",
        handler: tell!(switches),
        summary: "All switches, and what they hold",
        takes: None,
        gives: of::<Vec<SwitchRow>>,
    },
    Endpoint {
        path: "/v1/links",
        handler: tell!(links),
        summary: "All links, with their planned load by class",
        takes: None,
        gives: of::<Vec<LinkRow>>,
    },
    Endpoint {
        path: "/v1/fabric",
        handler: tell!(fabric),
        summary: "The fabric, as an explicit document",
        takes: None,
        gives: of::<FabricDocument>,
    },
    Endpoint {
        path: "/v1/plan",
        handler: tell!(plan),
        summary: "The plan in force",
        takes: None,
        gives: of::<PlanDocument>,
    },
    Endpoint {
        path: "/v1/situation",
        handler: tell!(situation),
        summary: "What is planned for: fabric, jobs and policy as documents",
        takes: None,
        gives: of::<Situation>,
    },
    Endpoint {
        path: "/v1/explain/{name}",
        handler: name!(explain),
        summary: "Why a job, or the job of a flow (h1>h3:50000), is treated as it is",
        takes: None,
        gives: of::<Explanation>,
    },
    Endpoint {
        path: "/v1/doctor",
        handler: tell!(doctor),
        summary: "What an operator should look at",
        takes: None,
        gives: of::<Vec<Finding>>,
    },
    Endpoint {
        path: "/v1/policy",
        handler: tell!(policy),
        summary: "The edition of the policy that is in force",
        takes: None,
        gives: of::<Edition>,
    },
    Endpoint {
        path: "/v1/policy/history",
        handler: tell!(history),
        summary: "All editions, the latest first",
        takes: None,
        gives: of::<Vec<Chapter>>,
    },
    Endpoint {
        path: "/v1/policy/diff",
        handler: take!(diff),
        summary: "What a change would do; nothing changes",
        takes: Some(of::<Wish>),
        gives: of::<Preview>,
    },
    Endpoint {
        path: "/v1/policy/apply",
        handler: take!(apply),
        summary: "Make a change: all of it, or none",
        takes: Some(of::<Order>),
        gives: of::<Done>,
    },
    Endpoint {
        path: "/v1/policy/confirm",
        handler: take!(confirm),
        summary: "Let the edition on trial stay",
        takes: Some(of::<Say>),
        gives: of::<Done>,
    },
    Endpoint {
        path: "/v1/policy/rollback",
        handler: take!(roll_back),
        summary: "Go back: from a trial to what was before it, or to any edition",
        takes: Some(of::<Say>),
        gives: of::<Done>,
    },
];

/// The OpenAPI document (3.1).
pub fn document() -> Value {
    let mut schemas = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        paths.insert(endpoint.path.to_owned(), operation(endpoint, &mut schemas));
    }
    paths.insert(events::PATH.to_owned(), events::operation(&mut schemas));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Crux",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What a running controller answers and does."
        },
        "paths": paths,
        "components": {"schemas": schemas.take_definitions(true)}
    })
}

/// The same as text.
pub fn text() -> String {
    let text = serde_json::to_string_pretty(&document());
    text.expect("a document has text for keys") + "\n"
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let content = |schema: Schema| json!({"application/json": {"schema": schema}});
    let mut operation = json!({
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "The answer", "content": content((endpoint.gives)(schemas))},
            "default": {
                "description": "Why there is none",
                "content": content(of::<Problem>(schemas))
            }
        }
    });
    if endpoint.path.ends_with("{name}") {
        operation["parameters"] = json!([{
            "name": "name", "in": "path", "required": true, "schema": {"type": "string"}
        }]);
    }
    let Some(takes) = endpoint.takes else {
        return json!({ "get": operation });
    };
    operation["requestBody"] = json!({"required": true, "content": content(takes(schemas))});
    json!({ "post": operation })
}
