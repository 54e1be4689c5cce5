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

use super::controller_view::{JobRow, LinkRow, SwitchRow};
use super::events;
use super::explanation::ExplainJobResponse;
use super::http::{EndpointHandler, encode_body, name, parse_body, take, tell};
use super::planner_input::PlannerInput;
use super::service::{
    ApplyPolicyRequest, PolicyChangeResponse, PolicyRevisionDiff, PreviewPolicyRequest,
    RollbackPolicyRequest,
};
use crate::policy_history::PolicyRevision;
use crate::preview::PolicyPreview;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// One endpoint. It takes a document by POST, or nothing by GET.
pub(super) struct HttpEndpoint {
    pub(super) path: &'static str,
    pub(super) handler: EndpointHandler,
    /// What it does.
    summary: &'static str,
    /// The schema of what it takes.
    pub(super) takes: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// The schema of what it answers.
    gives: fn(&mut SchemaGenerator) -> Schema,
}

fn schema_of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// The endpoints.
pub(super) const ENDPOINTS: &[HttpEndpoint] = &[
    HttpEndpoint {
        path: "/v1/jobs",
        handler: tell!(list_jobs),
        summary: "The jobs in force, by rank",
        takes: None,
        gives: schema_of::<Vec<JobRow>>,
    },
    HttpEndpoint {
        path: "/v1/switches",
        handler: tell!(list_switches),
        summary: "All switches, and what they hold",
        takes: None,
        gives: schema_of::<Vec<SwitchRow>>,
    },
    HttpEndpoint {
        path: "/v1/links",
        handler: tell!(list_links),
        summary: "All links, with their planned load by class",
        takes: None,
        gives: schema_of::<Vec<LinkRow>>,
    },
    HttpEndpoint {
        path: "/v1/fabric",
        handler: tell!(get_fabric),
        summary: "The fabric, as an explicit document",
        takes: None,
        gives: schema_of::<FabricDocument>,
    },
    HttpEndpoint {
        path: "/v1/plan",
        handler: tell!(get_plan),
        summary: "The plan in force",
        takes: None,
        gives: schema_of::<PlanDocument>,
    },
    HttpEndpoint {
        path: "/v1/situation",
        handler: tell!(get_planner_input),
        summary: "What is planned for: fabric, jobs and policy as documents",
        takes: None,
        gives: schema_of::<PlannerInput>,
    },
    HttpEndpoint {
        path: "/v1/explain/{name}",
        handler: name!(explain_job),
        summary: "Why a job, or the job of a flow (h1>h3:50000), is treated as it is",
        takes: None,
        gives: schema_of::<ExplainJobResponse>,
    },
    HttpEndpoint {
        path: "/v1/doctor",
        handler: tell!(list_findings),
        summary: "What an operator should look at",
        takes: None,
        gives: schema_of::<Vec<Finding>>,
    },
    HttpEndpoint {
        path: "/v1/policy",
        handler: tell!(get_policy),
        summary: "The edition of the policy that is in force",
        takes: None,
        gives: schema_of::<PolicyRevision>,
    },
    HttpEndpoint {
        path: "/v1/policy/history",
        handler: tell!(list_policy_revisions),
        summary: "All editions, the latest first",
        takes: None,
        gives: schema_of::<Vec<PolicyRevisionDiff>>,
    },
    HttpEndpoint {
        path: "/v1/policy/diff",
        handler: take!(preview_policy),
        summary: "What a change would do; nothing changes",
        takes: Some(schema_of::<PreviewPolicyRequest>),
        gives: schema_of::<PolicyPreview>,
    },
    HttpEndpoint {
        path: "/v1/policy/apply",
        handler: take!(apply_policy),
        summary: "Make a change: all of it, or none",
        takes: Some(schema_of::<ApplyPolicyRequest>),
        gives: schema_of::<PolicyChangeResponse>,
    },
    HttpEndpoint {
        path: "/v1/policy/confirm",
        handler: take!(confirm_policy),
        summary: "Let the edition on trial stay",
        takes: Some(schema_of::<RollbackPolicyRequest>),
        gives: schema_of::<PolicyChangeResponse>,
    },
    HttpEndpoint {
        path: "/v1/policy/rollback",
        handler: take!(rollback_policy),
        summary: "Go back: from a trial to what was before it, or to any edition",
        takes: Some(schema_of::<RollbackPolicyRequest>),
        gives: schema_of::<PolicyChangeResponse>,
    },
];

/// The OpenAPI document (3.1).
pub fn openapi_document() -> Value {
    let mut schemas = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        paths.insert(endpoint.path.to_owned(), describe_endpoint(endpoint, &mut schemas));
    }
    paths.insert(events::PATH.to_owned(), events::describe_operation(&mut schemas));
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
pub fn openapi_text() -> String {
    let text = serde_json::to_string_pretty(&openapi_document());
    text.expect("a document has text for keys") + "\n"
}

fn describe_endpoint(endpoint: &HttpEndpoint, schemas: &mut SchemaGenerator) -> Value {
    let content = |schema: Schema| json!({"application/json": {"schema": schema}});
    let mut operation = json!({
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "The answer", "content": content((endpoint.gives)(schemas))},
            "default": {
                "description": "Why there is none",
                "content": content(schema_of::<ErrorBody>(schemas))
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
