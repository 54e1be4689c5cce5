//! Metrics in the text format of Prometheus (version 0.0.4).
//!
//! Pure, from a [`ControllerView`] and the timing of the latest change. The decision: counters are
//! those that the sessions keep anyway and gauges are read off the plan, so a scrape costs what it
//! prints and nothing is counted twice.

mod port_metrics;

use std::collections::BTreeMap;

use tokio::time::Instant;
use topology::{Fabric, LinkId, Severity, SwitchId};

use self::port_metrics::port_families;
use super::controller_view::{ControllerView, JobRow};
use super::utilization::{UtilizationHistory, UtilizationSeries};
use crate::access::{LatencyHistogram, StageHistograms};
use crate::learning::LearningCounts;
use crate::learning::queue_pair_join::QueuePairCounts;
use crate::southbound::ChangeTiming;
use crate::southbound::SwitchStatus;
use crate::southbound::write_permit::WritePermit;
use crate::telemetry::counter_aggregator::MeasuredJob;

/// A metric with its samples: labels and value.
struct MetricFamily {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<MetricSample>,
}

/// Labels and a value.
type MetricSample = (Vec<(&'static str, String)>, f64);

/// All metrics as text.
pub fn render_metrics(
    view: &ControllerView,
    timing: &ChangeTiming,
    stages: &StageHistograms,
) -> String {
    let families = [
        controller_families(view, timing),
        switch_families(view),
        link_families(view),
        port_families(view),
        job_families(view),
        learning_families(view),
    ];
    let mut text = String::new();
    for family in families.into_iter().flatten() {
        render_family(&family, &mut text);
    }
    render_histograms(stages, &mut text);
    text
}

/// How many revisions the bounds of the policy history have cost since the start.
pub(super) fn render_dropped_revisions(dropped: u64) -> String {
    let mut text = String::new();
    let family = single_sample(
        "crux_policy_revisions_dropped_total",
        "counter",
        "Earlier policy revisions that the bounds of the history have dropped",
        dropped as f64,
    );
    render_family(&family, &mut text);
    text
}

/// The latest sample of the utilisation.
pub(super) fn render_utilization(history: &UtilizationHistory) -> String {
    let UtilizationHistory { total, tenants, jobs, .. } = history;
    let tenant_label = |series: &UtilizationSeries| vec![("tenant", series.name.clone())];
    let job_labels = |series: &UtilizationSeries| {
        let tenant = series.tenant.clone().unwrap_or_default();
        vec![("job", series.name.clone()), ("tenant", tenant)]
    };
    let families = [
        utilization_family(
            "crux_gpu_utilization_ratio",
            "Share of the jobs' GPU time that is computation: measured, forecast, under ECMP",
            utilization_samples(total, &[]),
        ),
        utilization_family(
            "crux_tenant_gpu_utilization_ratio",
            "Share of the GPU time of a tenant's jobs that is computation",
            tenants
                .iter()
                .flat_map(|series| utilization_samples(series, &tenant_label(series)))
                .collect(),
        ),
        utilization_family(
            "crux_job_gpu_utilization_ratio",
            "Share of a job's GPU time that is computation",
            jobs.iter()
                .flat_map(|series| utilization_samples(series, &job_labels(series)))
                .collect(),
        ),
    ];
    let mut text = String::new();
    families.iter().for_each(|family| render_family(family, &mut text));
    text
}

fn utilization_family(
    name: &'static str,
    help: &'static str,
    samples: Vec<MetricSample>,
) -> MetricFamily {
    MetricFamily { name, kind: "gauge", help, samples }
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

/// Whether this controller leads, in which term, and how long its lease of etcd lasts.
pub(super) fn render_leadership(permit: WritePermit, now: Instant) -> String {
    let leads = permit.may_write(now);
    let lease = permit.expires_at().map(|until| match until.checked_duration_since(now) {
        Some(left) => left.as_secs_f64(),
        None => 0.0,
    });
    let help = "Whether this controller may write, by election or because switches elect";
    let leader = single_sample("crux_leader", "gauge", help, f64::from(u8::from(leads)));
    let known = !matches!(permit, WritePermit::Unknown);
    let help = "Whether it is known who leads; 0 for long means that etcd does not answer";
    let settled = single_sample("crux_leader_known", "gauge", help, f64::from(u8::from(known)));
    let lease = MetricFamily {
        name: "crux_etcd_lease_seconds",
        kind: "gauge",
        help: "Time until the leader's lease of etcd ends unless it is renewed",
        samples: lease.map(|seconds| (Vec::new(), seconds)).into_iter().collect(),
    };
    let mut text = String::new();
    for family in [leader, settled, lease] {
        render_family(&family, &mut text);
    }
    text
}

/// How long the stages of all changes took, in the form that Prometheus has for it.
fn render_histograms(stages: &StageHistograms, text: &mut String) {
    let name = "crux_stage_duration_seconds";
    *text += &format!(
        "# HELP {name} Time that each stage of changes took, from event to verified\n\
         # TYPE {name} histogram\n"
    );
    for (stage, histogram) in stages.by_name() {
        for (bound, below) in histogram.cumulative_counts() {
            *text += &format!("{name}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {below}\n");
        }
        let LatencyHistogram { count, sum, .. } = histogram;
        *text += &format!("{name}_bucket{{stage=\"{stage}\",le=\"+Inf\"}} {count}\n");
        *text += &format!("{name}_sum{{stage=\"{stage}\"}} {sum}\n");
        *text += &format!("{name}_count{{stage=\"{stage}\"}} {count}\n");
    }
}

fn controller_families(view: &ControllerView, timing: &ChangeTiming) -> Vec<MetricFamily> {
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
    let findings = view.health_findings();
    let severities = [Severity::Error, Severity::Warning, Severity::Info].map(|severity| {
        let such = findings.iter().filter(|found| found.severity == severity);
        (vec![("severity", severity.to_string())], such.count() as f64)
    });
    let report = &view.rollout.report;
    let moved = report.moved.len() as f64;
    vec![
        single_sample(
            "crux_plan_generation",
            "gauge",
            "Generation of the plan in force",
            view.rollout.generation as f64,
        ),
        single_sample(
            "crux_plans_total",
            "counter",
            "Plans adopted",
            view.rollout.plan.generation as f64,
        ),
        single_sample(
            "crux_plan_flows_moved",
            "gauge",
            "Flows whose path the plan in force changed",
            moved,
        ),
        single_sample(
            "crux_link_planned_load_max_ratio",
            "gauge",
            "Planned load of the busiest link, as a share of time",
            report.bounds.max_load,
        ),
        MetricFamily {
            name: "crux_last_change_stage_seconds",
            kind: "gauge",
            help: "Time that each stage of the latest change took, from event to verified",
            samples: stages.into(),
        },
        MetricFamily {
            name: "crux_findings",
            kind: "gauge",
            help: "Findings of crux doctor",
            samples: severities.into(),
        },
    ]
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

fn switch_families(view: &ControllerView) -> Vec<MetricFamily> {
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
    let families = OF_SWITCHES.map(|(name, kind, help, value)| {
        let samples = rows.iter().map(|row| (vec![("switch", row.line.name.clone())], value(row)));
        MetricFamily { name, kind, help, samples: samples.collect() }
    });
    families.into()
}

fn bool_value(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn link_families(view: &ControllerView) -> Vec<MetricFamily> {
    let fabric = &view.rollout.fabric;
    let measured = view.measured_links();
    let totals = measured.totals.iter();
    vec![
        MetricFamily {
            name: "crux_link_planned_load_ratio",
            kind: "gauge",
            help: "Planned load of a link by class, as a share of time",
            samples: level_samples(fabric, &view.level_loads()),
        },
        MetricFamily {
            name: "crux_link_measured_load_ratio",
            kind: "gauge",
            help: "Load of a link by class as its switch counts it, as a share of its capacity",
            samples: level_samples(fabric, &measured.levels),
        },
        MetricFamily {
            name: "crux_link_measured_use_ratio",
            kind: "gauge",
            help: "What a link carries in all classes, as a share of its capacity",
            samples: totals
                .map(|(link, share)| (vec![("link", fabric.link_name(*link))], *share))
                .collect(),
        },
    ]
}

fn level_samples(
    fabric: &Fabric,
    loads: &BTreeMap<(LinkId, u8), f64>,
) -> Vec<(Vec<(&'static str, String)>, f64)> {
    let samples = loads.iter().map(|((link, level), load)| {
        let labels = vec![("link", fabric.link_name(*link)), ("level", level.to_string())];
        (labels, *load)
    });
    samples.collect()
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

fn job_families(view: &ControllerView) -> Vec<MetricFamily> {
    let rows = view.job_rows();
    let planned = OF_PLANNED_JOBS.map(|(name, help, value)| {
        let samples =
            rows.iter().filter_map(|row| Some((vec![("job", row.id.clone())], value(row)?)));
        MetricFamily { name, kind: "gauge", help, samples: samples.collect() }
    });
    let measured = OF_MEASURED_JOBS.map(|(name, help, value)| {
        let jobs = view.measured.jobs.iter();
        let samples =
            jobs.filter_map(|(id, job)| Some((vec![("job", id.to_string())], value(job)?)));
        MetricFamily { name, kind: "gauge", help, samples: samples.collect() }
    });
    planned.into_iter().chain(measured).collect()
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

fn learning_families(view: &ControllerView) -> Vec<MetricFamily> {
    let mut by_switch: BTreeMap<SwitchId, usize> = BTreeMap::new();
    for flow in &view.learned.flows {
        *by_switch.entry(flow.at.switch).or_default() += 1;
    }
    let samples = by_switch.into_iter().filter_map(|(switch, flows)| {
        let line = view.switches.get(&switch)?;
        Some((vec![("switch", line.name.clone())], flows as f64))
    });
    let kept = MetricFamily {
        name: "crux_learned_flows",
        kind: "gauge",
        help: "Flows that enter by its ports and that no job has announced",
        samples: samples.collect(),
    };
    let counts = OF_LEARNING.map(|(name, help, value)| {
        single_sample(name, "counter", help, value(&view.learned.counts) as f64)
    });
    [kept, queue_pair_family(view)].into_iter().chain(counts).collect()
}

fn queue_pair_family(view: &ControllerView) -> MetricFamily {
    let QueuePairCounts { reported, joined, ambiguous } = view.learned.queue_pairs;
    let states = [("reported", reported), ("joined", joined), ("ambiguous", ambiguous)];
    let samples = states.map(|(state, count)| (vec![("state", state.to_owned())], count as f64));
    MetricFamily {
        name: "crux_queue_pairs",
        kind: "gauge",
        help: "Queue pairs that hosts report, by what became of them",
        samples: samples.into(),
    }
}

fn single_sample(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: f64,
) -> MetricFamily {
    MetricFamily { name, kind, help, samples: vec![(Vec::new(), value)] }
}

fn render_family(family: &MetricFamily, text: &mut String) {
    let MetricFamily { name, kind, help, samples } = family;
    *text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    for (labels, value) in samples {
        let pairs: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escape_label(value)))
            .collect();
        let suffix =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        *text += &format!("{name}{suffix} {value}\n");
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
