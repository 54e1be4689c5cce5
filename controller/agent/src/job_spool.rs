//! A folder with a file for each job that a scheduler has started: `ID.json`, a job as in a jobs
//! document.
//!
//! The prolog of a scheduler writes a file (`crux jobs slurm start`), its epilog removes it, and
//! the agent announces what is there. The decision: files instead of messages, so that a job stays
//! known when either side restarts. The folder belongs on a file system that a reboot clears,
//! such as `/run`. A file appears complete or not at all, because it is renamed into place. What a
//! user said of a job that cannot be read stands in its file (`ignored`), since the log of a prolog
//! is seldom read: the agent logs it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use planner::JobDocument;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Files of a folder that are read.
const MAX_JOBS: usize = 1_024;
/// Bytes of one file.
const MAX_FILE: u64 = 256 * 1024;
const SUFFIX: &str = "json";
/// Locked while a job is changed. No job has this name.
const LOCK: &str = ".lock";

/// A folder of started jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpool {
    folder: PathBuf,
}

/// What a folder contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpooledJobs {
    /// Jobs, by name of their files.
    pub jobs: Vec<JobDocument>,
    /// What is wrong with files.
    pub problems: Vec<FileProblem>,
    /// Files that were not read, since there are too many.
    pub unread: usize,
}

/// What became different in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolChange {
    /// Jobs that are new, or have other hosts.
    pub added: Vec<String>,
    /// Jobs that have ended.
    pub removed: Vec<String>,
}

/// A job of a scheduler, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobRecord {
    /// The job.
    #[serde(flatten)]
    pub job: JobDocument,
    /// What its user said of it that cannot be read, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// A file that is no job, or whose job is not all that its user said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// What is read of a file. A flattened document does not refuse fields that it does not know.
#[derive(Deserialize)]
struct ReadRecord {
    #[serde(flatten)]
    job: JobDocument,
    #[serde(default)]
    ignored: Vec<String>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

impl From<JobDocument> for JobRecord {
    fn from(job: JobDocument) -> Self {
        Self { job, ignored: Vec::new() }
    }
}

impl JobSpool {
    /// The folder at this path, which need not exist.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Adds or replaces a job; creates the folder.
    ///
    /// # Errors
    /// The name of the job is no name of a file, or the file cannot be written.
    pub fn add_job(&self, job: &JobDocument) -> io::Result<()> {
        self.add_record(&job.clone().into())
    }

    /// Like [`Self::add_job`], with what was ignored.
    ///
    /// # Errors
    /// The name of the job is no name of a file, or the file cannot be written.
    pub fn add_record(&self, record: &JobRecord) -> io::Result<()> {
        let path = self.file_of(&record.job.id)?;
        fs::create_dir_all(&self.folder)?;
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(record)?)?;
        fs::rename(&unfinished, &path)
    }

    /// Replaces a job by what `change` makes of it, none for no job, and returns what was there.
    /// Others that change jobs in this way wait, so that of two prologs none undoes the other.
    ///
    /// # Errors
    /// The name of the job is no name of a file, or a file cannot be written or removed.
    pub fn change_job(
        &self,
        id: &str,
        change: impl FnOnce(Option<&JobRecord>) -> Option<JobRecord>,
    ) -> io::Result<Option<JobRecord>> {
        let path = self.file_of(id)?;
        fs::create_dir_all(&self.folder)?;
        // Closing the file unlocks it.
        let lock = fs::File::create(self.folder.join(LOCK))?;
        lock.lock()?;
        // A file that is no job is replaced.
        let known = read_record(&path).unwrap_or_default();
        match change(known.as_ref()) {
            Some(record) => self.add_record(&record)?,
            None => drop(self.remove_job(id)?),
        }
        Ok(known)
    }

