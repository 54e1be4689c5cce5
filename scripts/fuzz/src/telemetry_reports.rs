//! Reports of jobs, on three streams, from the bytes of gRPC messages to the jobs to be planned.

use std::time::Duration;

use api::telemetry as proto;
use controller::Config;
use controller::learning::QueuePairTable;
use controller::telemetry::{ReportedJobRegistry, ReporterId, ReporterIdentity, TelemetryReport};
use planner::NicOwners;
use prost::Message;
use tokio::time::Instant;

use crate::documents::small_fabric;

/// Streams that are open; one more number closes a stream and opens it again.
const STREAMS: u8 = 3;
/// Reports of one input.
const REPORTS: usize = 16;

/// For each report a byte that chooses the stream and the seconds since the report before, then the
/// message with its length before it.
pub(crate) fn telemetry_reports(mut data: &[u8]) -> Option<()> {
    let mut registry = ReportedJobRegistry::new(Config::default().telemetry);
    let mut queue_pairs = QueuePairTable::new(Config::default().learning);
    let (fabric, mut now) = (small_fabric(), Instant::now());
    for stream in 0..STREAMS {
        registry.open_stream(ReporterId(stream.into()), ReporterIdentity::default());
    }
    for _ in 0..REPORTS {
        let Some((choice, rest)) = data.split_first() else {
            break;
        };
        data = rest;
        now += Duration::from_secs(u64::from(choice >> 2));
        let reporter = ReporterId((choice % (STREAMS + 1)).into());
        if reporter == ReporterId(STREAMS.into()) {
            registry.close_stream(ReporterId(0));
            registry.open_stream(ReporterId(0), ReporterIdentity::default());
            continue;
        }
        let Ok(report) = proto::JobReport::decode_length_delimited(&mut data) else {
            break;
        };
        match TelemetryReport::try_from(report) {
            Ok(TelemetryReport::Job(report)) => {
                let _feedback = registry.ingest_report(reporter, report, fabric, now);
            }
            Ok(TelemetryReport::QueuePairs(report)) => queue_pairs.replace_host(report, now),
            Ok(TelemetryReport::HostStatus(_)) | Err(_) => {}
        }
        queue_pairs.expire_hosts(now);
        let _feedback = registry.advance_time(now);
    }
    let reported = registry.reported_jobs();
    let numbers = reported.jobs.iter().map(|job| job.flop_per_iteration);
    assert!(numbers.into_iter().all(f64::is_finite), "{:?}", reported.jobs);
    let _iterations = registry.reported_iterations();
    let _ends = queue_pairs.resolve_ends(fabric, &NicOwners::default());
    (!reported.jobs.is_empty()).then_some(())
}
