//! The result of a run of jobs, the same for real hosts and for the embedded fabric.

use emulator::EmulationOutcome;
use serde::Serialize;

use command_io::CommandError;
use command_io::output::{self, OutputFormat};

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct JobRunResult {
    pub(crate) jobs: Vec<MeasuredJobResult>,
    /// Share of the jobs' GPU time in which they computed.
    pub(crate) gpu_utilization: f64,
    /// The length of the measurement.
    pub(crate) window_seconds: f64,
    /// The events that were applied, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) events: Vec<AppliedEvent>,
    /// The Unix time at which the run began, in seconds; a virtual clock has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) began_unix_seconds: Option<f64>,
    /// Packets sent again, since the start.
    pub(crate) retransmitted: u64,
    /// Packets that hosts could not read or that were for others.
    pub(crate) unreadable: u64,
    /// Packets that arrived with a mark of a switch.
    pub(crate) marked: u64,
    /// Congestion notifications that receivers sent; none but under DCQCN.
    pub(crate) notifications: u64,
    /// Timeouts of connections.
    pub(crate) timeouts: u64,
}

/// One job of a run.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredJobResult {
    pub(crate) id: String,
    pub(crate) gpus: u32,
    pub(crate) iterations: usize,
    pub(crate) mean_iteration_seconds: Option<f64>,
    pub(crate) gpu_busy_fraction: f64,
    /// When each iteration began, since the run began; the last had not ended at its end.
    pub(crate) begun_seconds: Vec<f64>,
}

/// An event that was applied during a run.
#[derive(Debug, Serialize)]
pub(crate) struct AppliedEvent {
    pub(crate) name: String,
    /// Since the run began.
    pub(crate) at_seconds: f64,
}

impl AppliedEvent {
    /// The event in the time of jobs that were slowed down.
    pub(crate) fn in_own_time(&self, slower: f64) -> Self {
        Self { name: self.name.clone(), at_seconds: self.at_seconds / slower }
    }
}

impl JobRunResult {
    /// From what jobs measured; `begun` says for each when its iterations began, nanoseconds.
    pub(super) fn new(
        outcome: &EmulationOutcome,
        begun: &[Vec<u64>],
        counts: super::protocol::PacketCounts,
    ) -> Self {
        let window = &outcome.window;
        let jobs = outcome.jobs.iter().zip(begun).map(|(job, begun)| MeasuredJobResult {
            id: job.id.to_string(),
            gpus: job.gpus,
            iterations: job.iterations,
            mean_iteration_seconds: job.mean_iteration_seconds,
            gpu_busy_fraction: job.gpu_busy_fraction,
            begun_seconds: begun.iter().map(|at| *at as f64 / 1e9).collect(),
        });
        Self {
            jobs: jobs.collect(),
            gpu_utilization: outcome.gpu_utilization(),
            window_seconds: (window.end - window.start) as f64 / 1e9,
            events: Vec::new(),
            began_unix_seconds: None,
            retransmitted: counts.retransmitted,
            unreadable: counts.unreadable,
            marked: counts.marked,
            notifications: counts.notifications,
            timeouts: counts.timeouts,
        }
    }

    pub(super) fn print_result(&self, format: OutputFormat) -> Result<(), CommandError> {
        if format == OutputFormat::Json {
            return output::print_json(self);
        }
        let mut table = output::new_table(["job", "GPUs", "iterations", "mean s", "GPUs busy"]);
        for job in &self.jobs {
            let mean = job.mean_iteration_seconds;
            table.add_row([
                job.id.clone(),
                job.gpus.to_string(),
                job.iterations.to_string(),
                mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.4}")),
                format!("{:.1} %", job.gpu_busy_fraction * 100.0),
            ]);
        }
        output::print_line(table)?;
        for AppliedEvent { name, at_seconds } in &self.events {
            output::print_line(format_args!("{name} after {at_seconds:.3} s"))?;
        }
        output::print_line(format_args!(
            "GPU utilisation {:.1} %; {} packets sent again, {} not understood",
            self.gpu_utilization * 100.0,
            self.retransmitted,
            self.unreadable
        ))?;
        if self.marked == 0 {
            return Ok(());
        }
        output::print_line(format_args!(
            "{} packets marked, {} congestion notifications, {} timeouts",
            self.marked, self.notifications, self.timeouts
        ))
    }
}
