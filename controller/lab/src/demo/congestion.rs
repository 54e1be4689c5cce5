//! What queues and rate control did in a run, and the forecast of the fluid model beside it.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::Table;
use controller::forecast::{self, DcqcnConvergence};
use emulator::EmulatedTestbed;
use serde::Serialize;
use switch::QueueCounts;

use super::emulated_run::EmulatedRun;
use super::scenario::DemoScenario;
use command_io::CommandError;
use command_io::output;

/// Counts of queues and hosts over a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CongestionEvidence {
    /// Of the switches' queues, from level 0.
    levels: Vec<LevelEvidence>,
    /// Pauses that switches requested of their neighbours.
    pauses_requested: u64,
    /// The most bytes that the shared part of one buffer held.
    most_buffered_bytes: u64,
    /// Marked packets that arrived, and the notifications that they caused.
    marks_received: u64,
    notifications: u64,
    /// Pauses of NICs, and how long they were in virtual microseconds.
    nic_pauses: u64,
    nic_paused_us: f64,
    timeouts: u64,
    lost_connections: u64,
}

/// Counts of one level over all ports.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct LevelEvidence {
    sent: u64,
    marked: u64,
    dropped: u64,
    pauses: u64,
    paused_us: f64,
    deepest_bytes: u64,
}

impl LevelEvidence {
    fn add(&mut self, counts: &QueueCounts) {
        self.sent += counts.sent.packets;
        self.marked += counts.marked;
        self.dropped += counts.dropped.packets;
        self.pauses += counts.pauses;
        self.paused_us += counts.paused_ns as f64 / 1e3;
        self.deepest_bytes = self.deepest_bytes.max(counts.deepest);
    }
}

impl CongestionEvidence {
    /// Reads the counts of a testbed.
    ///
    /// # Errors
    /// Its network has stopped.
    pub(super) async fn collect(testbed: &EmulatedTestbed) -> Result<Self, CommandError> {
        let hosts = testbed.host_congestion().await.map_err(CommandError::failed)?;
        let buffers = testbed.buffer_counts().await.map_err(CommandError::failed)?;
        let queues = testbed.queue_counts().await.map_err(CommandError::failed)?;
        let most_levels = queues.iter().map(Vec::len).max().unwrap_or(0);
        let mut levels = vec![LevelEvidence::default(); most_levels];
        // A NIC has one queue, whose packets have no level yet.
        for queue in queues.iter().filter(|queue| queue.len() == most_levels) {
            levels.iter_mut().zip(queue).for_each(|(level, counts)| level.add(counts));
        }
        let requested = buffers.iter().flat_map(|buffer| buffer.pauses.values());
        Ok(Self {
            levels,
            pauses_requested: requested.sum(),
            most_buffered_bytes: buffers.iter().map(|b| b.most_shared).max().unwrap_or(0),
            marks_received: hosts.marked,
            notifications: hosts.notifications,
            nic_pauses: hosts.pauses,
            nic_paused_us: hosts.paused_ns as f64 / 1e3,
            timeouts: hosts.timeouts,
            lost_connections: hosts.lost_connections,
        })
    }
}

/// Counts of several runs, by level and in total.
pub(super) fn table(runs: &[(&str, &CongestionEvidence)]) -> String {
    let headings =
        ["run", "level", "packets", "marked", "dropped", "pauses", "paused us", "deepest kB"];
    let mut table = output::new_table(headings);
    let mut totals = String::new();
    for (name, run) in runs {
        for (level, counts) in run.levels.iter().enumerate().rev().filter(|(_, c)| c.sent > 0) {
            table.add_row([
                (*name).to_owned(),
                level.to_string(),
                counts.sent.to_string(),
                counts.marked.to_string(),
                counts.dropped.to_string(),
                counts.pauses.to_string(),
                format!("{:.1}", counts.paused_us),
                format!("{:.0}", counts.deepest_bytes as f64 / 1e3),
            ]);
        }
        totals += &format!(
            "\n{name}: {} marked packets arrived, {} notifications; {} pauses requested, {} of \
             NICs ({:.1} us); {} timeouts, {} connections lost; {:.0} kB of a buffer used at most",
            run.marks_received,
            run.notifications,
            run.pauses_requested,
            run.nic_pauses,
            run.nic_paused_us,
            run.timeouts,
            run.lost_connections,
            run.most_buffered_bytes as f64 / 1e3,
        );
    }
    format!("{table}{totals}")
}

