//! The demo's scenario as documents, for networks other than the embedded one.

use std::path::Path;

use controller::store::jobs_document;
use serde::Serialize;
use topology::spec;

use super::scenario::DemoScenario;
use command_io::CommandError;

/// Writes `fabric.json` and `jobs.json` to a folder.
///
/// # Errors
/// They cannot be written.
pub(super) fn write_documents(scenario: &DemoScenario, folder: &Path) -> Result<(), CommandError> {
    let DemoScenario { fabric, jobs, .. } = scenario;
    write_document(&folder.join("fabric.json"), &spec::explicit_document(fabric))?;
    write_document(&folder.join("jobs.json"), &jobs_document(fabric, jobs))
}

fn write_document(file: &Path, document: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(document).map_err(CommandError::failed)?;
    std::fs::write(file, text).map_err(|error| CommandError::input(file.display(), error))
}

#[cfg(test)]
mod tests {
    use planner::JobsDocument;
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
