//! A folder with a file for each job that a scheduler has started: `ID.json`, a job as in a jobs
//! document.
//!
//! The prolog of a scheduler writes a file (`crux jobs slurm start`), its epilog removes it, and
//! the agent announces what is there. The decision: files instead of messages, so that a job is
//! known whoever is restarted meanwhile. The folder belongs on a file system that a reboot clears,
//! such as `/run`. A file appears complete or not at all, because it is renamed into place.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use planner::JobDocument;

/// Files of a folder that are read.
const MAX_JOBS: usize = 1_024;
/// Bytes of one file.
const MAX_FILE: u64 = 256 * 1024;
const SUFFIX: &str = "json";

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
    /// Files that are no jobs, and why.
    pub refused: Vec<RefusedFile>,
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

/// A file that is no job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
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
        let path = self.file_of(&job.id)?;
        fs::create_dir_all(&self.folder)?;
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(job)?)?;
        fs::rename(&unfinished, &path)
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
            match read_job(&path) {
                Ok(Some(job)) => found.jobs.push(job),
                Ok(None) => {}
                Err(problem) => found.refused.push(RefusedFile { path, problem }),
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
fn read_job(path: &Path) -> Result<Option<JobDocument>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let job: JobDocument = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem == Some(job.id.as_str()) {
        true => Ok(Some(job)),
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
        for (file, text) in [("a.json", "{"), ("b.json", "{\"id\":\"c\",\"gpus\":{}}"), ("d", "")] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let found = spool.read_jobs().unwrap();
        assert!(found.jobs.is_empty());
        let names: Vec<_> = found.refused.iter().filter_map(|file| file.path.file_name()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
    }
}
