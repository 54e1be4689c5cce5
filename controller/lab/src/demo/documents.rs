//! The demo's scenario as documents, for networks other than the embedded one.

use std::path::Path;

use planner::{FlowDocument, Job, JobDocument, JobsDocument};
use serde::Serialize;
use topology::{Fabric, spec};

use super::scenario::DemoScenario;
use command_io::CommandError;

/// Writes `fabric.json` and `jobs.json` to a folder.
///
/// # Errors
/// They cannot be written.
pub(super) fn write_documents(scenario: &DemoScenario, folder: &Path) -> Result<(), CommandError> {
    let DemoScenario { fabric, jobs, .. } = scenario;
    let jobs = jobs.iter().map(|job| job_document(fabric, job)).collect();
    write_document(&folder.join("fabric.json"), &spec::explicit_document(fabric))?;
    write_document(&folder.join("jobs.json"), &JobsDocument { jobs })
}

fn write_document(file: &Path, document: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(document).map_err(CommandError::failed)?;
    std::fs::write(file, text).map_err(|error| CommandError::input(file.display(), error))
}

fn job_document(fabric: &Fabric, job: &Job) -> JobDocument {
    let flows = job.flows.iter().map(|flow| {
        let [(src, src_nic), (dst, dst_nic)] = [flow.src, flow.dst].map(|nic| {
            let nic = fabric.nic(nic);
            (fabric.host(nic.host).name.clone(), nic.index)
        });
        FlowDocument {
            src,
            dst,
            src_nic,
            dst_nic,
            bytes: flow.bytes,
            udp_src_port: flow.udp_src_port,
            src_gpu: flow.gpus.src(),
            dst_gpu: flow.gpus.dst(),
            overlap_from: flow.overlap_from,
        }
    });
    let gpus = job.gpus.iter();
    JobDocument {
        id: job.id.to_string(),
        model: job.model.clone(),
        gpus: gpus.map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus)).collect(),
        flop_per_iteration: Some(job.flop_per_iteration),
        compute_seconds: Some(job.compute_seconds),
        overlap_from: Some(job.overlap_from),
        flows: Some(flows.collect()),
        ..JobDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use topology::document::{self, DocumentFormat};

    use super::*;
    use crate::demo::calibration::CALIBRATED;

    #[test]
    fn a_written_scenario_reads_back_unchanged() {
        let scenario = DemoScenario::paper_testbed(CALIBRATED, 3).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write_documents(&scenario, folder.path()).unwrap();
        let text = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let fabric =
            spec::parse_fabric(&text("fabric.json"), DocumentFormat::Json, "fabric.json").unwrap();
        assert_eq!(fabric, scenario.fabric);
        let jobs: JobsDocument =
            document::parse_document(&text("jobs.json"), DocumentFormat::Json, "jobs.json")
                .unwrap();
        assert_eq!(jobs.resolve_jobs(&fabric, "jobs.json").unwrap().jobs, scenario.jobs);
    }
}