/// The forecast of a plan beside what packets measured.
#[derive(Debug, Serialize)]
pub(super) struct ForecastComparison {
    gpu_utilization: ForecastPair,
    jobs: Vec<(String, ForecastPair)>,
    /// How much longer an iteration of each job may take under DCQCN, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dcqcn_excess_seconds: Option<BTreeMap<String, f64>>,
    /// The largest relative difference of the jobs.
    worst_job: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ForecastPair {
    forecast: f64,
    measured: f64,
    difference: f64,
}

impl ForecastPair {
    fn new(forecast: f64, measured: f64) -> Self {
        Self { forecast, measured, difference: measured / forecast - 1.0 }
    }
}

impl ForecastComparison {
    /// A forecast and a measurement of the seconds of one job's iteration.
    #[cfg(test)]
    pub(super) fn of_one_job(id: &str, [forecast, measured]: [f64; 2]) -> Self {
        let pair = ForecastPair::new(forecast, measured);
        let worst_job = pair.difference;
        Self {
            gpu_utilization: ForecastPair::new(1.0, 0.98),
            jobs: vec![(id.to_owned(), pair)],
            dcqcn_excess_seconds: None,
            worst_job,
        }
    }

    /// # Errors
    /// The run has no plan, or the model refuses its numbers.
    pub(super) fn new(
        scenario: &DemoScenario,
        run: &EmulatedRun,
        convergence: Option<DcqcnConvergence>,
    ) -> Result<Self, CommandError> {
        let rollout = run.realised.as_ref();
        let rollout = rollout
            .ok_or_else(|| CommandError::Failed("the controller has made no plan".to_owned()))?;
        let foretold = forecast::forecast_plan(&rollout.fabric, &scenario.jobs, &rollout.plan);
        let jobs: Vec<(String, ForecastPair)> = run
            .outcome
            .jobs
            .iter()
            .filter_map(|job| {
                let forecast = foretold.seconds(&job.id)?;
                let measured = job.mean_iteration_seconds?;
                Some((job.id.to_string(), ForecastPair::new(forecast, measured)))
            })
            .collect();
        let worst_job = jobs.iter().map(|(_, pair)| pair.difference.abs()).fold(0.0, f64::max);
        let measured = run.outcome.gpu_utilization();
        let gpu_utilization = ForecastPair::new(foretold.gpu_utilization, measured);
        let band = convergence
            .map(|convergence| convergence.band(&scenario.jobs, &rollout.plan, &foretold));
        let dcqcn_excess_seconds = band.map(|band| {
            let longer = |id: &str| band.get(&id.into()).copied().unwrap_or(0.0);
            jobs.iter().map(|(id, _)| (id.clone(), longer(id))).collect()
        });
        Ok(Self { gpu_utilization, jobs, dcqcn_excess_seconds, worst_job })
    }
}

impl fmt::Display for ForecastComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["forecast of Crux", "forecast s", "measured s", "difference"];
        let band = self.dcqcn_excess_seconds.as_ref();
        let of_band = band.map(|_| "under DCQCN at most longer by s");
        let mut table: Table = output::new_table(heading.into_iter().chain(of_band));
        for (job, pair) in &self.jobs {
            let row = [
                job.clone(),
                format!("{:.4}", pair.forecast),
                format!("{:.4}", pair.measured),
                format!("{:+.1} %", pair.difference * 100.0),
            ];
            let longer = band.map(|band| format!("{:.4}", band.get(job).copied().unwrap_or(0.0)));
            table.add_row(row.into_iter().chain(longer));
        }
        write!(
            f,
            "{table}\nGPU utilisation: forecast {:.1} %, measured {:.1} %; largest difference of a \
             job {:.1} %",
            self.gpu_utilization.forecast * 100.0,
            self.gpu_utilization.measured * 100.0,
            self.worst_job * 100.0
        )
    }
}
