//! The jobs that report their telemetry, and what is known of each.
//!
//! ```text
//! announced -> waiting -> profiled -> known -> gone (it ended, or was silent for too long)
//!          \------------------------/
//!            if the announcement is complete
//! ```
//!
//! Sans-IO: reports, the fabric and time are arguments; feedback for reporters is the result. The
//! state receives [`ReportedJobRegistry::reported_jobs`] after
//! [`ReportedJobRegistry::take_change`] returned true. Two decisions. A job belongs to the stream
//! that announced it until that is closed, so no reporter can change the job of another. And few
//! jobs are profiled at a time: a profiled job has the highest level without any evidence, so the
//! others wait at the level of the least intense, and many new names cannot displace known jobs.

use std::collections::{BTreeMap, BTreeSet};

use planner::{Flow, FlowDocument, Job, JobDocument, JobId, Plan, PlanReport, StartShift};
use tokio::time::Instant;
use topology::{Fabric, Finding, NicId, Severity};

use super::announced_job::{TakenGpus, is_complete, resolve_announcement};
use super::counter_aggregator::ReportedIteration;
use super::measured_iteration::{ExpectedIteration, IterationMeasurement, MeasuredIteration};
use super::name_claims::{NAME_KEPT, NameClaims};
use super::plausibility;
use super::profile::{ReportedProfile, UNKNOWN_FLOP, UNKNOWN_SECONDS, profile_differs};
use super::reporter_identity::ReportOwner;
use super::slowdown::SlowdownEstimate;
use super::start_slots::{SlotChange, SlotKeeping, StartSlot, missed_finding};
use super::{JobReport, ReportWindow, ReporterId, ReporterIdentity, job_finding};
use crate::config::TelemetryConfig;
use crate::state::ReportedJobs;
use crate::store::jobs_document;

/// The reply of the controller to reports of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportFeedback {
    /// The stream that receives it, if one is open.
    pub to: Option<ReporterId>,
    /// The name of the job.
    pub job: String,
    /// Result or problem of the report.
    pub finding: Finding,
}

impl ReportFeedback {
    /// Whether a report was refused.
    pub(crate) fn is_refusal(&self) -> bool {
        self.finding.severity == Severity::Error
    }
}

/// All jobs that are known from reports.
#[derive(Debug)]
pub struct ReportedJobRegistry {
    limits: TelemetryConfig,
    jobs: BTreeMap<String, ReportedJob>,
    /// Who has the open streams.
    streams: BTreeMap<ReporterId, ReporterIdentity>,
    names: NameClaims,
    /// The start shifts of the plan in force.
    shifts: BTreeMap<JobId, StartShift>,
    /// Jobs announced so far, to know which came first.
    announced: u64,
    has_changed: bool,
}

/// Findings about jobs whose reports are not believed.
const DISTRUSTED_SHOWN: usize = 32;

/// Windows in a row that are not believed from which on a job that was ranked before is distrusted:
/// one may come from a clock that was set.
const UNBELIEVED_WINDOWS: u32 = 2;

/// Why a window is refused that no announcement came before; where that was refused, it has the
/// reason.
pub(super) const NOT_ANNOUNCED: &str = "not this reporter's; announce it first";

/// A reported job and its profiling.
#[derive(Debug)]
struct ReportedJob {
    owner: ReportOwner,
    /// How many were announced before it.
    number: u64,
    /// Every field given, every port chosen.
    document: JobDocument,
    /// The document resolved to ids of the fabric.
    job: Job,
    last_report: Instant,
    stage: ProfilingStage,
    /// Windows since something was last concluded from them.
    profile: ReportedProfile,
    /// Whether its last profile differed from the job as it is planned: once may be chance.
    differed: bool,
    /// Windows in a row that were not believed, and why the latest was not.
    unbelieved: (u32, String),
    measurement: IterationMeasurement,
    slowdown: SlowdownEstimate,
    slot: SlotKeeping,
    /// The latest feedback; repetitions are not logged, so that no reporter can fill the log.
    last_feedback: Option<Finding>,
}

/// What is known of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfilingStage {
    /// Nothing; others are being profiled.
    Waiting,
    /// Not enough; it is being profiled until then.
    Profiled(Instant),
    /// Enough to rank it.
    Known,
}

