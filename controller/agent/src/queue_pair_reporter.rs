//! Reports the connected queue pairs of this host, so that the controller knows their five-tuples
//! before their first packet.
//!
//! The kernel is asked in intervals, on a thread of its own since it may be slow to answer. The
//! decision: a report has all queue pairs, is sent when they change and repeated in intervals, so
//! that none that is lost matters for long.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::telemetry as proto;
use futures::FutureExt;
use proto::job_report::Report;
use tokio::task::JoinHandle;
use tracing::{debug, info};

use crate::process_job::SchedulerJob;
use crate::queue_pairs::{NldevError, QueuePairService, QueuePairState};
use crate::rdma_flows::{RdmaFlow, RdmaFlows};
use crate::repeated_report::RepeatedReport;

/// Queue pairs in one report: half of what the longest report of a controller's default takes.
const MAX_REPORTED: usize = 16_384;
/// Seconds after which an unchanged report is sent again.
const REPEAT_SECONDS: f64 = 10.0;

/// Lists the queue pairs of this host; may block.
pub type QueuePairReader = Arc<dyn Fn() -> Result<RdmaFlows, NldevError> + Send + Sync>;

/// Reads and reports queue pairs.
pub struct QueuePairReporter {
    host: String,
    /// None where this kernel has no RDMA.
    reader: Option<QueuePairReader>,
    reading: Option<JoinHandle<Result<RdmaFlows, NldevError>>>,
    sent: RepeatedReport<proto::HostQueuePairs>,
}

impl fmt::Debug for QueuePairReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairReporter").field("host", &self.host).finish_non_exhaustive()
    }
}

impl QueuePairReporter {
    /// A reporter for the host of this name.
    pub fn new(host: &str, reader: QueuePairReader) -> Self {
        let sent = RepeatedReport::new(REPEAT_SECONDS);
        Self { host: host.to_owned(), reader: Some(reader), reading: None, sent }
    }

    /// Takes in what the kernel has listed meanwhile and asks it again. Returns the report that is
    /// due at `now`, in seconds; `jobs` are those of processes that announce themselves. Needs a
    /// tokio runtime.
    pub fn poll_report(&mut self, jobs: &BTreeMap<u32, String>, now: f64) -> Option<Report> {
        let listed = match &mut self.reading {
            Some(reading) => Some(reading.now_or_never()?),
            None => None,
        };
        self.reading = self.reader.clone().map(|read| tokio::task::spawn_blocking(move || read()));
        match listed?.ok()? {
            Ok(flows) => {
                let report = report_flows(&self.host, &flows, jobs);
                let is_empty = report.groups.is_empty();
                self.sent.take_due(report, is_empty, now).map(Report::QueuePairs)
            }
            Err(NldevError::NoRdma) => {
                info!("this kernel has no RDMA, so no queue pairs are reported");
                (self.reader, self.reading) = (None, None);
                None
            }
            Err(error) => {
                debug!(%error, "cannot list the queue pairs now");
                None
            }
        }
    }

    /// A controller has just connected, which knows nothing yet.
    pub fn forget_sent(&mut self) {
        self.sent.forget_sent();
    }
}

/// The jobs that connected processes announce.
#[derive(Debug, Default)]
pub(crate) struct ProcessJobs {
    /// Process ids by connection.
    pids: BTreeMap<u64, u32>,
    /// Names of jobs by connection.
    jobs: BTreeMap<u64, String>,
}

impl ProcessJobs {
    /// A process has connected, with its id if the kernel tells it.
    pub(crate) fn add_process(&mut self, process: u64, pid: Option<u32>) {
        self.pids.extend(pid.map(|pid| (process, pid)));
    }

    /// A process belongs to a job, if it says so.
    pub(crate) fn set_job(&mut self, process: u64, job: Option<String>) {
        self.jobs.extend(job.map(|job| (process, job)));
    }

    /// A process has disconnected.
    pub(crate) fn remove_process(&mut self, process: u64) {
        self.pids.remove(&process);
        self.jobs.remove(&process);
    }

    /// The jobs by process id.
    pub(crate) fn jobs_by_pid(&self) -> BTreeMap<u32, String> {
        let known = self.jobs.iter();
        known.filter_map(|(process, job)| Some((*self.pids.get(process)?, job.clone()))).collect()
    }
}

/// All connected queue pairs of processes, by device and job.
fn report_flows(
    host: &str,
    flows: &RdmaFlows,
    jobs: &BTreeMap<u32, String>,
) -> proto::HostQueuePairs {
    let mut groups: BTreeMap<(&str, String), Vec<proto::QueuePair>> = BTreeMap::new();
    let connected = flows.flows.iter().filter(|flow| is_connected(flow));
    for flow in connected.take(MAX_REPORTED) {
        let pair = proto::QueuePair {
            local_number: flow.queue_pair.local_number,
            remote_number: flow.queue_pair.remote_number.unwrap_or_default(),
            udp_src_port: flow.udp_src_port.map(u32::from),
        };
        groups.entry((&flow.device, job_name(flow, jobs))).or_default().push(pair);
    }
    let groups = groups.into_iter().map(|((device, job), mut queue_pairs)| {
        queue_pairs.sort_by_key(|pair| pair.local_number);
        let addresses = flows.addresses.get(device).into_iter().flatten();
        let addresses = addresses.map(ToString::to_string).collect();
        proto::QueuePairGroup { addresses, job, queue_pairs }
    });
    proto::HostQueuePairs { host: host.to_owned(), groups: groups.collect() }
}

