//! Every endpoint of the HTTP interface, and the OpenAPI document of them.
//!
//! The document is served at `/openapi.json` and printed by `crux schema openapi`. Schemas come from
//! the types that are read and written.

use api::ErrorBody;
use planner::PlanDocument;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use topology::Finding;
use topology::spec::FabricDocument;

use super::cluster::{ClusterStatus, TakeLeadRequest};
use super::controller_view::{JobRow, LinkRow, SwitchRow};
use super::events;
use super::explanation::ExplainJobResponse;
use super::fabric_map::{FabricGraph, JobFlowRow, LinkLoadTable};
use super::http::{
    EndpointHandler, encode_body, get, get_by_name, get_page, parse_body, parse_query, post,
};
use super::learned_flow::LearnedFlowRow;
use super::planner_input::PlannerInput;
use super::queue_table::QueueRow;
use super::service::{
    ApplyPolicyRequest, ConfirmPolicyRequest, PolicyChangeResponse, PolicyRevisionDiff,
    PreviewPolicyRequest, RollbackPolicyRequest,
};
use super::utilization::UtilizationHistory;
use crate::audit::AuditRecord;
use crate::policy_history::PolicyRevision;
use crate::preview::PolicyPreview;
use crate::store::StateBackup;

/// One endpoint. It takes a document by POST, or nothing by GET.
pub(super) struct HttpEndpoint {
    pub(super) path: &'static str,
    pub(super) handler: EndpointHandler,
    /// Its operation id, which is the name of its RPC.
    operation: &'static str,
    /// What it does.
    summary: &'static str,
    /// The schema of what it takes.
    pub(super) takes: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// What it takes in the query of its URI: numbers, by name and meaning.
    query: &'static [(&'static str, &'static str)],
    /// The schema of what it answers.
    gives: fn(&mut SchemaGenerator) -> Schema,
}

fn schema_of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Which page of the policy history.
const REVISION_PAGE: &[(&str, &str)] = &[
    ("before", "Only revisions before this number: the lowest of the page before"),
    ("limit", "Revisions of the page, at most; 100 without it, and never more than 1,000"),
];

/// Which part of the utilisation's history.
const UTILIZATION_PAGE: &[(&str, &str)] = &[
    ("samples", "Samples at most; finer ones are merged. 240 without it"),
    ("seconds", "Only the last so many seconds before the latest sample, which is always there"),
];

