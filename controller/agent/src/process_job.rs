//! Which job of a scheduler a process or a GPU belongs to.
//!
//! Three sources, in this order: the cgroup of the process, which the process cannot choose; its
//! environment, which Slurm sets and a process may change; and a folder with a file for each GPU
//! that holds job ids, which a prolog writes (the convention of dcgm-exporter,
//! `--hpc-job-mapping-dir`). Parsers are pure functions of text; every read has a limit of bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;

/// Bytes that are read of one file: an environment may be long, the rest is a few lines.
const MAX_FILE: u64 = 1 << 20;
/// Files of a folder of GPUs that are read.
const MAX_GPUS: usize = 256;
/// Jobs of one GPU that are kept.
const MAX_JOBS_OF_GPU: usize = 64;

/// A job of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "scheduler", content = "job", rename_all = "snake_case")]
pub enum SchedulerJob {
    /// Slurm's number of the job.
    Slurm(u64),
    /// The UID of the pod.
    KubernetesPod(String),
}

/// The job of a process: by its cgroup, then by its environment. None if neither names one, the
/// process has ended, or it belongs to another user.
pub fn find_process_job(proc: &Path, pid: u32) -> Option<SchedulerJob> {
    let folder = proc.join(pid.to_string());
    let cgroup = read_limited(&folder.join("cgroup")).ok();
    let by_cgroup = cgroup.and_then(|text| parse_cgroup(&String::from_utf8_lossy(&text)));
    by_cgroup.or_else(|| parse_environment(&read_limited(&folder.join("environ")).ok()?))
}

/// The job that `/proc/PID/cgroup` names, in version 1 or 2.
///
/// Each line is `NUMBER:CONTROLLERS:PATH`. Slurm's paths contain `job_NUMBER` below `slurm`,
/// `slurm_NODE` or `slurmstepd.scope`; those of a pod contain its UID behind `pod`, with `_` for
/// `-` where systemd manages the cgroups.
pub fn parse_cgroup(text: &str) -> Option<SchedulerJob> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(|path| slurm_job(path).or_else(|| kubernetes_pod(path))).next()
}

/// The job that the environment of a process names: `SLURM_JOB_ID=NUMBER` between zero bytes.
pub fn parse_environment(bytes: &[u8]) -> Option<SchedulerJob> {
    let mut variables = bytes.split(|byte| *byte == 0);
    let number = variables.find_map(|variable| variable.strip_prefix(b"SLURM_JOB_ID="))?;
    parse_number(std::str::from_utf8(number).ok()?).map(SchedulerJob::Slurm)
}

/// The job ids in a file of the folder of GPUs: separated by white space, at most 64.
pub fn parse_gpu_jobs(text: &str) -> Vec<String> {
    text.split_whitespace().take(MAX_JOBS_OF_GPU).map(str::to_owned).collect()
}

/// The jobs of each GPU, by name of its file: an index, a UUID, or `INDEX.INSTANCE` for a part of a
/// GPU. Files without a job are left out.
///
/// # Errors
/// The folder cannot be listed.
pub fn read_gpu_jobs(folder: &Path) -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut jobs = BTreeMap::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_GPUS).flatten() {
        let Ok(gpu) = entry.file_name().into_string() else { continue };
        let Ok(text) = read_limited(&entry.path()) else { continue };
        let ids = parse_gpu_jobs(&String::from_utf8_lossy(&text));
        if !ids.is_empty() {
            jobs.insert(gpu, ids);
        }
    }
    Ok(jobs)
}

fn slurm_job(path: &str) -> Option<SchedulerJob> {
    let mut parts = path.split('/');
    parts.find(|part| {
        *part == "slurm" || part.starts_with("slurm_") || part.ends_with("slurmstepd.scope")
    })?;
    parts.find_map(|part| parse_number(part.strip_prefix("job_")?)).map(SchedulerJob::Slurm)
}

fn kubernetes_pod(path: &str) -> Option<SchedulerJob> {
    let mut parts = path.split('/');
    parts.find(|part| part.starts_with("kubepods"))?;
    parts.chain(path.split('/')).find_map(pod_uid).map(SchedulerJob::KubernetesPod)
}

/// The UID in `podUID` or `kubepods-burstable-podUID.slice`.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let (_, uid) = name.rsplit_once("pod")?;
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() == 36 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uid.then_some(uid)
}

