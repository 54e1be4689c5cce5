//! Metrics in the text format of Prometheus (version 0.0.4).
//!
//! Pure, from a [`ControllerView`] and the timing of the latest change. The decision: counters are
//! those that the sessions keep anyway and gauges are read off the plan, so a scrape costs what it
//! prints and nothing is counted twice.

mod port_metrics;

use std::collections::BTreeMap;

use tokio::time::Instant;
use topology::{Fabric, LinkId, Severity, SwitchId};

use self::port_metrics::add_ports;
use super::controller_view::{ControllerView, JobRow};
use super::utilization::{UtilizationHistory, UtilizationSeries};
use crate::access::{LatencyHistogram, StageHistograms};
use crate::certificates::CertificateEnds;
use crate::learning::LearningCounts;
use crate::learning::queue_pair_join::QueuePairCounts;
use crate::southbound::ChangeTiming;
use crate::southbound::SwitchStatus;
use crate::southbound::write_permit::WritePermit;
use crate::telemetry::counter_aggregator::MeasuredJob;

/// Labels and a value.
type MetricSample = (Vec<(&'static str, String)>, f64);

/// Metrics as text, family by family.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn add_gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample>,
    ) {
        self.add_family(name, "gauge", help, samples);
    }

    pub(super) fn add_counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample>,
    ) {
        self.add_family(name, "counter", help, samples);
    }

    fn add_family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample>,
    ) {
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let pairs = labels.iter().map(|(label, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{label}=\"{value}\"")
            });
            let pairs = pairs.collect::<Vec<_>>().join(",");
            let labels = if pairs.is_empty() { pairs } else { format!("{{{pairs}}}") };
            self.0 += &format!("{name}{labels} {value}\n");
        }
    }

    /// How long the stages of all changes took, in the form that Prometheus has for it.
    fn add_stages(&mut self, stages: &StageHistograms) {
        let name = "crux_stage_duration_seconds";
        let help = "Time that each stage of changes took, from event to verified";
        self.add_family(name, "histogram", help, []);
        for (stage, histogram) in stages.by_name() {
            for (bound, below) in histogram.cumulative_counts() {
                self.0 += &format!("{name}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {below}\n");
            }
            let LatencyHistogram { count, sum, .. } = histogram;
            self.0 += &format!(
                "{name}_bucket{{stage=\"{stage}\",le=\"+Inf\"}} {count}\n\
                 {name}_sum{{stage=\"{stage}\"}} {sum}\n\
                 {name}_count{{stage=\"{stage}\"}} {count}\n"
            );
        }
    }

    /// What a view has, and how long changes took.
    pub(super) fn add_view(
        &mut self,
        view: &ControllerView,
        timing: &ChangeTiming,
        stages: &StageHistograms,
    ) {
        add_controller(self, view, timing);
        add_switches(self, view);
        add_links(self, view);
        add_ports(self, view);
        add_jobs(self, view);
        add_learning(self, view);
        self.add_stages(stages);
    }

    /// Whether this controller leads, in which term, and how long its lease of etcd lasts.
    pub(super) fn add_leadership(&mut self, permit: WritePermit, now: Instant) {
        let help = "Whether this controller may write, by election or because switches elect";
        self.add_gauge("crux_leader", help, unlabelled(bool_value(permit.may_write(now))));
        let help = "Whether it is known who leads; 0 for long means that etcd does not answer";
        let known = bool_value(!matches!(permit, WritePermit::Unknown));
        self.add_gauge("crux_leader_known", help, unlabelled(known));
        let lease = permit.expires_at().map(|until| until.saturating_duration_since(now));
        self.add_gauge(
            "crux_etcd_lease_seconds",
            "Time until the leader's lease of etcd ends unless it is renewed",
            lease.map(|left| (Vec::new(), left.as_secs_f64())),
        );
    }

    /// The latest sample of the utilisation.
    pub(super) fn add_utilization(&mut self, history: &UtilizationHistory) {
        let UtilizationHistory { total, tenants, jobs, .. } = history;
        self.add_gauge(
            "crux_gpu_utilization_ratio",
            "Share of the jobs' GPU time that is computation: measured, forecast, under ECMP",
            utilization_samples(total, &[]),
        );
        self.add_gauge(
            "crux_tenant_gpu_utilization_ratio",
            "Share of the GPU time of a tenant's jobs that is computation",
            tenants
                .iter()
                .flat_map(|series| utilization_samples(series, &[("tenant", series.name.clone())])),
        );
        self.add_gauge(
            "crux_job_gpu_utilization_ratio",
            "Share of a job's GPU time that is computation",
            jobs.iter().flat_map(|series| {
                let tenant = series.tenant.clone().unwrap_or_default();
                utilization_samples(series, &[("job", series.name.clone()), ("tenant", tenant)])
            }),
        );
    }

    /// Until when the certificates of the configuration are valid.
    pub(super) fn add_certificate_ends(&mut self, ends: &CertificateEnds) {
        let help =
            "End of the first certificate in the file that a field of the configuration names";
        let samples = ends
            .iter()
            .map(|(field, end)| (vec![("field", (*field).to_owned())], *end as f64 / 1e3));
        self.add_gauge("crux_certificate_expiry_timestamp_seconds", help, samples);
    }

    /// Whether the latest write to the store succeeded.
    pub(super) fn add_store(&mut self, is_writable: bool) {
        let help = "1 unless the latest write to the store, or to etcd, failed";
        self.add_gauge("crux_store_writable", help, unlabelled(bool_value(is_writable)));
    }

    /// How many revisions the bounds of the policy history have cost since the start.
    pub(super) fn add_dropped_revisions(&mut self, dropped: u64) {
        let help = "Earlier policy revisions that the bounds of the history have dropped";
        self.add_counter("crux_policy_revisions_dropped_total", help, unlabelled(dropped as f64));
    }
}

