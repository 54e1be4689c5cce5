//! The jobs of this host that are not reported, because there are as many as the agent may report.
//!
//! Pure. The decision: names come from processes and may be long and many, so a bounded number of
//! their hashes is kept. It is what is counted, and a job that several name counts once.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Jobs of processes that are counted.
const MAX_COUNTED: usize = 4_096;

/// The jobs that a [`JobMonitor`](crate::JobMonitor) has no room for.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreportedJobs {
    /// Those of schedulers.
    scheduled: BTreeSet<u64>,
    /// Those of processes, with the connection of each.
    announced: BTreeSet<(u64, u64)>,
    /// Those of schedulers whose names nobody has read.
    pub(crate) unread: usize,
}

impl UnreportedJobs {
    /// How many jobs there are.
    pub(crate) fn count(&self) -> usize {
        let announced = self.announced.iter().map(|(_, job)| job);
        self.scheduled.iter().chain(announced).collect::<BTreeSet<_>>().len() + self.unread
    }

    /// No job of a scheduler is left out any more.
    pub(crate) fn clear_scheduled(&mut self) {
        self.scheduled.clear();
    }

    /// A job that a scheduler has started is left out.
    pub(crate) fn add_scheduled(&mut self, job: &str) {
        self.scheduled.insert(job_hash(job));
    }

    /// A job that a process announces is left out.
    pub(crate) fn add_announced(&mut self, process: u64, job: &str) {
        if self.announced.len() < MAX_COUNTED {
            self.announced.insert((process, job_hash(job)));
        }
    }

    /// A job is reported now.
    pub(crate) fn remove_job(&mut self, job: &str) {
        let job = job_hash(job);
        self.scheduled.remove(&job);
        self.announced.retain(|(_, other)| *other != job);
    }

    /// A process has ended a job.
    pub(crate) fn remove_announced(&mut self, process: u64, job: &str) {
        self.announced.remove(&(process, job_hash(job)));
    }

    /// A process has disconnected.
    pub(crate) fn remove_process(&mut self, process: u64) {
        self.announced.retain(|(other, _)| *other != process);
    }
}

fn job_hash(job: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_names_is_counted_within_a_bound() {
        let mut unreported = UnreportedJobs::default();
        for number in 0..2 * MAX_COUNTED {
            unreported.add_announced(7, &format!("job {number}"));
        }
        assert_eq!(unreported.count(), MAX_COUNTED);
        unreported.add_scheduled("job 0");
        assert_eq!(unreported.count(), MAX_COUNTED);
        unreported.remove_process(7);
        assert_eq!(unreported.count(), 1);
    }
}
