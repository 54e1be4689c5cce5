//! Measures and traces each change once, when every switch that is up holds it.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::Instant;
use topology::SwitchId;

use crate::access::StageHistograms;
use crate::southbound::{ChangeTiming, DesiredTables, SwitchStatus};
use crate::trace_export::{ChangeEnd, TraceExporter};

/// Counts changes into histograms, and exports their traces where that is configured.
#[derive(Debug)]
pub(super) struct ChangeMeter {
    stages: watch::Sender<StageHistograms>,
    /// The latest generation that was counted.
    measured: u64,
    exporter: Option<TraceExporter>,
}

impl ChangeMeter {
    pub(super) fn new(exporter: Option<TraceExporter>) -> Self {
        Self { stages: watch::Sender::default(), measured: 0, exporter }
    }

    pub(super) fn watch_stages(&self) -> watch::Receiver<StageHistograms> {
        self.stages.subscribe()
    }

    /// Whether this generation is still to be counted.
    pub(super) fn is_unmeasured(&self, generation: u64) -> bool {
        generation > self.measured
    }

    /// Counts a generation that every switch holds.
    pub(super) fn record_verified(
        &mut self,
        desired: &DesiredTables,
        statuses: &BTreeMap<SwitchId, SwitchStatus>,
    ) {
        let timing = ChangeTiming::new(desired, statuses);
        self.measured = timing.generation;
        self.stages.send_modify(|stages| stages.observe_timing(&timing));
        if let Some(exporter) = &self.exporter {
            exporter.export_change(
                desired,
                statuses.values(),
                ChangeEnd::Verified(timing.verified),
            );
        }
    }

    /// Traces a generation that the next one replaces before every switch held it; not if no switch
    /// did.
    pub(super) fn record_superseded(
        &self,
        desired: &DesiredTables,
        statuses: &BTreeMap<SwitchId, SwitchStatus>,
        now: Instant,
    ) {
        if let Some(exporter) = self.exporter.as_ref().filter(|_| !statuses.is_empty()) {
            exporter.export_change(desired, statuses.values(), ChangeEnd::Superseded(now));
        }
    }

    /// Sends the queued traces.
    pub(super) async fn shut_down(self) {
        if let Some(exporter) = self.exporter {
            exporter.shut_down().await;
        }
    }
}
