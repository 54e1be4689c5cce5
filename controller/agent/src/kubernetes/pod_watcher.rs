//! Lists and follows the pods of a selector.
//!
//! One task owns the pods. The decision: changes are recorded once no further one has come for a
//! short time, but soon after the first one, so a job of a thousand pods is not recorded a thousand
//! times while it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::api_access::{ApiAccess, ApiAccessError};
use super::pod::{Pod, PodNaming};
use super::pod_jobs::{PodJobs, PodSet};
use crate::job_spool::{JobSpool, SpoolChange};
use crate::rest_client::RestError;
use crate::scheduler_hints::HintError;

/// From the first change to its record.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// After a record that could not be written.
const RECORD_AGAIN: Duration = Duration::from_secs(1);
/// What a server may be late with the end of a watch.
const END_GRACE: Duration = Duration::from_secs(5);
/// Before another attempt; doubled each time up to almost a second, in which a job is to be known.
/// A cluster has one watcher, so few requests a second meet a server that comes back.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_millis(800);
/// A watch that lasts as long has worked.
const USEFUL_WATCH: Duration = Duration::from_secs(1);
/// Pods of one response.
const PAGE_SIZE: usize = 500;

/// Which pods are watched, and how they become jobs.
#[derive(Clone, Debug)]
pub struct PodWatchSettings {
    /// The API server.
    pub access: ApiAccess,
    /// The namespace of the pods; all namespaces without one.
    pub namespace: Option<String>,
    /// A label selector, as `kubectl --selector` takes it.
    pub selector: String,
    /// How pods become jobs.
    pub naming: PodNaming,
    /// Length of one watch. A connection that is lost without notice is noticed after this time.
    pub watch_time: Duration,
}

