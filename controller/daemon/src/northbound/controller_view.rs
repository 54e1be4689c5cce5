//! The state of the controller as rows of names and numbers, for the northbound APIs.
//!
//! Pure: a [`ControllerView`] of one instant goes in, rows by name come out. The decision:
//! everything is read off the plan, its report and the board; nothing is computed that they could
//! contradict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use planner::{AdoptionRule, IterationForecast, JobId, PlanDocument, StartShiftDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use topology::{Finding, LinkId, SwitchId};

use super::measured_links::MeasuredLinks;
use crate::event_log::describe_drift;
use crate::forecast::SecondsBand;
use crate::gnmi::FabricCounters;
use crate::learning::LearnedFlows;
use crate::policy_history::PolicyTrial;
use crate::southbound::SwitchStatus;
use crate::southbound::arbitration::Mastership;
use crate::state::DrainReport;
use crate::state::{PlanRequest, PlanRollout, ReportedJobs, State};
use crate::telemetry::counter_aggregator::MeasuredTraffic;
use crate::telemetry::task::ReportSummary;

/// What is known and decided at one instant.
#[derive(Clone, Debug)]
pub struct ControllerView {
    /// The instant.
    pub(super) now: Instant,
    /// What is planned for.
    pub(super) request: PlanRequest,
    /// Jobs that are known from reports.
    pub(super) reported_jobs: ReportedJobs,
    /// What is in force.
    pub(super) rollout: PlanRollout,
    /// What switches count.
    pub(super) measured: Arc<MeasuredTraffic>,
    /// What jobs report.
    pub(super) reports: ReportSummary,
    /// Whether anyone may do everything.
    pub(super) open_access: Option<Finding>,
    /// Findings that stand until their cause is gone.
    pub(super) standing: Vec<Finding>,
    /// What drains have come to.
    pub(super) drainage: DrainReport,
    /// The revision on trial, if one is.
    pub(super) trial: Option<(u64, PolicyTrial)>,
    /// Switches whose calls fail, for which changes do not wait.
    pub(super) quarantined: BTreeSet<SwitchId>,
    /// What the sessions are up to.
    pub(super) switches: BTreeMap<SwitchId, SwitchStatus>,
    /// The number of another controller that leads.
    pub(super) other_leader: Option<u32>,
    /// Flows that no job has announced.
    pub(super) learned: Arc<LearnedFlows>,
    /// What switches with gNMI count at their ports.
    pub(super) port_counters: FabricCounters,
}

/// Who tells of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobSource {
    /// A jobs document.
    Document,
    /// It tells of itself.
    Telemetry,
    /// Nobody: a rule of the policy says that flows are its.
    Rule,
}

/// One row of the list of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRow {
    /// Its name.
    pub id: String,
    /// Whose it is.
    pub tenant: Option<String>,
    /// What it trains.
    pub model: Option<String>,
    /// Its GPUs.
    pub gpus: u32,
    /// Whether it tells of itself; if not, a document tells of it.
    pub reported: bool,
    /// Whether it is being profiled, and in the highest class for that.
    pub profiled: bool,
    /// Its class.
    pub level: u8,
    /// Its place in the order of priority; 1 is first.
    pub rank: u32,
    /// FLOP/s that one second of its tightest link unblocks (Crux Eq. 2).
    pub intensity: f64,
    /// Seconds of an iteration alone on its paths.
    pub alone_seconds: f64,
    /// Seconds of an iteration that the comparison of plans expects; none where the job was not
    /// simulated for this plan.
    pub forecast_seconds: Option<f64>,
    /// Between what bounds that is, whatever the phases in which jobs meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast_band: Option<SecondsBand>,
    /// Seconds of an iteration that the job reports; none before its windows say so.
    pub reported_seconds: Option<f64>,
    /// Its flows, as far as they are announced.
    pub flows: usize,
    /// Who tells of it.
    pub source: JobSource,
    /// What switches count of its flows that are pinned or adopted, bytes per second, a mean over
    /// some seconds; none where nothing was counted.
    pub measured_bytes_per_second: Option<f64>,
    /// Seconds of an iteration by what they count, where it repeats.
    pub measured_iteration_seconds: Option<f64>,
    /// Bytes of an iteration by what they count.
    pub measured_iteration_bytes: Option<f64>,
    /// When it begins its iterations, if it waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_shift: Option<StartShiftDocument>,
}