/// The only sample of its family.
fn unlabelled(value: f64) -> Option<MetricSample> {
    Some((Vec::new(), value))
}

/// The values of a series that are known, each with its source as a label.
fn utilization_samples(
    series: &UtilizationSeries,
    labels: &[(&'static str, String)],
) -> Vec<MetricSample> {
    let sources = ["measured", "forecast", "ecmp"].into_iter().zip(series.latest_values());
    let known = sources.filter_map(|(source, value)| Some((source, value?)));
    known
        .map(|(source, value)| ([labels, &[("source", source.to_owned())]].concat(), value))
        .collect()
}

fn add_controller(text: &mut MetricsText, view: &ControllerView, timing: &ChangeTiming) {
    let rollout = &view.rollout;
    let help = "Generation of the plan in force";
    text.add_gauge("crux_plan_generation", help, unlabelled(rollout.generation as f64));
    let adopted = rollout.plan.generation as f64;
    text.add_counter("crux_plans_total", "Plans adopted", unlabelled(adopted));
    let help = "Flows whose path the plan in force changed";
    text.add_gauge("crux_plan_flows_moved", help, unlabelled(rollout.report.moved.len() as f64));
    let help = "Planned load of the busiest link, as a share of time";
    let busiest = unlabelled(rollout.report.bounds.max_load);
    text.add_gauge("crux_link_planned_load_max_ratio", help, busiest);
    let made = timing.timestamps;
    let stages = [
        ("plan", made.origin.received, made.planned),
        ("lower", made.planned, made.lowered),
        ("write", made.lowered, timing.verified),
        ("all", made.origin.received, timing.verified),
    ]
    .map(|(stage, from, to)| {
        let seconds = to.saturating_duration_since(from).as_secs_f64();
        (vec![("stage", stage.to_owned())], seconds)
    });
    let help = "Time that each stage of the latest change took, from event to verified";
    text.add_gauge("crux_last_change_stage_seconds", help, stages);
    let findings = view.health_findings();
    let severities = [Severity::Error, Severity::Warning, Severity::Info].map(|severity| {
        let such = findings.iter().filter(|found| found.severity == severity);
        (vec![("severity", severity.to_string())], such.count() as f64)
    });
    text.add_gauge("crux_findings", "Findings of crux doctor", severities);
}

/// What is measured of a switch: from its status, and whether it holds what is in force.
type SwitchMetric = (&'static str, &'static str, &'static str, fn(&SwitchSample<'_>) -> f64);

/// A switch as metrics see it.
struct SwitchSample<'a> {
    line: &'a SwitchStatus,
    is_up: bool,
    is_verified: bool,
    is_quarantined: bool,
    verified_age: Option<f64>,
}

