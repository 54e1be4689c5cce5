//! Reports as JSON, for `--dry-run` and `--once`, with the field names of the protobufs. Unknown
//! values are left out.

use api::telemetry as proto;
use proto::job_report::Report;
use serde_json::{Map, Value, json};

/// One report as an object with its kind as the only key.
pub fn report_to_json(report: &Report) -> Value {
    match report {
        Report::Announcement(announcement) => {
            json!({ "announcement": announcement_to_json(announcement) })
        }
        Report::Window(window) => json!({ "window": window_to_json(window) }),
        Report::End(end) => json!({ "end": { "job": end.job } }),
        Report::QueuePairs(report) => json!({ "queue_pairs": host_to_json(report) }),
        Report::HostStatus(status) => json!({ "host_status": status_to_json(status) }),
    }
}

fn announcement_to_json(announcement: &proto::JobAnnouncement) -> Value {
    let collective = announcement.collective.as_ref().map(|collective| {
        json!({
            "kind": collective.kind, "bytes": collective.bytes, "channels": collective.channels,
        })
    });
    known_fields([
        ("job", json!(announcement.job)),
        ("tenant", json!(announcement.tenant)),
        ("model", json!(announcement.model)),
        ("gpus", json!(announcement.gpus)),
        ("hosts", json!(announcement.hosts)),
        ("gpu_indices", gpu_indices_to_json(announcement)),
        ("flows", announcement.flows.iter().map(flow_to_json).collect()),
        ("collective", json!(collective)),
        ("profile", json!(announcement.profile)),
        ("flop_per_iteration", json!(announcement.flop_per_iteration)),
        ("compute_seconds", json!(announcement.compute_seconds)),
        ("overlap_from", json!(announcement.overlap_from)),
        ("can_wait", if announcement.can_wait { json!(true) } else { Value::Null }),
        ("pods", json!(announcement.pods)),
        ("rank_traffic", announcement.rank_traffic.iter().map(traffic_to_json).collect()),
    ])
}

fn traffic_to_json(sent: &proto::RankTraffic) -> Value {
    let proto::RankTraffic { src, dst, bytes, overlap_from } = *sent;
    json!({ "src": src, "dst": dst, "bytes": bytes, "overlap_from": overlap_from })
}

fn gpu_indices_to_json(announcement: &proto::JobAnnouncement) -> Value {
    let gpus = announcement.gpu_indices.iter();
    let gpus: Map<String, Value> =
        gpus.map(|(host, gpus)| (host.clone(), json!(gpus.indices))).collect();
    if gpus.is_empty() { Value::Null } else { Value::Object(gpus) }
}

fn flow_to_json(flow: &proto::JobFlow) -> Value {
    json!({
        "src": flow.src, "dst": flow.dst, "src_nic": flow.src_nic, "dst_nic": flow.dst_nic,
        "bytes": flow.bytes, "udp_src_port": flow.udp_src_port,
        "src_gpu": flow.src_gpu, "dst_gpu": flow.dst_gpu, "overlap_from": flow.overlap_from,
    })
}

fn window_to_json(window: &proto::JobWindow) -> Value {
    known_fields([
        ("job", json!(window.job)),
        ("seconds", json!(window.seconds)),
        ("iteration_starts", json!(window.iteration_starts)),
        ("flop", json!(window.flop)),
        ("compute_seconds", json!(window.compute_seconds)),
        ("communication_seconds", json!(window.communication_seconds)),
        ("flow_bytes", json!(window.flow_bytes)),
        ("bytes", json!(window.bytes)),
        ("slot_offset_seconds", json!(window.slot_offset_seconds)),
    ])
}

fn host_to_json(report: &proto::HostQueuePairs) -> Value {
    let groups = report.groups.iter().map(|group| {
        let pairs = group.queue_pairs.iter().map(|pair| {
            json!({
                "local_number": pair.local_number, "remote_number": pair.remote_number,
                "udp_src_port": pair.udp_src_port,
            })
        });
        let pairs: Vec<Value> = pairs.collect();
        json!({ "addresses": group.addresses, "job": group.job, "queue_pairs": pairs })
    });
    json!({ "host": report.host, "groups": groups.collect::<Vec<Value>>() })
}

fn status_to_json(status: &proto::HostStatus) -> Value {
    let levels = status.levels.as_ref();
    let levels =
        levels.map(|levels| json!({ "revision": levels.revision, "problem": levels.problem }));
    known_fields([
        ("host", json!(status.host)),
        ("unreported_jobs", json!(status.unreported_jobs)),
        ("max_jobs", json!(status.max_jobs)),
        ("levels", json!(levels)),
    ])
}

fn known_fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
    let fields: Map<String, Value> = fields.map(|(name, value)| (name.to_owned(), value)).collect();
    Value::Object(fields)
}