/// One row of the list of switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchRow {
    /// Its name.
    pub name: String,
    /// up, down, drained, or returning: it works again, and is used once every switch knows.
    pub state: String,
    /// What this controller is to it: primary, backup, vacant, candidate or apart.
    pub mastership: String,
    /// The generation that it was last seen to hold.
    pub verified_generation: Option<u64>,
    /// Entries of that generation.
    pub verified_entries: Option<usize>,
    /// Seconds since a read last showed that it holds them, in part or as a whole.
    pub verified_age_seconds: Option<f64>,
    /// Entries written since the session began.
    pub entries_written: u64,
    /// Entries that somebody else changed, and that were repaired.
    pub entries_drifted: u64,
    /// Connections that ended.
    pub session_failures: u64,
    /// Entries that it refused in the latest pass, and why its last connection ended.
    pub problems: Vec<String>,
    /// Whether its calls have failed for so long that policy changes do not wait for it.
    pub quarantined: bool,
}

/// One row of the list of links; each cable has one for either direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkRow {
    /// Its name, as `leaf1:4>spine1:1`.
    pub link: String,
    /// Its capacity, Gbit/s.
    pub gbps: f64,
    /// up, down, drained, or returning: it works again, and is used once every switch knows.
    pub state: String,
    /// Share of time that it is busy if every job runs undisturbed.
    pub load: f64,
    /// The load by level, from the highest.
    pub levels: Vec<LevelLoad>,
    /// Jobs on it.
    pub jobs: Vec<String>,
    /// Share of its capacity that the switch at one of its ends counted, a mean over some seconds;
    /// none where nothing was counted, as on links that leave a host whose switch has no gNMI.
    pub measured: Option<f64>,
    /// The measured share by level, from the highest, where it is counted by level.
    pub measured_levels: Vec<LevelLoad>,
}

/// The load of one class on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelLoad {
    /// The class.
    pub level: u8,
    /// Share of time.
    pub load: f64,
}

impl ControllerView {
    /// The inputs of a view that come from the state.
    pub(super) fn read_inputs(
        state: &State,
    ) -> (PlanRequest, ReportedJobs, Option<(u64, PolicyTrial)>) {
        let latest = state.policy_history().latest();
        let trial = latest.trial.clone().map(|trial| (latest.number, trial));
        (state.current_request(), state.reported_jobs().clone(), trial)
    }

    /// The jobs in force, by rank.
    pub fn job_rows(&self) -> Vec<JobRow> {
        let Self { request, reported_jobs: reported, rollout, .. } = self;
        let reported_ids: BTreeSet<&JobId> = reported.jobs.iter().map(|job| &job.id).collect();
        let known: BTreeMap<&JobId, &planner::Job> =
            request.jobs.iter().map(|job| (&job.id, job)).collect();
        let planned_jobs = rollout.plan.jobs.iter().zip(&rollout.report.rationales);
        let rows = planned_jobs.filter_map(|(planned, why)| {
            let job = known.get(&planned.id);
            let (tenant, source) = match job {
                Some(job) if reported_ids.contains(&job.id) => (&job.tenant, JobSource::Telemetry),
                Some(job) => (&job.tenant, JobSource::Document),
                None => (&self.adoption_rule(&planned.id)?.tenant, JobSource::Rule),
            };
            let iteration = self.reports.iterations.get(&planned.id);
            let counted = self.measured.jobs.get(&planned.id);
            let measured = counted.filter(|counted| counted.bytes_per_second > 0.0);
            let period = measured.and_then(|measured| measured.period);
            let forecast = self.forecast(&planned.id);
            Some(JobRow {
                id: planned.id.to_string(),
                tenant: tenant.clone(),
                model: job.and_then(|job| job.model.clone()),
                gpus: job.map_or(0, |job| job.gpu_count()),
                reported: source == JobSource::Telemetry,
                profiled: reported.profiled.contains(&planned.id),
                level: planned.level,
                rank: planned.rank,
                intensity: planned.intensity,
                alone_seconds: why.iteration_seconds,
                forecast_seconds: forecast.map(|forecast| forecast.seconds),
                forecast_band: forecast.as_ref().map(SecondsBand::of),
                reported_seconds: iteration.map(|iteration| iteration.seconds),
                flows: job.map_or(0, |job| job.flows.len()),
                source,
                measured_bytes_per_second: measured.map(|measured| measured.bytes_per_second),
                measured_iteration_seconds: period.map(|period| period.seconds),
                measured_iteration_bytes: period.map(|period| period.bytes),
                start_shift: planned.start_shift.map(StartShiftDocument::from),
            })
        });
        let mut rows: Vec<JobRow> = rows.collect();
        rows.sort_by_key(|row| row.rank);
        rows
    }

    /// What an iteration of a job is expected to take under the plan in force.
    fn forecast(&self, id: &JobId) -> Option<IterationForecast> {
        let (position, _) = self.rollout.plan.job(id)?;
        self.rollout.report.comparison.forecast(position)
    }

