//! The jobs that slurmrestd lists, and a spool folder kept equal to them.
//!
//! Prologs and epilogs record jobs at once, but one that fails or is killed records nothing. What
//! slurmctld knows is read here, and the folder is corrected. The decision: of what slurmrestd
//! serves, the newest data parser is used whose fields are known; few fields are read, so that they
//! are the same in all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::job_spool::{JobRecord, JobSpool, SpoolChange};
use crate::rest_client::{RestClient, RestError};
use crate::slurm_job::{self, ListedSlurmJob};

/// Data parsers of Slurm 20.11 to 25.11. v0.0.38 was tried; a job has the fields that are read here
/// in each, but for the state and numbers that may be absent, of which there are two forms.
const KNOWN_PARSERS: std::ops::RangeInclusive<u32> = 36..=44;
/// States in which a job has its hosts.
const RUNNING_STATES: [&str; 5] = ["CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING"];

/// Why the jobs of Slurm are not known.
#[derive(Debug, thiserror::Error)]
pub enum SlurmRestError {
    /// slurmrestd does not answer, or refuses.
    #[error(transparent)]
    Rest(#[from] RestError),
    /// The file of the token cannot be read.
    #[error("{}: {source}", path.display())]
    Token {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The response has another form.
    #[error("invalid response of slurmrestd to {path}: {source}")]
    Response {
        /// What was requested.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Slurm reported an error in place of jobs.
    #[error("slurmrestd: {0}")]
    Slurm(String),
    /// None of the data parsers is known.
    #[error(
        "slurmrestd serves jobs by {found}; known are v0.0.{} to v0.0.{}: start it with one of \
         these (slurmrestd -d, or -s before Slurm 23.02)",
        KNOWN_PARSERS.start(),
        KNOWN_PARSERS.end()
    )]
    Parsers {
        /// Those that it has.
        found: String,
    },
    /// The folder cannot be read or written.
    #[error("{0}")]
    Spool(std::io::Error),
}

/// Who asks: `X-SLURM-USER-NAME` and the file of `X-SLURM-USER-TOKEN`.
#[derive(Clone, Debug)]
pub struct SlurmUser {
    /// Name of the user.
    pub name: String,
    /// File with a token, as `scontrol token` prints it; read for each request.
    pub token_file: PathBuf,
}

/// A client of slurmrestd.
#[derive(Debug)]
pub struct SlurmRest {
    client: RestClient,
    user: Option<SlurmUser>,
    /// GPUs that each host gives to a job, where Slurm does not count them.
    gpus_per_host: Option<u32>,
    /// Where jobs are listed, once negotiated.
    jobs_path: Option<String>,
    /// What the last listing had that could not be read.
    problems: BTreeSet<String>,
}

/// What slurmrestd lists as running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmListing {
    /// The components of each job, by its number; one if it is not heterogeneous.
    running: BTreeMap<u64, Vec<ListedSlurmJob>>,
}

/// What a correction of a folder did.
#[derive(Debug, Default)]
pub struct SlurmSync {
    /// Jobs that were missing or had other hosts, and jobs that have ended.
    pub change: SpoolChange,
    /// Running jobs that cannot be recorded and words of comments that cannot be read, in words.
    /// None of them twice, for as long as the job runs.
    pub problems: Vec<String>,
}

/// What is listed, as records.
#[derive(Debug, Default)]
struct ListedRecords {
    records: Vec<JobRecord>,
    problems: BTreeSet<String>,
}