fn parse_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn read_limited(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "2dd1b5c4-1f7e-4b7a-9f0e-8a1c5f6b7d8e";

    #[test]
    fn cgroups_of_slurm_name_the_job() {
        let paths = [
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n",
            "0::/system.slice/node1_slurmstepd.scope/job_1234/step_batch/slurm\n",
            "11:memory:/user.slice\n9:devices:/slurm/uid_1000/job_1234/step_batch\n",
            "4:cpuset:/slurm_node1/uid_1000/job_1234/step_0/task_7\n",
        ];
        for path in paths {
            assert_eq!(parse_cgroup(path), Some(SchedulerJob::Slurm(1234)), "{path}");
        }
    }

    #[test]
    fn cgroups_of_pods_name_the_pod() {
        let flat = UID.replace('-', "_");
        let container = "cri-containerd-0f3a.scope";
        let paths = [
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/\
                 kubepods-burstable-pod{flat}.slice/{container}"
            ),
            format!("0::/kubepods.slice/kubepods-pod{flat}.slice/{container}"),
            format!("12:pids:/kubepods/besteffort/pod{UID}/0f3a"),
            format!("1:name=systemd:/kubepods/pod{UID}/0f3a"),
        ];
        for path in paths {
            let found = parse_cgroup(&path);
            assert_eq!(found, Some(SchedulerJob::KubernetesPod(UID.to_owned())), "{path}");
        }
    }

    #[test]
    fn other_cgroups_name_none() {
        let paths = [
            "0::/\n",
            "0::/user.slice/user-1000.slice/session-2.scope",
            "0::/home/job_12/step_0",
            "0::/slurm/uid_1/job_/step_0",
            "0::/slurm/uid_1/job_12x/step_0",
            "0::/kubepods/podcast/1",
            "nothing",
        ];
        for path in paths {
            assert_eq!(parse_cgroup(path), None, "{path}");
        }
    }

    #[test]
    fn the_environment_counts_where_the_cgroup_names_no_job() {
        let proc = tempfile::tempdir().unwrap();
        let write = |pid: &str, file: &str, text: &str| {
            let folder = proc.path().join(pid);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        };
        write("10", "cgroup", "0::/user.slice\n");
        write("10", "environ", "PATH=/bin\0SLURM_JOB_ID=77\0SLURM_JOB_ID=78\0");
        write("11", "cgroup", "0::/slurm/uid_1/job_5/step_0\n");
        write("11", "environ", "SLURM_JOB_ID=77\0");
        write("12", "environ", "MY_SLURM_JOB_ID=77\0SLURM_JOB_IDS=3\0");
        let job = |pid| find_process_job(proc.path(), pid);
        assert_eq!(job(10), Some(SchedulerJob::Slurm(77)));
        assert_eq!(job(11), Some(SchedulerJob::Slurm(5)));
        assert_eq!((job(12), job(13)), (None, None));
        assert_eq!(find_process_job(Path::new("/proc"), 0), None);
    }

    #[test]
    fn files_of_gpus_list_jobs() {
        let folder = tempfile::tempdir().unwrap();
        for (gpu, text) in [("0", "1234\n"), ("1", "1234\n1300\n"), ("2", "\n"), ("GPU-6a", "9")] {
            std::fs::write(folder.path().join(gpu), text).unwrap();
        }
        std::fs::create_dir(folder.path().join("3")).unwrap();
        let jobs = read_gpu_jobs(folder.path()).unwrap();
        let rows: Vec<(&str, String)> =
            jobs.iter().map(|(gpu, ids)| (gpu.as_str(), ids.join(" "))).collect();
        let expected = [("0", "1234"), ("1", "1234 1300"), ("GPU-6a", "9")];
        assert_eq!(rows, expected.map(|(gpu, ids)| (gpu, ids.to_owned())));
        assert!(read_gpu_jobs(&folder.path().join("absent")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_does_harm(
            text in "\\PC{0,200}",
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _any = parse_cgroup(&text);
            let _any = parse_cgroup(&format!("0::/kubepods/{text}"));
            let _any = parse_cgroup(&format!("0::/slurm/job_{text}"));
            let _any = parse_environment(&bytes);
            prop_assert!(parse_gpu_jobs(&text).len() <= MAX_JOBS_OF_GPU);
        }
    }
}