impl ReportedJobRegistry {
    /// A registry without jobs.
    pub fn new(limits: TelemetryConfig) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
            streams: BTreeMap::new(),
            names: NameClaims::default(),
            shifts: BTreeMap::new(),
            announced: 0,
            has_changed: false,
        }
    }

    /// Restores jobs that were reported before a restart, or to another member that led before.
    /// Those not reported again expire; until then every one has the whole grace, also one that
    /// this member has known as a standby, to which nobody reports.
    pub fn restore_jobs(&mut self, reported: &ReportedJobs, fabric: &Fabric, now: Instant) {
        let documents = jobs_document(fabric, &reported.jobs).jobs;
        for (document, job) in documents.into_iter().zip(&reported.jobs) {
            let announced = &mut self.announced;
            let entry = || {
                *announced += 1;
                let stage = ProfilingStage::Known;
                let entry = ReportedJob::new(document.clone(), job.clone(), stage, now);
                ReportedJob { number: *announced, ..entry }
            };
            self.jobs.entry(document.id.clone()).or_insert_with(entry).last_report = now;
        }
    }

    /// Resolves every job again, in another fabric; jobs that do not resolve are removed.
    pub fn move_to_fabric(&mut self, fabric: &Fabric) -> Vec<ReportFeedback> {
        let mut feedback = Vec::new();
        self.jobs.retain(|name, entry| {
            match resolve_announcement(&entry.document, fabric, TakenGpus::new) {
                Ok((document, job)) => {
                    (entry.document, entry.job) = (document, job);
                    true
                }
                Err(finding) => {
                    let job = name.clone();
                    let to = entry.owner.stream;
                    feedback.push(ReportFeedback { to, job, finding });
                    false
                }
            }
        });
        self.has_changed = true;
        feedback
    }

    /// Applies a report and returns the feedback for its reporter.
    pub fn ingest_report(
        &mut self,
        from: ReporterId,
        report: JobReport,
        fabric: &Fabric,
        now: Instant,
    ) -> Option<ReportFeedback> {
        let job = match &report {
            JobReport::Announcement(document) => document.id.clone(),
            JobReport::Window(window) => window.job.clone(),
            JobReport::End(job) => job.clone(),
        };
        let announcement = match report {
            JobReport::Announcement(document) => {
                self.announce_job(from, &document, fabric, now).map(Some)
            }
            JobReport::Window(window) => self.add_window(from, window, fabric, now),
            JobReport::End(job) => self.end_job(from, &job),
        };
        let finding = announcement.unwrap_or_else(Some)?;
        let to = Some(from);
        Some(ReportFeedback { to, job, finding })
    }

    /// A stream has opened.
    pub fn open_stream(&mut self, reporter: ReporterId, identity: ReporterIdentity) {
        self.streams.insert(reporter, identity);
    }

    /// A stream has closed: its jobs stay, for the same reporter, as long as jobs may be silent.
    pub fn close_stream(&mut self, reporter: ReporterId) {
        let identity = self.streams.remove(&reporter);
        for entry in self.jobs.values_mut() {
            entry.owner.close_stream(reporter, identity.as_ref());
        }
    }

    /// What follows from time alone: jobs that are silent go, profiling ends, the next begin.
    pub fn advance_time(&mut self, now: Instant) -> Vec<ReportFeedback> {
        let mut feedback = self.expire_silent(now);
        let ended = self.jobs.iter_mut().filter(|(_, entry)| entry.is_profiling_over(now));
        for (name, entry) in ended {
            entry.apply_profile();
            let text = "too little was reported while it was profiled; ranked by what there is";
            let finding = job_finding(name, Finding::warning, text);
            feedback.push(entry.feedback(finding));
            self.has_changed = true;
        }
        self.begin_profiles(now);
        feedback
    }

    /// Whether [`Self::reported_jobs`] has changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Whether feedback belongs in the log. Refusals to streams that have no such job are sent to
    /// them alone, since anybody can cause any number of those.
    pub fn is_new_feedback(&mut self, feedback: &ReportFeedback) -> bool {
        let Some(entry) = self.jobs.get_mut(&feedback.job) else {
            return feedback.finding.severity != Severity::Error;
        };
        let before = entry.last_feedback.replace(feedback.finding.clone());
        before.as_ref() != Some(&feedback.finding)
    }

    /// The jobs as they are to be planned.
    pub fn reported_jobs(&self) -> ReportedJobs {
        let mut entries: Vec<&ReportedJob> = self.jobs.values().collect();
        entries.sort_by_key(|entry| entry.number);
        ReportedJobs {
            jobs: entries.into_iter().map(|entry| entry.job.clone()).collect(),
            profiled: self.profiled_jobs().map(|entry| entry.job.id.clone()).collect(),
            distrusted: self.distrusted_jobs().map(|entry| entry.job.id.clone()).collect(),
        }
    }

    /// The jobs whose reports are not believed, with the reason.
    pub fn distrust_findings(&self) -> Vec<Finding> {
        let findings = self.distrusted_jobs().take(DISTRUSTED_SHOWN).map(|entry| {
            let text = format!(
                "its reports are not believed, so it has the lowest level until they are: {}",
                entry.unbelieved.1
            );
            job_finding(entry.job.id.as_str(), Finding::warning, text)
        });
        findings.collect()
    }

    fn distrusted_jobs(&self) -> impl Iterator<Item = &ReportedJob> {
        self.jobs.values().filter(|entry| entry.is_distrusted())
    }

    fn profiled_jobs(&self) -> impl Iterator<Item = &ReportedJob> {
        self.jobs.values().filter(|entry| matches!(entry.stage, ProfilingStage::Profiled(_)))
    }

    /// Takes over what a plan that comes into force expects of each job.
    pub fn follow_plan(&mut self, plan: &Plan, report: &PlanReport, now: Instant) {
        for entry in self.jobs.values_mut() {
            let expected = ExpectedIteration::of_plan(plan, report, &entry.job);
            entry.measurement.follow_plan(expected, now);
        }
        let shifts = plan.jobs.iter().filter_map(|job| Some((job.id.clone(), job.start_shift?)));
        self.shifts = shifts.collect();
    }

    /// The slots that are others since the last call, for the reporters of their jobs.
    pub(crate) fn take_slot_changes(&mut self, now: Instant) -> Vec<SlotChange> {
        let changes = self.jobs.values_mut().filter_map(|entry| {
            let to = entry.owner.stream?;
            let shift = self.shifts.get(&entry.job.id).filter(|_| entry.job.can_wait);
            let slot = shift.map(|shift| StartSlot::new(*shift, entry.job.first_start_seconds()));
            let is_new = entry.slot.set_slot(slot, now);
            is_new.then(|| SlotChange { to, job: entry.job.id.clone(), slot })
        });
        changes.collect()
    }

    /// What known jobs report of their iterations, beside what was expected of them.
    pub fn measured_iterations(&self) -> BTreeMap<JobId, MeasuredIteration> {
        let known = self.jobs.values().filter(|entry| entry.stage == ProfilingStage::Known);
        known
            .filter_map(|entry| Some((entry.job.id.clone(), entry.measurement.concluded()?)))
            .collect()
    }

    /// Reported iterations of known jobs, since the plan in force.
    pub fn reported_iterations(&self) -> BTreeMap<JobId, ReportedIteration> {
        let known = self.jobs.values().filter(|entry| entry.stage == ProfilingStage::Known);
        known.map(|entry| (entry.job.id.clone(), entry.reported_iteration())).collect()
    }

    /// The tenant of a reported job, if it has one.
    pub fn tenant_of(&self, job: &JobId) -> Option<String> {
        self.jobs.get(job.as_str())?.document.tenant.clone()
    }

    /// The job that has announced a pod, if only one has.
    pub fn job_of_pod(&self, uid: &str) -> Option<JobId> {
        let has_pod = |entry: &&ReportedJob| entry.document.pods.iter().any(|pod| pod == uid);
        let mut found = self.jobs.values().filter(has_pod);
        found.next().filter(|_| found.next().is_none()).map(|entry| entry.job.id.clone())
    }

    /// Feedback for the reporter of the job that a finding is about.
    pub fn feedback_for(&self, job: &JobId, finding: Finding) -> Option<ReportFeedback> {
        let entry = self.jobs.get(job.as_str())?;
        Some(entry.feedback(finding))
    }

    fn announce_job(
        &mut self,
        from: ReporterId,
        announcement: &JobDocument,
        fabric: &Fabric,
        now: Instant,
    ) -> Result<Finding, Finding> {
        let name = announcement.id.clone();
        self.check_owner(&name, from)?;
        self.check_tenant(from, announcement, now)?;
        self.check_room(&name, from)?;
        let taken = || self.taken_gpus(&name);
        let (document, job) = resolve_announcement(announcement, fabric, taken)?;
        plausibility::check_announcement(&job, fabric)
            .map_err(|error| refusal(&name, &error.to_string()))?;
        self.check_connections(&job)?;
        let stage =
            if is_complete(announcement) { ProfilingStage::Known } else { ProfilingStage::Waiting };
        let mut entry = ReportedJob::new(document, job, stage, now);
        entry.owner = ReportOwner::of_stream(from);
        match self.jobs.remove(&name) {
            Some(had) => {
                entry.number = had.number;
                entry.keep_profile(had);
            }
            None => {
                self.announced += 1;
                entry.number = self.announced;
            }
        }
        self.names.release(&name);
        self.jobs.insert(name.clone(), entry);
        self.has_changed = true;
        self.begin_profiles(now);
        let text = match self.jobs[&name].stage {
            ProfilingStage::Known => "planned by what is known of it",
            ProfilingStage::Profiled(_) => "profiled in the highest class",
            ProfilingStage::Waiting => "waits to be profiled, ranked last",
        };
        Ok(job_finding(&name, Finding::info, text))
    }

    /// Which GPUs jobs other than that have, as far as that is stated or assumed.
    fn taken_gpus(&self, job: &str) -> TakenGpus {
        let mut taken = TakenGpus::new();
        let others = self.jobs.iter().filter(|(name, _)| *name != job);
        for (host, gpus) in others.flat_map(|(_, entry)| &entry.document.gpu_indices) {
            taken.entry(host.clone()).or_default().extend(gpus);
        }
        taken
    }

    fn check_owner(&self, name: &str, from: ReporterId) -> Result<(), Finding> {
        let Some(entry) = self.jobs.get(name) else {
            return Ok(());
        };
        if entry.owner.may_report(from, self.streams.get(&from)) {
            Ok(())
        } else {
            Err(refusal(name, "another reporter has a job of this name"))
        }
    }

    /// A name belongs to the tenant that had it last. Otherwise another tenant could wait until a
    /// job is silent, take its name and lock its owner out.
    fn check_tenant(
        &self,
        from: ReporterId,
        announcement: &JobDocument,
        now: Instant,
    ) -> Result<(), Finding> {
        let (name, tenant) = (&announcement.id, &announcement.tenant);
        let others = self.jobs.get(name).filter(|entry| entry.owner.stream != Some(from));
        let running = others.map(|entry| &entry.document.tenant);
        match running.or_else(|| self.names.owner(name, now)) {
            Some(owner) if owner != tenant => {
                let owner = owner.as_ref().map_or("a job without a tenant".to_owned(), |tenant| {
                    format!("a job of tenant `{tenant}`")
                });
                let hours = NAME_KEPT.as_secs() / 3_600;
                let text = format!(
                    "{owner} has or had this name in the last {hours} hours; choose another"
                );
                Err(refusal(name, &text))
            }
            _ => Ok(()),
        }
    }

    fn check_room(&self, name: &str, from: ReporterId) -> Result<(), Finding> {
        if self.jobs.contains_key(name) {
            return Ok(());
        }
        let own = self.jobs.values().filter(|entry| entry.owner.stream == Some(from));
        let (own, own_most) = (own.count(), self.limits.jobs_per_reporter.get());
        let (all, most) = (self.jobs.len(), self.limits.jobs.get());
        match (own < own_most, all < most) {
            (true, true) => Ok(()),
            (false, _) => Err(refusal(name, &format!("a reporter has at most {own_most} jobs"))),
            (_, false) => Err(refusal(name, &format!("there are {most} jobs already"))),
        }
    }

    fn check_connections(&self, job: &Job) -> Result<(), Finding> {
        let own: BTreeSet<_> = job.flows.iter().filter_map(connection_key).collect();
        let others = self.jobs.values().filter(|entry| entry.job.id != job.id);
        for other in others {
            if other.job.flows.iter().filter_map(connection_key).any(|key| own.contains(&key)) {
                let text = format!("job {} has one of its connections", other.job.id);
                return Err(refusal(job.id.as_str(), &text));
            }
        }
        Ok(())
    }

    fn add_window(
        &mut self,
        from: ReporterId,
        mut window: ReportWindow,
        fabric: &Fabric,
        now: Instant,
    ) -> Result<Option<Finding>, Finding> {
        let name = &window.job.clone();
        let entry = self.jobs.get_mut(name).filter(|entry| entry.owner.stream == Some(from));
        let Some(entry) = entry else {
            return Err(job_finding(name, Finding::error, NOT_ANNOUNCED));
        };
        // Even an implausible window proves that the job is alive.
        entry.last_report = now;
        window.split_bytes_by_flow(&entry.job);
        let was_distrusted = entry.is_distrusted();
        if let Err(error) = plausibility::check_window(&window, &entry.job, fabric) {
            let text = format!("not believed: {error}");
            entry.distrust(error.to_string());
            self.has_changed |= entry.is_distrusted() != was_distrusted;
            self.begin_profiles(now);
            return Err(job_finding(name, Finding::warning, text));
        }
        entry.unbelieved.0 = 0;
        self.has_changed |= was_distrusted;
        if entry.job.can_wait && entry.slot.is_missed(&window, now) {
            entry.job.can_wait = false;
            self.has_changed = true;
            return Err(missed_finding(name));
        }
        entry.profile.add_window(&window);
        entry.measurement.add_window(&window, now);
        if entry.stage == ProfilingStage::Waiting
            || entry.profile.iterations() < self.limits.profile_iterations
        {
            return Ok(None);
        }
        let was = entry.stage;
        let is_different = entry.apply_profile_if_changed(self.limits.change_min);
        self.has_changed |= is_different || was != ProfilingStage::Known;
        if was == ProfilingStage::Known {
            return Ok(
                is_different.then(|| job_finding(name, Finding::info, "differs; planned anew"))
            );
        }
        let finding = match entry.document.flop_per_iteration {
            Some(flop) if flop > UNKNOWN_FLOP => {
                job_finding(name, Finding::info, "profile complete")
            }
            _ => job_finding(name, Finding::warning, "reports no FLOP, so it is ranked last"),
        };
        self.begin_profiles(now);
        Ok(Some(finding))
    }

    fn end_job(&mut self, from: ReporterId, name: &str) -> Result<Option<Finding>, Finding> {
        let is_own = self.jobs.get(name).is_some_and(|entry| entry.owner.stream == Some(from));
        if !is_own {
            return Err(job_finding(name, Finding::error, "not this reporter's; it stays"));
        }
        self.jobs.remove(name);
        self.has_changed = true;
        Ok(Some(job_finding(name, Finding::info, "ended")))
    }

    fn expire_silent(&mut self, now: Instant) -> Vec<ReportFeedback> {
        let limits = &self.limits;
        // A job whose reporter is still there may be in a pause.
        let allowed = |entry: &ReportedJob| match entry.owner.stream {
            Some(_) => limits.pause.max(limits.grace),
            None => limits.grace,
        };
        let is_silent = |_: &String, entry: &mut ReportedJob| {
            now.duration_since(entry.last_report) >= allowed(entry)
        };
        let gone: Vec<ReportFeedback> = self
            .jobs
            .extract_if(.., is_silent)
            .map(|(name, entry)| {
                self.names.keep(&name, &entry.document.tenant, entry.last_report);
                let silent = allowed(&entry).as_secs_f64();
                let text = format!("silent for {silent} s, so it counts as ended");
                entry.feedback(job_finding(&name, Finding::warning, text))
            })
            .collect();
        self.has_changed |= !gone.is_empty();
        gone
    }

    /// Gives free turns to those who wait, by name.
    fn begin_profiles(&mut self, now: Instant) {
        let until = now + self.limits.profile_longest;
        let profiled = self.profiled_jobs().count();
        let free = self.limits.profiled_at_once.get().saturating_sub(profiled);
        let entries = self.jobs.values_mut();
        let waiting = entries.filter(|entry| entry.stage == ProfilingStage::Waiting);
        for entry in waiting.take(free) {
            entry.stage = ProfilingStage::Profiled(until);
            entry.profile = ReportedProfile::default();
            self.has_changed = true;
        }
    }
}

