//! The results of all experiments, as `crux reproduce NAME --format json` printed them. They are
//! stored beside the simulator: pages and figures can be had without a run of minutes.

use std::fs;
use std::path::Path;

use super::report::PaperReproduction;
use command_io::CommandError;

/// Where results are stored in the source tree.
pub(super) const RESULTS: &str = "controller/simulator/benches/results";

/// The results of an experiment that are stored in this source tree.
pub(super) fn read_stored(root: &str, experiment: &str) -> Result<PaperReproduction, CommandError> {
    let path = Path::new(root).join(RESULTS).join(format!("{experiment}.json"));
    let name = path.to_string_lossy();
    let text = fs::read_to_string(&path).map_err(|error| CommandError::input(&*name, error))?;
    serde_json::from_str(&text).map_err(|error| CommandError::input(&*name, error))
}
