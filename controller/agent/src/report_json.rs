//! Reports as lines of JSON, for `--dry-run` and `--once`: what would be sent, with the names that
//! the protobufs have. What is not known is left out.

use api::telemetry as proto;
use proto::report::Said;
use serde_json::{Map, Value, json};

/// A report.
pub fn report_to_json(said: &Said) -> Value {
    match said {
        Said::Announcement(said) => json!({ "announcement": announcement_to_json(said) }),
        Said::Window(said) => json!({ "window": window_to_json(said) }),
        Said::End(said) => json!({ "end": { "job": said.job } }),
    }
}

fn announcement_to_json(said: &proto::Announcement) -> Value {
    let flow = |flow: &proto::Flow| {
        json!({
            "src": flow.src, "dst": flow.dst, "src_nic": flow.src_nic, "dst_nic": flow.dst_nic,
            "bytes": flow.bytes, "udp_src_port": flow.udp_src_port,
        })
    };
    let collective = said.collective.as_ref().map(|collective| {
        json!({
            "kind": collective.kind, "bytes": collective.bytes, "channels": collective.channels,
        })
    });
    known_fields([
        ("job", json!(said.job)),
        ("tenant", json!(said.tenant)),
        ("model", json!(said.model)),
        ("gpus", json!(said.gpus)),
        ("flows", json!(said.flows.iter().map(flow).collect::<Vec<_>>())),
        ("collective", json!(collective)),
        ("profile", json!(said.profile)),
        ("flop_per_iteration", json!(said.flop_per_iteration)),
        ("compute_seconds", json!(said.compute_seconds)),
        ("overlap_from", json!(said.overlap_from)),
    ])
}

fn window_to_json(said: &proto::Window) -> Value {
    known_fields([
        ("job", json!(said.job)),
        ("seconds", json!(said.seconds)),
        ("iteration_starts", json!(said.iteration_starts)),
        ("flop", json!(said.flop)),
        ("compute_seconds", json!(said.compute_seconds)),
        ("communication_seconds", json!(said.communication_seconds)),
        ("flow_bytes", json!(said.flow_bytes)),
        ("bytes", json!(said.bytes)),
    ])
}

fn known_fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_known = |value: &Value| !value.is_null() && *value != json!([]);
    let fields = fields.into_iter().filter(|(_, value)| is_known(value));
    let fields: Map<String, Value> = fields.map(|(name, value)| (name.to_owned(), value)).collect();
    Value::Object(fields)
}
