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
    ApplyFabricRequest, ApplyPolicyRequest, ConfirmPolicyRequest, FabricChangeResponse,
    FabricRevisionRow, PolicyChangeResponse, PolicyRevisionDiff, PreviewFabricRequest,
    PreviewPolicyRequest, RollbackFabricRequest, RollbackPolicyRequest,
};
use super::utilization::UtilizationHistory;
use crate::audit::AuditRecord;
use crate::policy_history::PolicyRevision;
use crate::preview::{FabricPreview, PolicyPreview};
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

/// Endpoints, a row each: `PATH => RPC -> ANSWER: HANDLER, SUMMARY;`. What an endpoint takes stands
/// after its RPC: a document in parentheses, or the numbers of its query in brackets.
macro_rules! endpoints {
    (@takes) => { None };
    (@takes $takes:ty) => { Some(schema_of::<$takes>) };
    (@query) => { &[] };
    (@query $query:ident) => { $query };
    ($($path:literal => $operation:ident $(($takes:ty))? $([$query:ident])? -> $gives:ty:
        $handler:expr, $summary:literal;)*) => {
        &[$(HttpEndpoint {
            path: $path,
            handler: $handler,
            operation: stringify!($operation),
            summary: $summary,
            takes: endpoints!(@takes $($takes)?),
            query: endpoints!(@query $($query)?),
            gives: schema_of::<$gives>,
        }),*]
    };
}

/// The endpoints.
pub(super) const ENDPOINTS: &[HttpEndpoint] = endpoints! {
    "/v1/jobs" => ListJobs -> Vec<JobRow>: get!(list_jobs),
        "The jobs of the plan in force, by rank";
    "/v1/switches" => ListSwitches -> Vec<SwitchRow>: get!(list_switches),
        "All switches, and the generation each is verified to hold";
    "/v1/queues" => ListQueues -> Vec<QueueRow>: get!(list_queues),
        "Queues of switches that have lost, paused or marked packets, the worst thousand";
    "/v1/links" => ListLinks -> Vec<LinkRow>: get!(list_links),
        "All directed links, with their planned and measured load by level";
    "/v1/learned-flows" => ListLearnedFlows -> Vec<LearnedFlowRow>: get!(list_learned_flows),
        "RoCEv2 flows that no job has announced, as the leaves report them";
    "/v1/fabric" => GetFabric -> FabricDocument: get!(get_fabric),
        "The fabric, as an explicit document";
    "/v1/fabric/revisions" => ListFabricRevisions -> Vec<FabricRevisionRow>:
        get!(list_fabric_revisions),
        "Fabrics that were in force, the latest first, with author, reason and changes";
    "/v1/fabric/preview" => PreviewFabric(PreviewFabricRequest) -> FabricPreview:
        post!(preview_fabric),
        "What another fabric would change; nothing is written";
    "/v1/fabric/apply" => ApplyFabric(ApplyFabricRequest) -> FabricChangeResponse:
        post!(apply_fabric),
        "Have another fabric in force";
    "/v1/fabric/rollback" => RollbackFabric(RollbackFabricRequest) -> FabricChangeResponse:
        post!(rollback_fabric),
        "Have an earlier fabric in force again";
    "/v1/fabric-graph" => GetFabricGraph -> FabricGraph: get!(get_fabric_graph),
        "The fabric as a graph of numbered nodes and cables, for maps";
    "/v1/link-loads" => GetLinkLoads -> LinkLoadTable: get!(get_link_loads),
        "What links carry and which parts are not up, by their numbers in the graph";
    "/v1/job-flows/{name}" => ListJobFlows -> Vec<JobFlowRow>: get_by_name!(list_job_flows),
        "The flows of a job, with their paths and how they are known";
    "/v1/plan" => GetPlan -> PlanDocument: get!(get_plan),
        "The plan in force";
    "/v1/planner-input" => GetPlannerInput -> PlannerInput: get!(get_planner_input),
        "The planner's input: fabric, jobs, policy and switch capabilities as documents";
    "/v1/explanations/{name}" => ExplainJob -> ExplainJobResponse: get_by_name!(explain_job),
        "Why a job, or the job of a flow (h1>h3:50000), has its level and its paths";
    "/v1/findings" => ListFindings -> Vec<Finding>: get!(list_findings),
        "Everything that needs an operator's attention";
    "/v1/utilization" => GetUtilization[UTILIZATION_PAGE] -> UtilizationHistory:
        get_page!(get_utilization),
        "GPU utilisation over time, by job and tenant: measured, forecast, under ECMP";
    "/v1/audit-records" => ListAuditRecords -> Vec<AuditRecord>: get!(list_audit_records),
        "Who was let in, refused, and changed the policy, the latest first";
    "/v1/cluster" => GetCluster -> ClusterStatus: get!(get_cluster),
        "Who leads, as this controller sees it";
    "/v1/cluster/lead" => TakeLead(TakeLeadRequest) -> ClusterStatus: post!(take_lead),
        "Has this controller take the lead where the switches elect";
    "/v1/cluster/step-down" => StepDown(TakeLeadRequest) -> ClusterStatus: post!(step_down),
        "Has this controller leave the lead to another one";
    "/v1/state-backup" => GetStateBackup -> StateBackup: get!(get_state_backup),
        "What the controller has stored, for `crux state restore`";
    "/v1/policy" => GetPolicy -> PolicyRevision: get!(get_policy),
        "The policy revision in force";
    "/v1/policy/revisions" => ListPolicyRevisions[REVISION_PAGE] -> Vec<PolicyRevisionDiff>:
        get_page!(list_policy_revisions),
        "Policy revisions, the latest first, a page at a time";
    "/v1/policy/preview" => PreviewPolicy(PreviewPolicyRequest) -> PolicyPreview:
        post!(preview_policy),
        "What a policy change would do; nothing is written";
    "/v1/policy/apply" => ApplyPolicy(ApplyPolicyRequest) -> PolicyChangeResponse:
        post!(apply_policy),
        "Apply a policy change to all switches or to none";
    "/v1/policy/confirm" => ConfirmPolicy(ConfirmPolicyRequest) -> PolicyChangeResponse:
        post!(confirm_policy),
        "Confirm the revision on trial";
    "/v1/policy/rollback" => RollbackPolicy(RollbackPolicyRequest) -> PolicyChangeResponse:
        post!(rollback_policy),
        "End a trial, or apply an earlier revision again";
};

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