/// The endpoints.
pub(super) const ENDPOINTS: &[HttpEndpoint] = &[
    HttpEndpoint {
        path: "/v1/jobs",
        handler: get!(list_jobs),
        operation: "ListJobs",
        summary: "The jobs of the plan in force, by rank",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<JobRow>>,
    },
    HttpEndpoint {
        path: "/v1/switches",
        handler: get!(list_switches),
        operation: "ListSwitches",
        summary: "All switches, and the generation each is verified to hold",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<SwitchRow>>,
    },
    HttpEndpoint {
        path: "/v1/queues",
        handler: get!(list_queues),
        operation: "ListQueues",
        summary: "Queues of switches that have lost, paused or marked packets, the worst thousand",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<QueueRow>>,
    },
    HttpEndpoint {
        path: "/v1/links",
        handler: get!(list_links),
        operation: "ListLinks",
        summary: "All directed links, with their planned and measured load by level",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<LinkRow>>,
    },
    HttpEndpoint {
        path: "/v1/learned-flows",
        handler: get!(list_learned_flows),
        operation: "ListLearnedFlows",
        summary: "RoCEv2 flows that no job has announced, as the leaves report them",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<LearnedFlowRow>>,
    },
    HttpEndpoint {
        path: "/v1/fabric",
        handler: get!(get_fabric),
        operation: "GetFabric",
        summary: "The fabric, as an explicit document",
        takes: None,
        query: &[],
        gives: schema_of::<FabricDocument>,
    },
    HttpEndpoint {
        path: "/v1/fabric-graph",
        handler: get!(get_fabric_graph),
        operation: "GetFabricGraph",
        summary: "The fabric as a graph of numbered nodes and cables, for maps",
        takes: None,
        query: &[],
        gives: schema_of::<FabricGraph>,
    },
    HttpEndpoint {
        path: "/v1/link-loads",
        handler: get!(get_link_loads),
        operation: "GetLinkLoads",
        summary: "What links carry and which parts are not up, by their numbers in the graph",
        takes: None,
        query: &[],
        gives: schema_of::<LinkLoadTable>,
    },
    HttpEndpoint {
        path: "/v1/job-flows/{name}",
        handler: get_by_name!(list_job_flows),
        operation: "ListJobFlows",
        summary: "The flows of a job, with their paths and how they are known",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<JobFlowRow>>,
    },
    HttpEndpoint {
        path: "/v1/plan",
        handler: get!(get_plan),
        operation: "GetPlan",
        summary: "The plan in force",
        takes: None,
        query: &[],
        gives: schema_of::<PlanDocument>,
    },
    HttpEndpoint {
        path: "/v1/planner-input",
        handler: get!(get_planner_input),
        operation: "GetPlannerInput",
        summary: "The planner's input: fabric, jobs, policy and switch capabilities as documents",
        takes: None,
        query: &[],
        gives: schema_of::<PlannerInput>,
    },
    HttpEndpoint {
        path: "/v1/explanations/{name}",
        handler: get_by_name!(explain_job),
        operation: "ExplainJob",
        summary: "Why a job, or the job of a flow (h1>h3:50000), has its level and its paths",
        takes: None,
        query: &[],
        gives: schema_of::<ExplainJobResponse>,
    },
    HttpEndpoint {
        path: "/v1/findings",
        handler: get!(list_findings),
        operation: "ListFindings",
        summary: "Everything that needs an operator's attention",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<Finding>>,
    },
    HttpEndpoint {
        path: "/v1/utilization",
        handler: get_page!(get_utilization),
        operation: "GetUtilization",
        summary: "GPU utilisation over time, by job and tenant: measured, forecast, under ECMP",
        takes: None,
        query: UTILIZATION_PAGE,
        gives: schema_of::<UtilizationHistory>,
    },
    HttpEndpoint {
        path: "/v1/audit-records",
        handler: get!(list_audit_records),
        operation: "ListAuditRecords",
        summary: "Who was let in, refused, and changed the policy, the latest first",
        takes: None,
        query: &[],
        gives: schema_of::<Vec<AuditRecord>>,
    },
    HttpEndpoint {
        path: "/v1/cluster",
        handler: get!(get_cluster),
        operation: "GetCluster",
        summary: "Who leads, as this controller sees it",
        takes: None,
        query: &[],
        gives: schema_of::<ClusterStatus>,
    },
    HttpEndpoint {
        path: "/v1/cluster/lead",
        handler: post!(take_lead),
        operation: "TakeLead",
        summary: "Has this controller take the lead where the switches elect",
        takes: Some(schema_of::<TakeLeadRequest>),
        query: &[],
        gives: schema_of::<ClusterStatus>,
    },
    HttpEndpoint {
        path: "/v1/cluster/step-down",
        handler: post!(step_down),
        operation: "StepDown",
        summary: "Has this controller leave the lead to another one",
        takes: Some(schema_of::<TakeLeadRequest>),
        query: &[],
        gives: schema_of::<ClusterStatus>,
    },
    HttpEndpoint {
        path: "/v1/state-backup",
        handler: get!(get_state_backup),
        operation: "GetStateBackup",
        summary: "What the controller has stored, for `crux state restore`",
        takes: None,
        query: &[],
        gives: schema_of::<StateBackup>,
    },
    HttpEndpoint {
        path: "/v1/policy",
        handler: get!(get_policy),
        operation: "GetPolicy",
        summary: "The policy revision in force",
        takes: None,
        query: &[],
        gives: schema_of::<PolicyRevision>,
    },
    HttpEndpoint {
        path: "/v1/policy/revisions",
        handler: get_page!(list_policy_revisions),
        operation: "ListPolicyRevisions",
        summary: "Policy revisions, the latest first, a page at a time",
        takes: None,
        query: REVISION_PAGE,
        gives: schema_of::<Vec<PolicyRevisionDiff>>,
    },
    HttpEndpoint {
        path: "/v1/policy/preview",
        handler: post!(preview_policy),
        operation: "PreviewPolicy",
        summary: "What a policy change would do; nothing is written",
        takes: Some(schema_of::<PreviewPolicyRequest>),
        query: &[],
        gives: schema_of::<PolicyPreview>,
    },
    HttpEndpoint {
        path: "/v1/policy/apply",
        handler: post!(apply_policy),
        operation: "ApplyPolicy",
        summary: "Apply a policy change to all switches or to none",
        takes: Some(schema_of::<ApplyPolicyRequest>),
        query: &[],
        gives: schema_of::<PolicyChangeResponse>,
    },
    HttpEndpoint {
        path: "/v1/policy/confirm",
        handler: post!(confirm_policy),
        operation: "ConfirmPolicy",
        summary: "Confirm the revision on trial",
        takes: Some(schema_of::<ConfirmPolicyRequest>),
        query: &[],
        gives: schema_of::<PolicyChangeResponse>,
    },
    HttpEndpoint {
        path: "/v1/policy/rollback",
        handler: post!(rollback_policy),
        operation: "RollbackPolicy",
        summary: "End a trial, or apply an earlier revision again",
        takes: Some(schema_of::<RollbackPolicyRequest>),
        query: &[],
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
            "description": "The operator interface of a running controller."
        },
        "paths": paths,
        "components": {"schemas": schemas.take_definitions(true)}
    })
}

/// The OpenAPI document as JSON text.
pub fn openapi_text() -> String {
    let text = serde_json::to_string_pretty(&openapi_document());
    text.expect("a document has text for keys") + "\n"
}

/// The content of a JSON body with this schema.
pub(super) fn json_content(schema: &Schema) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn describe_endpoint(endpoint: &HttpEndpoint, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "responses": {
            "200": {
                "description": "The response",
                "content": json_content(&(endpoint.gives)(schemas))
            },
            "default": {
                "description": "Why the request failed",
                "content": json_content(&schema_of::<ErrorBody>(schemas))
            }
        }
    });
    if endpoint.path.ends_with("{name}") {
        operation["parameters"] = json!([{
            "name": "name", "in": "path", "required": true, "schema": {"type": "string"}
        }]);
    }
    if !endpoint.query.is_empty() {
        let parameters = endpoint.query.iter().map(|(name, meaning)| {
            let schema = json!({"type": "integer", "minimum": 1});
            json!({"name": name, "in": "query", "description": meaning, "schema": schema})
        });
        operation["parameters"] = parameters.collect();
    }
    let Some(takes) = endpoint.takes else {
        return json!({ "get": operation });
    };
    operation["requestBody"] = json!({"required": true, "content": json_content(&takes(schemas))});
    json!({ "post": operation })
}
