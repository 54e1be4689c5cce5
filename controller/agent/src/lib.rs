//! The host agent (`crux agent`): measures the jobs of a host and reports them to the controller.
//!
//! ```text
//! counters of NICs, GPUs  -> ByteSeries -> period \
//! processes, on a socket  -> ProcessMessage -> JobMonitor -> ReportStream
//! ranks of NCCL, likewise -> CommunicatorJobs /
//! prologs, in a folder    -> JobSpool        /
//! pods of Kubernetes      -> PodWatcher -> JobSpool
//! slurmrestd              -> SlurmRest  -> JobSpool
//! queue pairs, cgroups    -> RdmaFlow -> QueuePairReporter -> ReportStream
//! ReportStream -> HostLevels -> DscpRules -> KernelDscp
//! ```
//!
//! Bytes by time from counters and their period are of the crate `period`. [`JobMonitor`] makes reports from that and from the messages of processes. These are pure:
//! times are arguments. Around them are modules that read ([`nic_counters`], [`gpu_counters`],
//! [`socket`]) and send ([`report_stream`]); [`service`] puts them together.

mod agent_error;
pub mod announcement;
pub mod communicator_jobs;
pub mod dscp_rules;
pub mod gpu_counters;
mod host_levels;
mod host_status;
mod job_monitor;
pub mod job_spool;
pub mod kernel_dscp;
pub mod kubernetes;
#[cfg(test)]
mod nccl_stand_in;
pub mod nic_counters;
pub mod nic_observation;
pub mod process_job;
pub mod process_message;
pub mod program;
pub mod queue_pair_reporter;
pub mod queue_pairs;
pub mod rdma_flows;
mod repeated_report;
pub mod report_json;
mod report_limits;
pub mod report_stream;
pub mod reporter_lease;
pub mod rest_client;
pub mod scheduler_hints;
pub mod service;
pub mod slurm_job;
pub mod slurm_rest;
pub mod socket;
pub mod source_port;
mod traffic_observer;
mod unreported_jobs;

pub use agent_error::AgentError;
pub use job_monitor::{JobMonitor, JobOwner, ReportRefusal};
pub use report_limits::ReportLimits;
pub use service::AgentSettings;