/// Why pods are not known at the moment.
#[derive(Debug, thiserror::Error)]
pub enum PodWatchError {
    /// The server does not answer, or refuses.
    #[error(transparent)]
    Rest(#[from] RestError),
    /// A credential cannot be read.
    #[error(transparent)]
    Access(#[from] ApiAccessError),
    /// The server sent something else than pods.
    #[error("invalid response of the API server: {0}")]
    Response(#[from] serde_json::Error),
    /// The server ended the watch with an error.
    #[error("the watch failed: {reason} ({code}): {message}")]
    Watch {
        /// Its code, as of HTTP.
        code: u16,
        /// In one word.
        reason: String,
        /// In words.
        message: String,
    },
    /// The server ended a watch at once.
    #[error("the watch ended too early")]
    Short,
    /// The server sent nothing, not even the end of the watch.
    #[error("the watch went silent")]
    Silent,
}

impl PodWatchError {
    /// Whether the version is too old, which is usual and not worth a warning.
    fn is_expired(&self) -> bool {
        match self {
            Self::Watch { code, .. } => *code == StatusCode::GONE.as_u16(),
            Self::Rest(error) => error.status() == Some(StatusCode::GONE),
            _ => false,
        }
    }
}

#[derive(Debug, Deserialize)]
struct PodList {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Pod>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next_page: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum WatchEvent {
    Added(Box<Pod>),
    Modified(Box<Pod>),
    Deleted(Box<Pod>),
    /// An empty pod with a version.
    Bookmark(Box<Pod>),
    Error(ApiStatus),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiStatus {
    code: u16,
    reason: String,
    message: String,
}

/// The task that records the jobs of a cluster.
#[derive(Debug)]
pub struct PodWatcher {
    settings: PodWatchSettings,
    spool: JobSpool,
    pods: PodSet,
    /// When the jobs are to be recorded, if they have changed.
    record_at: Option<Instant>,
    /// Annotations that were logged, by job.
    problems: BTreeMap<String, BTreeSet<HintError>>,
    /// Jobs that were logged as such without GPUs.
    without_gpus: BTreeMap<String, BTreeSet<String>>,
}

impl PodWatcher {
    /// A watcher that knows no pods yet.
    pub fn new(settings: PodWatchSettings, spool: JobSpool) -> Self {
        Self {
            settings,
            spool,
            pods: PodSet::default(),
            record_at: None,
            problems: BTreeMap::new(),
            without_gpus: BTreeMap::new(),
        }
    }

    /// Watches until it is dropped. Recorded jobs then stay recorded.
    pub async fn run(mut self) {
        let mut delay = FIRST_DELAY;
        loop {
            let began = Instant::now();
            let Err(error) = self.list_and_follow().await;
            if self.record_at.is_some() {
                self.record_jobs();
            }
            match error.is_expired() {
                true => debug!(%error, "listing pods again"),
                false => warn!(%error, "pods are not watched; trying again"),
            }
            if began.elapsed() >= USEFUL_WATCH {
                delay = FIRST_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    async fn list_and_follow(&mut self) -> Result<Infallible, PodWatchError> {
        let mut version = self.list_pods().await?;
        loop {
            let began = Instant::now();
            version = self.follow_pods(version).await?;
            if began.elapsed() < USEFUL_WATCH {
                return Err(PodWatchError::Short);
            }
        }
    }

    /// Replaces the pods by those that are there; returns the version of the list.
    async fn list_pods(&mut self) -> Result<String, PodWatchError> {
        let mut pods = Vec::new();
        let mut next_page = String::new();
        loop {
            let page = [("limit", PAGE_SIZE.to_string()), ("continue", next_page)];
            let body = self.settings.access.get_body(&self.pods_path(&page)).await?;
            let list: PodList = serde_json::from_slice(&body)?;
            pods.extend(list.items);
            next_page = list.metadata.next_page;
            if next_page.is_empty() {
                info!(pods = pods.len(), "listed the pods");
                self.pods = pods.into_iter().collect();
                self.record_jobs();
                return Ok(list.metadata.resource_version);
            }
        }
    }

    /// Follows changes after `version` until the server ends the watch; returns the last version.
    async fn follow_pods(&mut self, mut version: String) -> Result<String, PodWatchError> {
        let seconds = self.settings.watch_time.as_secs().to_string();
        let path = self.pods_path(&[
            ("watch", "1".to_owned()),
            ("allowWatchBookmarks", "true".to_owned()),
            ("resourceVersion", version.clone()),
            ("timeoutSeconds", seconds),
        ]);
        let deadline = Instant::now() + self.settings.watch_time + END_GRACE;
        let mut events = self.settings.access.get_lines(&path).await?;
        loop {
            let record_at = self.record_at.unwrap_or(deadline);
            tokio::select! {
                event = events.next_line() => match event? {
                    Some(line) => version = self.apply_event(serde_json::from_slice(&line)?)?,
                    None => return Ok(version),
                },
                () = sleep_until(record_at), if self.record_at.is_some() => self.record_jobs(),
                () = sleep_until(deadline) => return Err(PodWatchError::Silent),
            }
        }
    }

    /// The version after the event.
    fn apply_event(&mut self, event: WatchEvent) -> Result<String, PodWatchError> {
        let version = match event {
            WatchEvent::Bookmark(pod) => return Ok(pod.metadata.resource_version),
            WatchEvent::Error(ApiStatus { code, reason, message }) => {
                return Err(PodWatchError::Watch { code, reason, message });
            }
            WatchEvent::Deleted(pod) => {
                self.pods.remove_pod(&pod);
                pod.metadata.resource_version
            }
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let version = pod.metadata.resource_version.clone();
                self.pods.add_pod(*pod);
                version
            }
        };
        self.record_at = self.record_at.or(Some(Instant::now() + SETTLE_TIME));
        Ok(version)
    }

    fn record_jobs(&mut self) {
        let PodJobs { jobs, problems, without_gpus } = self.pods.jobs(&self.settings.naming);
        for (job, hints) in &problems {
            let logged = self.problems.get(job);
            for hint in hints.iter().filter(|hint| !logged.is_some_and(|l| l.contains(hint))) {
                warn!(job, "ignored an annotation: crux.fabric/{hint}");
            }
        }
        let resource = &self.settings.naming.gpu_resource;
        for (job, devices) in &without_gpus {
            if self.without_gpus.contains_key(job) {
                continue;
            }
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            let others = match devices.is_empty() {
                true => "and no other device".to_owned(),
                false => format!("but {}", devices.join(", ")),
            };
            warn!(
                job,
                "not announced: its pods have no {resource} {others}; --gpu-resource names the \
                 resource that counts GPUs, --gpus-per-pod says how many a pod without it has"
            );
        }
        (self.problems, self.without_gpus) = (problems, without_gpus);
        let prefix = format!("{}.", self.settings.naming.cluster);
        self.record_at = None;
        match self.spool.sync_jobs(|id| id.starts_with(&prefix), &jobs) {
            Ok(SpoolChange { added, removed }) => {
                added.iter().for_each(|job| info!(job, "started, or has other hosts"));
                removed.iter().for_each(|job| info!(job, "ended"));
            }
            Err(error) => {
                warn!(%error, "not every job could be recorded");
                self.record_at = Some(Instant::now() + RECORD_AGAIN);
            }
        }
    }

    fn pods_path(&self, query: &[(&str, String)]) -> String {
        let scope = self.settings.namespace.as_ref();
        let scope = scope.map_or_else(String::new, |name| format!("/namespaces/{name}"));
        let selector = [("labelSelector", self.settings.selector.clone())];
        let fields = query.iter().chain(&selector).filter(|(_, value)| !value.is_empty());
        let fields: Vec<String> =
            fields.map(|(name, value)| format!("{name}={}", encode_query(value))).collect();
        format!("/api/v1{scope}/pods?{}", fields.join("&"))
    }
}

/// A value of a query, percent-encoded (RFC 3986, section 2).
fn encode_query(value: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_encoded() {
        assert_eq!(encode_query("a in (b,c)"), "a%20in%20%28b%2Cc%29");
        assert_eq!(encode_query("crux.fabric/announce"), "crux.fabric%2Fannounce");
    }
}