/// Whether this is one end of a reliable connection of a process.
fn is_connected(flow: &RdmaFlow) -> bool {
    let pair = &flow.queue_pair;
    let has_peer =
        matches!(pair.state, QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend);
    has_peer
        && pair.service == QueuePairService::ReliableConnection
        && pair.pid.is_some()
        && pair.remote_number.is_some_and(|remote| remote != 0)
}

/// The job as the process announces it, else as Slurm's jobs are announced, else by its pod.
fn job_name(flow: &RdmaFlow, jobs: &BTreeMap<u32, String>) -> String {
    let announced = flow.queue_pair.pid.and_then(|pid| jobs.get(&pid)).cloned();
    let scheduled = match &flow.owner {
        Some(SchedulerJob::Slurm(number)) => Some(format!("slurm-{number}")),
        Some(SchedulerJob::KubernetesPod(uid)) => Some(format!("pod-{uid}")),
        None => None,
    };
    announced.or(scheduled).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pairs::QueuePair;

    fn flow(local: u32, pid: u32, state: QueuePairState) -> RdmaFlow {
        let queue_pair = QueuePair {
            local_number: local,
            remote_number: Some(7),
            service: QueuePairService::ReliableConnection,
            state,
            pid: Some(pid),
            ..QueuePair::default()
        };
        let owner = Some(SchedulerJob::Slurm(pid.into()));
        RdmaFlow { device: "mlx5_0".to_owned(), queue_pair, udp_src_port: Some(50_000), owner }
    }

    fn listed(flows: Vec<RdmaFlow>) -> RdmaFlows {
        let addresses = [("mlx5_0".to_owned(), vec!["10.0.1.1".parse().unwrap()])].into();
        RdmaFlows { flows, dropped: 0, gpu_jobs: BTreeMap::new(), addresses }
    }

    #[test]
    fn connected_queue_pairs_are_reported_by_device_and_job() {
        let ready = QueuePairState::ReadyToSend;
        let mut datagrams = flow(4, 1, ready);
        datagrams.queue_pair.service = QueuePairService::UnreliableDatagram;
        let unconnected = flow(5, 1, QueuePairState::Initialized);
        let mut of_pod = flow(6, 3, ready);
        of_pod.owner = Some(SchedulerJob::KubernetesPod("2dd1-0".to_owned()));
        let flows =
            listed(vec![flow(3, 1, ready), flow(2, 2, ready), datagrams, unconnected, of_pod]);
        let jobs = [(2, "gpt".to_owned())].into();
        let report = report_flows("h1", &flows, &jobs);
        let shown: Vec<_> = report
            .groups
            .iter()
            .map(|group| {
                (group.addresses.join(" "), group.job.clone(), group.queue_pairs[0].local_number)
            })
            .collect();
        let expected = [("gpt", 2), ("pod-2dd1-0", 6), ("slurm-1", 3)];
        let expected =
            expected.map(|(job, number)| ("10.0.1.1".to_owned(), job.to_owned(), number));
        assert_eq!(shown, expected);
    }

    #[tokio::test]
    async fn a_report_is_sent_when_it_changes_and_repeated() {
        let flows = Arc::new(std::sync::Mutex::new(listed(Vec::new())));
        let read = Arc::clone(&flows);
        let reader: QueuePairReader = Arc::new(move || Ok(read.lock().unwrap().clone()));
        let mut reporter = QueuePairReporter::new("h1", reader);
        let jobs = BTreeMap::new();
        let mut poll = async |now| {
            // One under way may have read what was listed before.
            reporter.reading = None;
            reporter.poll_report(&jobs, now);
            while !reporter.reading.as_ref().unwrap().is_finished() {
                tokio::task::yield_now().await;
            }
            match reporter.poll_report(&jobs, now) {
                Some(Report::QueuePairs(report)) => Some(report.groups.len()),
                _ => None,
            }
        };
        assert_eq!(poll(0.0).await, None);
        flows.lock().unwrap().flows.push(flow(3, 1, QueuePairState::ReadyToSend));
        assert_eq!(poll(1.0).await, Some(1));
        assert_eq!(poll(2.0).await, None);
        assert_eq!(poll(12.0).await, Some(1));
        flows.lock().unwrap().flows.clear();
        assert_eq!(poll(13.0).await, Some(0));
        assert_eq!(poll(40.0).await, None);
    }

    #[tokio::test]
    async fn a_kernel_without_rdma_is_asked_once() {
        let reader: QueuePairReader = Arc::new(|| Err(NldevError::NoRdma));
        let mut reporter = QueuePairReporter::new("h1", reader);
        while reporter.reader.is_some() {
            assert_eq!(reporter.poll_report(&BTreeMap::new(), 0.0), None);
            tokio::task::yield_now().await;
        }
        assert_eq!(reporter.poll_report(&BTreeMap::new(), 1.0), None);
    }
}