impl ReportedJob {
    fn new(document: JobDocument, job: Job, stage: ProfilingStage, now: Instant) -> Self {
        Self {
            owner: ReportOwner::default(),
            number: 0,
            document,
            job,
            last_report: now,
            stage,
            profile: ReportedProfile::default(),
            differed: false,
            unbelieved: (0, String::new()),
            measurement: IterationMeasurement::default(),
            slowdown: SlowdownEstimate::default(),
            slot: SlotKeeping::default(),
            last_feedback: None,
        }
    }

    fn reported_iteration(&self) -> ReportedIteration {
        ReportedIteration {
            seconds: self.measurement.concluded().map(|measured| measured.seconds),
            bytes: self.job.flows.iter().map(|flow| flow.bytes).sum(),
        }
    }

    /// Keeps the earlier profile of a job that is announced again without one.
    fn keep_profile(&mut self, had: Self) {
        let end = |flow: &Flow| (flow.src, flow.dst, flow.overlap_from);
        let [before, now] = [&had.job, &self.job].map(|job| job.flows.iter().map(end));
        let is_same = had.document.gpus == self.document.gpus && before.eq(now);
        self.slowdown = had.slowdown;
        self.job.measured = had.slowdown.published();
        if self.stage == ProfilingStage::Waiting && is_same {
            let (owner, pods) = (self.owner.clone(), self.document.pods.clone());
            let (flows, documents) = (self.job.flows.clone(), self.document.flows.clone());
            *self = Self { owner, last_report: self.last_report, ..had };
            // Connections and pods are those of now; what they send was measured.
            self.document.pods = pods;
            for (had, now) in self.job.flows.iter_mut().zip(flows) {
                *had = Flow { bytes: had.bytes, ..now };
            }
            let had = self.document.flows.iter_mut().flatten();
            had.zip(documents.into_iter().flatten())
                .for_each(|(had, now)| *had = FlowDocument { bytes: had.bytes, ..now });
        }
    }