#[derive(Deserialize)]
struct ApiDescription {
    paths: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct JobsResponse {
    #[serde(default)]
    errors: Vec<SlurmFailure>,
    #[serde(default)]
    jobs: Vec<JobFields>,
}

#[derive(Deserialize)]
struct SlurmFailure {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

#[derive(Deserialize)]
struct JobFields {
    job_id: u64,
    job_state: JobState,
    #[serde(default)]
    nodes: Option<String>,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    user_name: Option<String>,
    #[serde(default)]
    comment: Option<String>,
    #[serde(default)]
    tres_alloc_str: Option<String>,
    #[serde(default)]
    gres_detail: Option<Vec<Option<String>>>,
    #[serde(default)]
    het_job_id: Option<OptionalNumber>,
}

/// A number, 0 for none, until v0.0.38; after that an object that says whether there is one.
#[derive(Deserialize)]
#[serde(untagged)]
enum OptionalNumber {
    Number(u64),
    Object { set: bool, number: u64 },
    Other(IgnoredAny),
}

impl OptionalNumber {
    fn value(&self) -> Option<u64> {
        match *self {
            Self::Number(number) | Self::Object { set: true, number } => Some(number),
            Self::Object { set: false, .. } | Self::Other(_) => None,
        }
        .filter(|number| *number > 0)
    }
}

/// One text until v0.0.39, a list from v0.0.40.
#[derive(Deserialize)]
#[serde(untagged)]
enum JobState {
    Text(String),
    List(Vec<String>),
}

impl JobState {
    fn is_running(&self) -> bool {
        let is_listed = |state: &str| RUNNING_STATES.contains(&state);
        match self {
            Self::Text(state) => is_listed(state),
            // RUNNING and COMPLETING at a time has begun to end.
            Self::List(states) => !states.is_empty() && states.iter().all(|state| is_listed(state)),
        }
    }
}

impl SlurmRest {
    /// A client that has not asked yet.
    pub fn new(client: RestClient, user: Option<SlurmUser>, gpus_per_host: Option<u32>) -> Self {
        Self { client, user, gpus_per_host, jobs_path: None, problems: BTreeSet::new() }
    }

    /// Removes records of jobs that have ended, and adds those that no prolog has recorded.
    ///
    /// # Errors
    /// slurmrestd does not list its jobs, or the folder cannot be changed.
    pub async fn sync_spool(&mut self, spool: &JobSpool) -> Result<SlurmSync, SlurmRestError> {
        // Read first: what a prolog records after that is no ended job.
        let recorded = spool.read_jobs().map_err(SlurmRestError::Spool)?.jobs;
        let listing = self.list_jobs().await?;
        let mut sync = SlurmSync::default();
        let names = recorded.iter().map(|job| job.id.as_str());
        for id in slurm_job::vanished_slurm_jobs(names, |number| listing.is_running(number)) {
            remove_record(spool, id, &mut sync.change)?;
        }
        let listed = listing.records(self.gpus_per_host);
        sync.problems = listed.problems.difference(&self.problems).cloned().collect();
        self.problems = listed.problems;
        let is_recorded = |listed: &JobRecord| {
            let known = recorded.iter().find(|known| known.id == listed.job.id);
            known.is_some_and(|known| known.gpus.keys().eq(listed.job.gpus.keys()))
        };
        let missing: Vec<JobRecord> =
            listed.records.into_iter().filter(|record| !is_recorded(record)).collect();
        for record in &missing {
            spool.add_record(record).map_err(SlurmRestError::Spool)?;
        }
        if missing.is_empty() {
            return Ok(sync);
        }
        // An epilog that ran between the list and the record has found nothing to remove; by then
        // its job has left the list.
        let listing = self.list_jobs().await?;
        let names = missing.iter().map(|record| record.job.id.as_str());
        for id in slurm_job::vanished_slurm_jobs(names, |number| listing.is_running(number)) {
            remove_record(spool, id, &mut sync.change)?;
        }
        let added = missing.into_iter().map(|record| record.job.id);
        sync.change.added.extend(added.filter(|id| !sync.change.removed.contains(id)));
        Ok(sync)
    }

    /// The jobs that run.
    ///
    /// # Errors
    /// slurmrestd does not answer, has no known data parser, or reports an error.
    pub async fn list_jobs(&mut self) -> Result<SlurmListing, SlurmRestError> {
        let path = match self.jobs_path.take() {
            Some(path) => path,
            None => self.negotiate_path().await?,
        };
        // After an error, such as an upgrade, it is negotiated again.
        let listing = parse_jobs(&path, &self.get(&path).await?)?;
        self.jobs_path = Some(path);
        Ok(listing)
    }

    async fn negotiate_path(&self) -> Result<String, SlurmRestError> {
        let path = "/openapi/v3";
        choose_path(path, &self.get(path).await?)
    }

