//! `cluster_job_log` of Microsoft Philly as published: a list of jobs in JSON.
//!
//! A job has attempts, each with a start, an end and the GPUs of every machine; a job that was
//! preempted or failed has several. The decision: it wants the GPUs of its first attempt, and is as
//! long as from the start of the first to the end of the last, as in the CSV that others made of it.

use std::collections::VecDeque;
use std::io::BufRead;

use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};

use super::format::{check_duration, is_absent, parse_gpus, parse_instant};
use super::{JobLength, SkipReason, TraceError, TraceJob};

/// What every record of the list means.
pub(super) type Records = VecDeque<Result<TraceJob, SkipReason>>;

#[derive(Deserialize)]
struct LoggedJob {
    jobid: String,
    submitted_time: Option<String>,
    vc: Option<String>,
    #[serde(default)]
    attempts: Vec<Attempt>,
}

#[derive(Deserialize)]
struct Attempt {
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    detail: Vec<MachineDetail>,
}

#[derive(Deserialize)]
struct MachineDetail {
    #[serde(default)]
    gpus: Vec<serde_json::Value>,
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
        let mut records = Records::new();
        while let Some(record) = list.next_element::<serde_json::Value>()? {
            let job = serde_json::from_value::<LoggedJob>(record);
            records.push_back(job.map_err(|_| SkipReason::NoJob).and_then(LoggedJob::into_job));
        }
        Ok(records)
    }
}

impl LoggedJob {
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