    /// Whether its reports are no evidence: what is not believed never raises a job.
    fn is_distrusted(&self) -> bool {
        let is_ranked = self.job.flop_per_iteration > UNKNOWN_FLOP;
        self.unbelieved.0 >= if is_ranked { UNBELIEVED_WINDOWS } else { 1 }
    }

    /// Takes a window that cannot be true: it ends the profiling, which gives the highest level.
    fn distrust(&mut self, reason: String) {
        self.unbelieved = (self.unbelieved.0.saturating_add(1), reason);
        if self.stage != ProfilingStage::Known {
            self.stage = ProfilingStage::Known;
            self.profile = ReportedProfile::default();
        }
    }

    fn is_profiling_over(&self, now: Instant) -> bool {
        matches!(self.stage, ProfilingStage::Profiled(until) if now >= until)
    }

    /// From now on, the job is what its windows show.
    fn apply_profile(&mut self) {
        let profile = std::mem::take(&mut self.profile);
        self.document = profile.apply_to(&self.document);
        self.stage = ProfilingStage::Known;
        let (document, job) = (&self.document, &mut self.job);
        job.flop_per_iteration = document.flop_per_iteration.unwrap_or(UNKNOWN_FLOP);
        job.compute_seconds = document.compute_seconds.unwrap_or(UNKNOWN_SECONDS);
        job.overlap_from = document.overlap_from.unwrap_or(1.0);
        let flows = job.flows.iter_mut().zip(document.flows.iter().flatten());
        flows.for_each(|(flow, shown)| flow.bytes = shown.bytes);
    }