    async fn get(&self, path: &str) -> Result<Vec<u8>, SlurmRestError> {
        let mut headers = Vec::new();
        if let Some(SlurmUser { name, token_file }) = &self.user {
            let token = std::fs::read_to_string(token_file)
                .map_err(|source| SlurmRestError::Token { path: token_file.clone(), source })?;
            let token = token.trim().trim_start_matches("SLURM_JWT=").to_owned();
            headers = vec![("x-slurm-user-name", name.clone()), ("x-slurm-user-token", token)];
        }
        Ok(self.client.get_body(path, &headers).await?.to_vec())
    }
}

impl SlurmListing {
    fn is_running(&self, number: u64) -> bool {
        self.running.contains_key(&number)
    }

    /// All jobs that have GPUs.
    fn records(&self, gpus_per_host: Option<u32>) -> ListedRecords {
        let mut listed = ListedRecords::default();
        for (number, components) in &self.running {
            match slurm_job::listed_slurm_job(*number, components, gpus_per_host) {
                Ok(record) => listed.records.extend(record),
                Err(error) => {
                    listed.problems.insert(format!("job {number} is not recorded: {error}"));
                }
            }
        }
        for record in &listed.records {
            let ignored = record.ignored.iter();
            listed
                .problems
                .extend(ignored.map(|hint| format!("{}: ignored {hint}", record.job.id)));
        }
        listed
    }
}

fn remove_record(
    spool: &JobSpool,
    id: &str,
    change: &mut SpoolChange,
) -> Result<(), SlurmRestError> {
    if spool.remove_job(id).map_err(SlurmRestError::Spool)? {
        change.removed.push(id.to_owned());
    }
    Ok(())
}

/// The path of the newest known data parser among those described.
fn choose_path(path: &str, description: &[u8]) -> Result<String, SlurmRestError> {
    let described: ApiDescription = serde_json::from_slice(description)
        .map_err(|source| SlurmRestError::Response { path: path.to_owned(), source })?;
    let parser = |path: &str| {
        let version = path.strip_prefix("/slurm/v0.0.")?.trim_end_matches('/');
        version.strip_suffix("/jobs")?.parse::<u32>().ok()
    };
    let parsers = described.paths.keys().filter_map(|path| Some((parser(path)?, path)));
    let known = parsers.clone().filter(|(version, _)| KNOWN_PARSERS.contains(version)).max();
    known.map(|(_, path)| path.clone()).ok_or_else(|| {
        let found: Vec<String> = parsers.map(|(version, _)| format!("v0.0.{version}")).collect();
        let found = if found.is_empty() { "no data parser".to_owned() } else { found.join(", ") };
        SlurmRestError::Parsers { found }
    })
}

fn parse_jobs(path: &str, body: &[u8]) -> Result<SlurmListing, SlurmRestError> {
    let response: JobsResponse = serde_json::from_slice(body)
        .map_err(|source| SlurmRestError::Response { path: path.to_owned(), source })?;
    if let Some(failure) = response.errors.into_iter().next() {
        let text = failure.description.or(failure.error);
        return Err(SlurmRestError::Slurm(text.unwrap_or_else(|| "an error".to_owned())));
    }
    let mut running: BTreeMap<u64, Vec<ListedSlurmJob>> = BTreeMap::new();
    for job in response.jobs.into_iter().filter(|job| job.job_state.is_running()) {
        let leader = job.het_job_id.as_ref().and_then(OptionalNumber::value);
        let details = job.gres_detail.into_iter().flatten().map(Option::unwrap_or_default);
        let listed = ListedSlurmJob {
            hosts: job.nodes.unwrap_or_default(),
            account: job.account.filter(|text| !text.is_empty()),
            user: job.user_name.filter(|text| !text.is_empty()),
            comment: job.comment.unwrap_or_default(),
            resources: job.tres_alloc_str.unwrap_or_default(),
            details: details.collect(),
        };
        running.entry(leader.unwrap_or(job.job_id)).or_default().push(listed);
    }
    Ok(SlurmListing { running })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What slurmrestd 22.05.8 answered, one job of two hosts.
    const JOBS_38: &str = include_str!("slurm_rest/jobs-v0.0.38.json");

    fn paths(versions: &[u32]) -> String {
        let path = |version| format!("\"/slurm/v0.0.{version}/jobs/\": {{}}");
        let paths: Vec<String> = versions.iter().map(path).collect();
        format!("{{\"paths\": {{\"/slurmdb/v0.0.44/jobs/\": {{}}, {}}}}}", paths.join(","))
    }

    #[test]
    fn the_newest_known_data_parser_is_used() {
        let choose = |versions: &[u32]| choose_path("/openapi/v3", paths(versions).as_bytes());
        assert_eq!(choose(&[38, 41, 40]).unwrap(), "/slurm/v0.0.41/jobs/");
        assert_eq!(choose(&[38, 99]).unwrap(), "/slurm/v0.0.38/jobs/");
        let error = choose(&[35, 99]).unwrap_err().to_string();
        assert!(error.contains("v0.0.35, v0.0.99") && error.contains("-d"), "{error}");
        assert!(matches!(choose_path("p", b"{}"), Err(SlurmRestError::Response { .. })));
    }

    #[test]
    fn running_jobs_of_a_real_answer_are_read() {
        let listing = parse_jobs("p", JOBS_38.as_bytes()).unwrap();
        let ListedRecords { records, problems } = listing.records(Some(8));
        assert_eq!((records.len(), problems.len()), (1, 0));
        let job = &records[0].job;
        assert_eq!(job.id, "slurm-1");
        assert_eq!(job.gpus, [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into());
        assert_eq!(job.flop_per_iteration, Some(1e12));
        assert_eq!(job.tenant.as_deref(), Some("root"));
        // Slurm counts no GPUs there.
        let ListedRecords { records, problems } = listing.records(None);
        assert_eq!((records.len(), problems.len()), (0, 0));
    }

    #[test]
    fn components_have_the_number_of_the_first_in_both_forms() {
        let hosts = |first: &str, second: &str| {
            let job = |number: u32, host: &str, leader: &str| {
                format!(
                    "{{\"job_id\": {number}, \"job_state\": [\"RUNNING\"], \"nodes\": \"{host}\", \
                     \"het_job_id\": {leader}, \"gres_detail\": [\"gpu:4(IDX:0-3)\", null]}}"
                )
            };
            let text = format!("{{\"jobs\": [{}, {}]}}", job(51, "a", first), job(52, "b", second));
            let listing = parse_jobs("p", text.as_bytes()).unwrap();
            let records = listing.records(None).records;
            let hosts = records.iter().map(|JobRecord { job, .. }| {
                let hosts: Vec<&str> = job.gpus.keys().map(String::as_str).collect();
                format!("{} {}", job.id, hosts.join(" "))
            });
            hosts.collect::<Vec<_>>()
        };
        let number =
            |set, number| format!("{{\"set\": {set}, \"infinite\": false, \"number\": {number}}}");
        let (set, unset) = (number(true, 51), number(false, 0));
        assert_eq!(hosts(&set, &set), ["slurm-51 a b"]);
        assert_eq!(hosts("51", "51"), ["slurm-51 a b"]);
        for none in [&unset, "0", "null", "\"\""] {
            assert_eq!(hosts(none, none), ["slurm-51 a", "slurm-52 b"], "{none}");
        }
    }

    #[test]
    fn states_are_texts_or_lists() {
        let is_running = |state: &str| {
            let text = format!("{{\"jobs\": [{{\"job_id\": 1, \"job_state\": {state}}}]}}");
            parse_jobs("p", text.as_bytes()).unwrap().is_running(1)
        };
        assert!(is_running("\"RUNNING\"") && is_running("[\"RUNNING\", \"CONFIGURING\"]"));
        assert!(!is_running("\"COMPLETING\"") && !is_running("[\"RUNNING\", \"COMPLETING\"]"));
        assert!(!is_running("[]") && !is_running("[\"PENDING\"]"));
    }

    #[test]
    fn an_error_of_slurm_is_not_an_empty_list() {
        let text =
            "{\"errors\": [{\"error\": \"Unable to contact slurm controller\"}], \"jobs\": []}";
        let error = parse_jobs("p", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("Unable to contact"), "{error}");
    }
}
