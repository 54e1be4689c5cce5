//! Observes the NICs of this host for some time, for `crux agent --once`.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::agent_error::AgentError;
use crate::nic_counters::NicCounters;
use crate::report_limits::ReportLimits;
use crate::service::{open_all_nics, tick_every};

/// What the counters of one NIC showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NicObservation {
    /// Its name.
    pub nic: String,
    /// Whether it counts RDMA.
    pub rdma: bool,
    /// Bytes sent during the observation.
    pub bytes: u64,
    /// Seconds of one iteration, if the traffic is periodic.
    pub period_seconds: Option<f64>,
    /// Bytes of an iteration.
    pub period_bytes: Option<f64>,
    /// How much iterations resemble each other, 1 if they are the same.
    pub clarity: Option<f64>,
}

/// Samples the counters of this host for some time and estimates the period of each NIC.
///
/// # Errors
/// sysfs is not mounted.
pub async fn observe_nics(
    sys: &Path,
    limits: &ReportLimits,
    time: Duration,
) -> Result<Vec<NicObservation>, AgentError> {
    let nics = open_all_nics(sys)?;
    let intervals = (time.as_secs_f64() / limits.sample_seconds).ceil() as usize;
    let series = period::ByteSeries::new(limits.sample_seconds, intervals.max(1));
    let mut seen: Vec<_> = nics.into_iter().map(|nic| (nic, series.clone(), (None, 0))).collect();
    let mut samples = tick_every(limits.sample_seconds);
    let began = Instant::now();
    while began.elapsed() < time {
        samples.tick().await;
        for (nic, series, (first, last)) in &mut seen {
            let Ok(sent) = nic.sent_bytes() else { continue };
            series.record_counter(began.elapsed().as_secs_f64(), sent);
            first.get_or_insert(sent);
            *last = sent;
        }
    }
    let row =
        |(nic, series, (first, last)): (NicCounters, period::ByteSeries, (Option<u64>, u64))| {
            let period = series.period();
            NicObservation {
                rdma: nic.has_rdma(),
                nic: nic.name,
                bytes: last.saturating_sub(first.unwrap_or(last)),
                period_seconds: period.map(|period| period.seconds),
                period_bytes: period.map(|period| period.bytes),
                clarity: period.map(|period| period.clarity),
            }
        };
    Ok(seen.into_iter().map(row).collect())
}