    /// Applies the profile of the windows if it differs from the job for the second time in a row;
    /// whether it does.
    fn apply_profile_if_changed(&mut self, share: f64) -> bool {
        let measured = self.measurement.conclude();
        let shown = self.profile.apply_to(&self.document);
        let is_first = self.stage != ProfilingStage::Known;
        let had_differed = self.differed;
        self.differed = !is_first && profile_differs(&shown, &self.document, share);
        let differs = is_first || (self.differed && had_differed);
        if differs {
            self.apply_profile();
            self.differed = false;
        }
        self.profile = ReportedProfile::default();
        // What a job that has just changed would take alone is known with its next plan.
        let measured = measured.filter(|_| !differs);
        let is_slower = self.slowdown.add_measurement(measured, self.measurement.expected());
        self.job.measured = self.slowdown.published();
        differs || is_slower
    }

    fn feedback(&self, finding: Finding) -> ReportFeedback {
        ReportFeedback { to: self.owner.stream, job: self.document.id.clone(), finding }
    }
}

/// What identifies a flow on the wire, beside the constants of RoCEv2; nothing where its host
/// chooses the port.
fn connection_key(flow: &planner::Flow) -> Option<(NicId, NicId, u16)> {
    Some((flow.src, flow.dst, flow.udp_src_port?))
}

fn refusal(job: &str, why: &str) -> Finding {
    job_finding(job, Finding::error, format!("refused: {why}"))
}

#[cfg(test)]
mod liars;
#[cfg(test)]
mod tests;