    /// The rule that adopts flows for a job of this name, if it is not announced.
    pub(super) fn adoption_rule(&self, id: &JobId) -> Option<&AdoptionRule> {
        let is_announced = self.request.jobs.iter().any(|job| job.id == *id);
        let mut rules = self.request.policy().adopt.iter();
        rules.find(|rule| rule.job == *id && !is_announced)
    }

    /// All switches that the controller deals with.
    pub fn switch_rows(&self) -> Vec<SwitchRow> {
        let rows = self.switches.iter().map(|(switch, line)| SwitchRow {
            name: line.name.clone(),
            state: self.rollout.switch_state(*switch).to_owned(),
            mastership: line.mastership.name().to_owned(),
            verified_generation: line.verified.map(|verified| verified.generation),
            verified_entries: line.verified.map(|verified| verified.entries),
            verified_age_seconds: self.verified_age(line),
            entries_written: line.written.total_entries(),
            entries_drifted: line.drifted,
            session_failures: line.failures,
            problems: line.refusals.iter().chain(line.standing_error()).cloned().collect(),
            quarantined: self.quarantined.contains(switch),
        });
        rows.collect()
    }

    /// Seconds since a read last showed that a switch holds what it is verified to hold.
    pub(super) fn verified_age(&self, line: &SwitchStatus) -> Option<f64> {
        let checked = line.verified.and(line.checked_at)?;
        Some(self.now.saturating_duration_since(checked).as_secs_f64())
    }

    /// All links between switches and to hosts, in the order of the fabric.
    pub fn link_rows(&self) -> Vec<LinkRow> {
        let fabric = &self.rollout.fabric;
        let loads = self.level_loads();
        let measured = self.measured_links();
        let on: BTreeMap<LinkId, &planner::LinkLoad> =
            self.rollout.report.links.iter().map(|load| (load.link, load)).collect();
        let rows = fabric.link_ids().map(|link| {
            let carried = on.get(&link);
            LinkRow {
                link: fabric.link_name(link),
                gbps: fabric.link(link).bandwidth.gbps(),
                state: self.rollout.link_state(link).to_owned(),
                load: carried.map_or(0.0, |carried| carried.load),
                levels: link_levels(&loads, link),
                jobs: carried.map_or_else(Vec::new, |on| job_names(&self.rollout, &on.jobs)),
                measured: measured.totals.get(&link).copied(),
                measured_levels: link_levels(&measured.levels, link),
            }
        });
        rows.collect()
    }

    /// What links carry, by all who count it.
    pub(super) fn measured_links(&self) -> MeasuredLinks {
        MeasuredLinks::new(&self.rollout.fabric, &self.measured.links, &self.port_counters)
    }

    /// The plan in force.
    pub fn plan_document(&self) -> PlanDocument {
        let PlanRollout { fabric, plan, report, .. } = &self.rollout;
        PlanDocument::new(fabric, plan, report)
    }

    /// Findings that need the attention of an operator: those of the planner, and switches that do
    /// not hold their tables.
    pub fn health_findings(&self) -> Vec<Finding> {
        let mut findings = self.rollout.report.findings.clone();
        for row in self.switch_rows() {
            findings.extend(self.verification_finding(&row));
            if row.quarantined {
                let text = "in quarantine: its calls fail, and policy changes do not wait for it; \
                            drain it, or repair it";
                findings.push(Finding::warning(&row.name, text));
            }
            if row.entries_drifted > 0 {
                findings.push(Finding::warning(&row.name, describe_drift(row.entries_drifted)));
            }
        }
        findings.extend(self.other_leader.map(|leader| {
            let text = format!(
                "controller {leader} leads and verifies the switches, this one stands by: ask that \
                 one (crux cluster show)"
            );
            Finding::info("cluster", text)
        }));
        let down = self.link_rows().into_iter().filter(|row| row.state == "down");
        findings.extend(down.map(|row| Finding::warning(row.link, "down")));
        for job in self.job_rows().into_iter().filter(|job| job.profiled) {
            findings.push(Finding::info(format!("job {}", job.id), "being profiled"));
        }
        findings.extend(self.reports.disputes.iter().cloned());
        findings.extend(self.reports.host_findings.iter().cloned());
        findings.extend(self.reports.refusals.iter().cloned());
        findings.extend(self.iteration_findings());
        findings.extend(self.slow_link_findings());
        findings.extend(self.vacancy_finding());
        findings.extend(self.open_access.clone());
        findings.extend(self.standing.iter().cloned());
        findings.extend(self.trial.iter().map(|(number, trial)| trial_finding(*number, trial)));
        findings.extend(self.drainage.findings());
        findings.extend(self.measured.unattributed_findings());
        findings.extend(self.measured.refusal_findings());
        findings.extend(self.measured.pin_hits.finding());
        findings.extend(self.unowned_finding());
        findings.sort();
        findings
    }