    /// Removes a job; true if it was there.
    ///
    /// # Errors
    /// The name of the job is no name of a file, or the file cannot be removed.
    pub fn remove_job(&self, id: &str) -> io::Result<bool> {
        match fs::remove_file(self.file_of(id)?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the jobs that `is_own` those in `current`; other jobs are left alone. Files that need
    /// no change are not written.
    ///
    /// # Errors
    /// The folder cannot be listed, or a file not written or removed; what can be done is done.
    pub fn sync_jobs(
        &self,
        is_own: impl Fn(&str) -> bool,
        current: &[JobDocument],
    ) -> io::Result<SpoolChange> {
        let recorded = self.read_jobs()?.jobs;
        let mut change = SpoolChange::default();
        let mut first_error = None;
        for job in current.iter().filter(|job| !recorded.contains(job)) {
            match self.add_job(job) {
                Ok(()) => change.added.push(job.id.clone()),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let is_current = |id: &str| current.iter().any(|job| job.id == id);
        for job in recorded.iter().filter(|job| is_own(&job.id) && !is_current(&job.id)) {
            match self.remove_job(&job.id) {
                Ok(_) => change.removed.push(job.id.clone()),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(change), Err)
    }

    /// All jobs; none if there is no folder.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn read_jobs(&self) -> io::Result<SpooledJobs> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SpooledJobs::default());
            }
            Err(error) => return Err(error),
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX)).collect();
        paths.sort();
        let unread = paths.len().saturating_sub(MAX_JOBS);
        paths.truncate(MAX_JOBS);
        let mut found = SpooledJobs { unread, ..SpooledJobs::default() };
        for path in paths {
            match read_record(&path) {
                Ok(Some(JobRecord { job, ignored })) => {
                    found.jobs.push(job);
                    found.problems.extend(ignored.into_iter().map(|hint| FileProblem {
                        path: path.clone(),
                        problem: format!("ignored {hint}"),
                    }));
                }
                Ok(None) => {}
                Err(problem) => {
                    let problem = format!("no job: {problem}");
                    found.problems.push(FileProblem { path, problem });
                }
            }
        }
        Ok(found)
    }

    fn file_of(&self, id: &str) -> io::Result<PathBuf> {
        let is_name = !id.is_empty()
            && id.len() <= 200
            && !id.starts_with('.')
            && id.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if !is_name {
            let text = format!("job name `{id}`: expected letters, digits, `.`, `_` and `-`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.folder.join(format!("{id}.{SUFFIX}")))
    }
}

/// None if the file was removed meanwhile.
fn read_record(path: &Path) -> Result<Option<JobRecord>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let ReadRecord { job, ignored, unknown } =
        serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if let Some(field) = unknown.keys().next() {
        return Err(format!("unknown field `{field}`"));
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem == Some(job.id.as_str()) {
        true => Ok(Some(JobRecord { job, ignored })),
        false => Err(format!("the file is named otherwise than job `{}`", job.id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str) -> JobDocument {
        JobDocument {
            id: id.to_owned(),
            gpus: [("h1".to_owned(), 8)].into(),
            ..JobDocument::default()
        }
    }

    #[test]
    fn jobs_come_and_go_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let spool = JobSpool::new(&folder.path().join("jobs"));
        assert_eq!(spool.read_jobs().unwrap(), SpooledJobs::default());
        spool.add_job(&job("slurm-2")).unwrap();
        spool.add_job(&job("slurm-1")).unwrap();
        spool.add_job(&job("slurm-1")).unwrap();
        assert_eq!(spool.read_jobs().unwrap().jobs, [job("slurm-1"), job("slurm-2")]);
        assert!(spool.remove_job("slurm-1").unwrap());
        assert!(!spool.remove_job("slurm-1").unwrap());
        assert_eq!(spool.read_jobs().unwrap().jobs, [job("slurm-2")]);
    }

    #[test]
    fn what_was_ignored_is_read_with_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let spool = JobSpool::new(folder.path());
        let mut large = job("a");
        large.gpus = [("h9".to_owned(), 8), ("h1".to_owned(), 4)].into();
        let ignored = vec!["crux.bytes=x: a reason".to_owned()];
        spool.add_record(&JobRecord { job: large.clone(), ignored }).unwrap();
        let found = spool.read_jobs().unwrap();
        assert_eq!(found.jobs, [large]);
        let hosts: Vec<&String> = found.jobs[0].gpus.keys().collect();
        assert_eq!(hosts, ["h9", "h1"], "hosts keep their order");
        assert_eq!(found.problems[0].problem, "ignored crux.bytes=x: a reason");
    }

    #[test]
    fn changes_of_one_job_at_a_time_undo_none_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let spool = JobSpool::new(&folder.path().join("jobs"));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let add_host = move |known: Option<&JobRecord>| {
                    let mut record = known.cloned().unwrap_or_else(|| job("a").into());
                    record.job.gpus.insert(format!("n{number}"), 1);
                    Some(record)
                };
                let spool = &spool;
                scope.spawn(move || spool.change_job("a", add_host).unwrap());
            }
        });
        assert_eq!(spool.read_jobs().unwrap().jobs[0].gpus.len(), 9);
        let removed = spool.change_job("a", |_| None).unwrap();
        assert_eq!(removed.map(|record| record.job.gpus.len()), Some(9));
        assert_eq!(spool.change_job("a", |_| None).unwrap(), None);
        assert!(spool.change_job("../a", |_| None).is_err());
    }

    #[test]
    fn files_beyond_the_bound_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_JOBS + 2 {
            fs::write(folder.path().join(format!("{number}.json")), "").unwrap();
        }
        assert_eq!(JobSpool::new(folder.path()).read_jobs().unwrap().unread, 2);
    }

    #[test]
    fn a_scheduler_changes_its_own_jobs_only() {
        let folder = tempfile::tempdir().unwrap();
        let spool = JobSpool::new(folder.path());
        for id in ["slurm-1", "k8s.a.x", "k8s.a.y"] {
            spool.add_job(&job(id)).unwrap();
        }
        let larger = JobDocument { gpus: [("h2".to_owned(), 8)].into(), ..job("k8s.a.y") };
        let current = [larger.clone(), job("k8s.a.z")];
        let is_own = |id: &str| id.starts_with("k8s.");
        let changed = |added: &[&str], removed: &[&str]| SpoolChange {
            added: added.iter().map(|id| (*id).to_owned()).collect(),
            removed: removed.iter().map(|id| (*id).to_owned()).collect(),
        };
        let change = spool.sync_jobs(is_own, &current).unwrap();
        assert_eq!(change, changed(&["k8s.a.y", "k8s.a.z"], &["k8s.a.x"]));
        assert_eq!(spool.sync_jobs(is_own, &current).unwrap(), SpoolChange::default());
        assert_eq!(spool.read_jobs().unwrap().jobs, [larger, job("k8s.a.z"), job("slurm-1")]);
        // One that cannot be recorded keeps no other from being recorded.
        assert!(spool.sync_jobs(is_own, &[job("k8s/a"), job("k8s.a.w")]).is_err());
        assert_eq!(spool.read_jobs().unwrap().jobs, [job("k8s.a.w"), job("slurm-1")]);
    }

    #[test]
    fn names_that_leave_the_folder_and_files_that_are_no_jobs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let spool = JobSpool::new(folder.path());
        for id in ["", "../a", "a/b", ".hidden", "a b"] {
            assert!(spool.add_job(&job(id)).is_err(), "{id}");
            assert!(spool.remove_job(id).is_err(), "{id}");
        }
        let unknown = "{\"id\":\"c\",\"gpus\":{},\"colour\":1}";
        for (file, text) in [
            ("a.json", "{"),
            ("b.json", "{\"id\":\"c\",\"gpus\":{}}"),
            ("c.json", unknown),
            ("d", ""),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let found = spool.read_jobs().unwrap();
        assert!(found.jobs.is_empty());
        let names = found.problems.iter().filter_map(|file| file.path.file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["a.json", "b.json", "c.json"]);
        assert!(found.problems[2].problem.contains("`colour`"));
    }
}
