//! `cluster_job_log` of Microsoft Philly as published: a list of jobs in JSON.
//!
//! A job has attempts, each with a start, an end and the GPUs of every machine; a job that was
//! preempted or failed has several. The decision: it wants the GPUs of its first attempt, and is as
//! long as from the start of the first to the end of the last, as in the CSV that others made of it.
//! Fields that are not read are named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::BufRead;

use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};

use super::format::{check_duration, is_absent, parse_gpus, parse_instant};
use super::{JobLength, SkipReason, TraceError, TraceJob};

/// A list that was read.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// What every record means, in the order of the list.
    pub(super) jobs: VecDeque<Result<TraceJob, SkipReason>>,
    /// Fields of records that are not read.
    pub(super) unused_fields: BTreeSet<String>,
}

#[derive(Deserialize)]
struct LoggedJob {
    jobid: String,
    submitted_time: Option<String>,
    vc: Option<String>,
    #[serde(default)]
    attempts: Vec<Attempt>,
    #[serde(flatten)]
    other: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct Attempt {
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    detail: Vec<MachineDetail>,
    #[serde(flatten)]
    other: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct MachineDetail {
    #[serde(default)]
    gpus: Vec<serde_json::Value>,
    #[serde(flatten)]
    other: BTreeMap<String, IgnoredAny>,
}

/// Reads the whole list; only its jobs are kept.
pub(super) fn read_records<R: BufRead>(input: R) -> Result<Records, TraceError> {
    let mut text = serde_json::Deserializer::from_reader(input);
    let records = serde::Deserializer::deserialize_seq(&mut text, JobsVisitor);
    let records = records.map_err(TraceError::Json)?;
    text.end().map_err(TraceError::Json)?;
    Ok(records)
}

struct JobsVisitor;

impl<'de> Visitor<'de> for JobsVisitor {
    type Value = Records;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Records, A::Error> {
        let mut records = Records::default();
        let mut seen = BTreeSet::new();
        while let Some(record) = list.next_element::<serde_json::Value>()? {
            let job = serde_json::from_value::<LoggedJob>(record);
            let job = job.map_err(|_| SkipReason::NoJob).and_then(|job| {
                records.unused_fields.extend(job.unused_fields());
                match seen.insert(job.jobid.clone()) {
                    true => job.into_job(),
                    false => Err(SkipReason::Duplicate),
                }
            });
            records.jobs.push_back(job);
        }
        Ok(records)
    }
}

impl LoggedJob {
    fn unused_fields(&self) -> Vec<String> {
        let keys = |place: &'static str, other: &BTreeMap<String, IgnoredAny>| {
            other.keys().map(|key| format!("{place}{key}")).collect::<Vec<_>>()
        };
        let attempts = self.attempts.iter();
        let machines = attempts.clone().flat_map(|attempt| &attempt.detail);
        let of_attempts = attempts.flat_map(|attempt| keys("attempts.", &attempt.other));
        let of_machines = machines.flat_map(|machine| keys("attempts.detail.", &machine.other));
        keys("", &self.other).into_iter().chain(of_attempts).chain(of_machines).collect()
    }

    fn into_job(self) -> Result<TraceJob, SkipReason> {
        let submitted_seconds = parse_instant(&self.submitted_time.unwrap_or_default())?;
        let is_known = |time: &&String| !is_absent(time);
        let first = self.attempts.first().ok_or(SkipReason::NeverRan)?;
        let began = first.start_time.as_ref().filter(is_known).ok_or(SkipReason::NeverRan)?;
        let ends = self.attempts.iter().rev().filter_map(|attempt| attempt.end_time.as_ref());
        let ended = ends.into_iter().find(is_known).ok_or(SkipReason::StillRunning)?;
        let (began, ended) = (parse_instant(began)?, parse_instant(ended)?);
        if ended < began {
            return Err(SkipReason::TimesOutOfOrder);
        }
        let gpus: usize = first.detail.iter().map(|machine| machine.gpus.len()).sum();
        Ok(TraceJob {
            id: self.jobid,
            submitted_seconds,
            gpus: parse_gpus(&gpus.to_string())?,
            length: JobLength::Seconds(check_duration(ended - began)?),
            model: None,
            tenant: self.vc.filter(|name| !is_absent(name)),
        })
    }
}