    /// What a switch lacks of what is in force; nothing where the controller that leads knows.
    fn verification_finding(&self, row: &SwitchRow) -> Option<Finding> {
        let generation = self.rollout.generation;
        match row.verified_generation {
            Some(verified) if verified == generation => None,
            Some(verified) => {
                let text = format!("holds generation {verified} of {generation}");
                Some(Finding::warning(&row.name, text))
            }
            None if self.other_leader.is_some() && row.mastership == "backup" => None,
            None => {
                let state = format!("not verified: {} and {}", row.state, row.mastership);
                let parts: Vec<&str> = [state.as_str()]
                    .into_iter()
                    .chain(row.problems.iter().map(String::as_str))
                    .collect();
                Some(Finding::error(&row.name, parts.join("; ")))
            }
        }
    }

    /// The error that nobody leads: most switches have no primary.
    fn vacancy_finding(&self) -> Option<Finding> {
        let is_vacant =
            |line: &&SwitchStatus| matches!(line.mastership, Mastership::NoPrimary { .. });
        let (vacant, all) = (self.switches.values().filter(is_vacant).count(), self.switches.len());
        (2 * vacant > all).then(|| {
            let text = format!(
                "nobody leads: {vacant} of {all} switches have no primary, so no failure is \
                 repaired and no change is written; start the controllers that are away, or see \
                 who has the latest state (crux cluster show) and have it lead (crux cluster lead)"
            );
            Finding::error("cluster", text)
        })
    }

    /// Load by link and class.
    pub(super) fn level_loads(&self) -> BTreeMap<(LinkId, u8), f64> {
        let PlanRollout { fabric, plan, report, .. } = &self.rollout;
        let mut loads = BTreeMap::new();
        for (flow, rate) in self.flow_rates() {
            let planned = &plan.flows[flow];
            let level = plan.jobs[planned.job].level;
            for link in &planned.links {
                let capacity = fabric.link(*link).bandwidth.bytes_per_second();
                *loads.entry((*link, level)).or_default() += rate / capacity;
            }
        }
        debug_assert!(report.rationales.len() == plan.jobs.len());
        loads
    }

    /// Bytes per second of every flow of the plan that is still known, by its place there.
    pub(super) fn flow_rates(&self) -> Vec<(usize, f64)> {
        let rationales = &self.rollout.report.rationales;
        let seconds =
            |place: usize| rationales[self.rollout.plan.flows[place].job].iteration_seconds;
        let known = self.known_flows().into_iter();
        known
            .filter(|(place, _)| seconds(*place) > 0.0)
            .map(|(place, (_, flow))| (place, flow.bytes / seconds(place)))
            .collect()
    }

    /// The flows of the plan that are still known and their jobs, by the places of flows there.
    pub(super) fn known_flows(&self) -> BTreeMap<usize, (&planner::Job, &planner::Flow)> {
        let plan = &self.rollout.plan;
        let jobs: BTreeMap<&JobId, &planner::Job> =
            self.request.jobs.iter().map(|job| (&job.id, job)).collect();
        let mut flows = BTreeMap::new();
        let mut place = 0;
        for (position, planned) in plan.jobs.iter().enumerate() {
            let job = jobs.get(&planned.id);
            let mut own = job.into_iter().flat_map(|job| job.flows.iter().map(|flow| (*job, flow)));
            while plan.flows.get(place).is_some_and(|flow| flow.job == position) {
                flows.extend(own.next().map(|known| (place, known)));
                place += 1;
            }
        }
        flows
    }
}

impl JobRow {
    /// Seconds of an iteration: as the job reports, else as switches count.
    pub fn measured_seconds(&self) -> Option<f64> {
        self.reported_seconds.or(self.measured_iteration_seconds)
    }
}

/// The finding of a revision on trial: while it is, other changes are refused.
fn trial_finding(number: u64, trial: &PolicyTrial) -> Finding {
    let end = if trial.awaits_confirmation {
        "until an operator confirms it or its time ends"
    } else {
        "until every switch holds it"
    };
    Finding::info(
        "policy",
        format!("revision {number} is on trial {end}; only drains are accepted"),
    )
}

/// The names of jobs at these positions of the plan.
pub(super) fn job_names(rollout: &PlanRollout, jobs: &[usize]) -> Vec<String> {
    jobs.iter().map(|job| rollout.plan.jobs[*job].id.to_string()).collect()
}

/// The levels of one link, from the highest.
fn link_levels(loads: &BTreeMap<(LinkId, u8), f64>, link: LinkId) -> Vec<LevelLoad> {
    let levels = loads.range((link, 0)..=(link, u8::MAX)).rev();
    let level =
        |((_, level), load): (&(LinkId, u8), &f64)| LevelLoad { level: *level, load: *load };
    levels.map(level).collect()
}