const OF_SWITCHES: [SwitchMetric; 11] = [
    ("crux_switch_up", "gauge", "Whether it counts as working", |row| bool_value(row.is_up)),
    ("crux_switch_primary", "gauge", "Whether this controller writes it", |row| {
        bool_value(row.line.mastership.is_primary())
    }),
    ("crux_switch_verified", "gauge", "Whether it holds what is in force", |row| {
        bool_value(row.is_verified)
    }),
    ("crux_switch_quarantined", "gauge", "Whether changes do not wait for it", |row| {
        bool_value(row.is_quarantined)
    }),
    (
        "crux_switch_verified_age_seconds",
        "gauge",
        "Time since a read last showed that it holds what it is verified to hold, -1 if nothing is",
        |row| row.verified_age.unwrap_or(-1.0),
    ),
    ("crux_switch_entries_written_total", "counter", "Entries written", |row| {
        row.line.written.total_entries() as f64
    }),
    ("crux_switch_entries_refused_total", "counter", "Entries that it refused", |row| {
        row.line.written.refused as f64
    }),
    ("crux_switch_entries_drifted_total", "counter", "Entries that others changed", |row| {
        row.line.drifted as f64
    }),
    ("crux_switch_session_failures_total", "counter", "Connections that ended", |row| {
        row.line.failures as f64
    }),
    (
        "crux_switch_limited_total",
        "counter",
        "Connections that ended because the switch exceeded a bound",
        |row| row.line.limited as f64,
    ),
    ("crux_switch_reconcile_passes_total", "counter", "Passes over its tables", |row| {
        row.line.passes as f64
    }),
];

fn add_switches(text: &mut MetricsText, view: &ControllerView) {
    let generation = view.rollout.generation;
    let rows: Vec<SwitchSample<'_>> = (view.switches.iter())
        .map(|(switch, line)| SwitchSample {
            line,
            is_up: view.rollout.fabric.is_switch_up(*switch),
            is_verified: line.verified.map(|seen| seen.generation) == Some(generation),
            is_quarantined: view.quarantined.contains(switch),
            verified_age: view.verified_age(line),
        })
        .collect();
    for (name, kind, help, value) in OF_SWITCHES {
        let samples = rows.iter().map(|row| (vec![("switch", row.line.name.clone())], value(row)));
        text.add_family(name, kind, help, samples);
    }
}

fn bool_value(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn add_links(text: &mut MetricsText, view: &ControllerView) {
    let fabric = &view.rollout.fabric;
    let measured = view.measured_links();
    let help = "Planned load of a link by class, as a share of time";
    text.add_gauge(
        "crux_link_planned_load_ratio",
        help,
        level_samples(fabric, &view.level_loads()),
    );
    let help = "Load of a link by class as its switch counts it, as a share of its capacity";
    text.add_gauge("crux_link_measured_load_ratio", help, level_samples(fabric, &measured.levels));
    let totals = measured.totals.iter();
    text.add_gauge(
        "crux_link_measured_use_ratio",
        "What a link carries in all classes, as a share of its capacity",
        totals.map(|(link, share)| (vec![("link", fabric.link_name(*link))], *share)),
    );
    let refused = view.measured.refused.iter().map(|refused| {
        let [port, host] = [&refused.port, &refused.host].map(String::clone);
        let reason = refused.reason.label().to_owned();
        (vec![("port", port), ("host", host), ("reason", reason)], refused.packets as f64)
    });
    let help = "Packets of IP that a leaf refused from the port of a host";
    text.add_counter("crux_refused_packets_total", help, refused);
}

fn level_samples(
    fabric: &Fabric,
    loads: &BTreeMap<(LinkId, u8), f64>,
) -> impl Iterator<Item = MetricSample> {
    loads.iter().map(|((link, level), load)| {
        let labels = vec![("link", fabric.link_name(*link)), ("level", level.to_string())];
        (labels, *load)
    })
}

type PlannedJobMetric = (&'static str, &'static str, fn(&JobRow) -> Option<f64>);

const OF_PLANNED_JOBS: [PlannedJobMetric; 6] = [
    ("crux_job_level", "Class of the job", |row| Some(row.level.into())),
    ("crux_job_intensity_flop_per_second", "GPU intensity, FLOP/s", |row| Some(row.intensity)),
    ("crux_job_isolated_iteration_seconds", "An iteration alone", |row| Some(row.alone_seconds)),
    ("crux_job_forecast_iteration_seconds", "An iteration that its plan was chosen for", |row| {
        row.forecast_seconds
    }),
    ("crux_job_reported_iteration_seconds", "An iteration, by its reports", |row| {
        row.reported_seconds
    }),
    ("crux_job_profiled", "Whether it is profiled", |row| Some(bool_value(row.profiled))),
];

type MeasuredJobMetric = (&'static str, &'static str, fn(&MeasuredJob) -> Option<f64>);

const OF_MEASURED_JOBS: [MeasuredJobMetric; 3] = [
    ("crux_job_measured_bytes_per_second", "What its pins count", |job| Some(job.bytes_per_second)),
    ("crux_job_measured_iteration_seconds", "An iteration, by what its pins count", |job| {
        job.period.map(|period| period.seconds)
    }),
    ("crux_job_measured_iteration_bytes", "Bytes of an iteration, by what its pins count", |job| {
        job.period.map(|period| period.bytes)
    }),
];

fn add_jobs(text: &mut MetricsText, view: &ControllerView) {
    let rows = view.job_rows();
    for (name, help, value) in OF_PLANNED_JOBS {
        let samples =
            rows.iter().filter_map(|row| Some((vec![("job", row.id.clone())], value(row)?)));
        text.add_gauge(name, help, samples);
    }
    for (name, help, value) in OF_MEASURED_JOBS {
        let jobs = view.measured.jobs.iter();
        let samples =
            jobs.filter_map(|(id, job)| Some((vec![("job", id.to_string())], value(job)?)));
        text.add_gauge(name, help, samples);
    }
}

type LearningMetric = (&'static str, &'static str, fn(&LearningCounts) -> u64);

const OF_LEARNING: [LearningMetric; 7] = [
    ("crux_learned_flow_reports_total", "Reports of unannounced flows", |counts| counts.reports),
    ("crux_learned_flows_refused_total", "New flows beyond the limit of their port", |counts| {
        counts.refused
    }),
    ("crux_learned_flows_evicted_total", "Flows that made room for another port", |counts| {
        counts.evicted
    }),
    ("crux_learned_flows_expired_total", "Flows that fell silent", |counts| counts.expired),
    ("crux_digests_malformed_total", "Digests that do not decode", |counts| counts.malformed),
    ("crux_digest_lists_dropped_total", "Lists of digests that found the queue full", |counts| {
        counts.dropped_lists
    }),
    ("crux_queue_pair_reports_refused_total", "Reports of queue pairs without room", |counts| {
        counts.refused_hosts
    }),
];

fn add_learning(text: &mut MetricsText, view: &ControllerView) {
    let mut by_switch: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for flow in &view.learned.flows {
        *by_switch.entry(flow.at.switch).or_default() += 1;
    }
    let kept = by_switch.into_iter().filter_map(|(switch, flows)| {
        let line = view.switches.get(&switch)?;
        Some((vec![("switch", line.name.clone())], flows as f64))
    });
    let help = "Flows that enter by its ports and that no job has announced";
    text.add_gauge("crux_learned_flows", help, kept);
    let QueuePairCounts { reported, joined, ambiguous } = view.learned.queue_pairs;
    let states = [("reported", reported), ("joined", joined), ("ambiguous", ambiguous)];
    let samples = states.map(|(state, count)| (vec![("state", state.to_owned())], count as f64));
    let help = "Queue pairs that hosts report, by what became of them";
    text.add_gauge("crux_queue_pairs", help, samples);
    for (name, help, value) in OF_LEARNING {
        text.add_counter(name, help, unlabelled(value(&view.learned.counts) as f64));
    }
}
