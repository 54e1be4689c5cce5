//! The arguments of a simulation, and their conversion to a [`PaperExperiment`].

use simulator::{FabricFault, FaultParseError, SimulationError, SimulationExperiment};
use topology::{Fabric, Finding};

use super::outcome_csv::{self, CsvRun};
use command_io::CommandError;
use command_io::files;
use command_io::{InputDocumentArgs, InputDocuments};

/// What to simulate under each scheduler.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExperimentArgs {
    #[command(flatten)]
    documents: InputDocumentArgs,
    /// Time to simulate
    #[arg(long, default_value_t = 600.0)]
    pub(crate) seconds: f64,
    /// Priority levels of the switches, instead of the policy's
    #[arg(long, value_name = "K")]
    pub(crate) levels: Option<u8>,
    /// A cable or switch fails at a time, such as leaf1-spine1@10s; may be repeated
    #[arg(long, value_name = "PART@TIME")]
    pub(crate) fail: Vec<String>,
    /// A cable or switch works again; may be repeated
    #[arg(long, value_name = "PART@TIME")]
    pub(crate) repair: Vec<String>,
    /// Also write a row for each job and scheduler to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
}

impl ExperimentArgs {
    /// The experiment, and what is odd about its input.
    pub(crate) fn read_experiment(
        &self,
    ) -> Result<(SimulationExperiment, Vec<Finding>), CommandError> {
        let InputDocuments { input, policy, findings } = self.documents.read_with(|document| {
            document.levels = self.levels.or(document.levels);
        })?;
        let experiment = SimulationExperiment {
            faults: self.parse_faults(&input.fabric)?,
            input,
            policy,
            seconds: self.seconds,
            views: Vec::new(),
        };
        Ok((experiment, findings))
    }

    /// Writes the table that is asked for.
    pub(crate) fn write_csv(&self, runs: &[CsvRun<'_>]) -> Result<(), CommandError> {
        files::write_requested(self.csv.as_deref(), || outcome_csv::render_csv(runs))
    }

    /// Why the experiment was not simulated, by the argument at fault.
    pub(crate) fn simulation_error(&self, error: &SimulationError) -> CommandError {
        match error {
            SimulationError::Horizon(_) => CommandError::input("--seconds", error),
            SimulationError::TooMany { .. } => CommandError::input(&self.documents.jobs, error),
            SimulationError::Job { source, .. } => {
                CommandError::input(&self.documents.jobs, format_args!("{error}: {source}"))
            }
            SimulationError::Scheduler(_) | SimulationError::Engine(_) => {
                CommandError::failed(error)
            }
        }
    }

    fn parse_faults(&self, fabric: &Fabric) -> Result<Vec<FabricFault>, CommandError> {
        let failures =
            parse_all("--fail", &self.fail, |text| FabricFault::parse_failure(fabric, text))?;
        let repairs =
            parse_all("--repair", &self.repair, |text| FabricFault::parse_repair(fabric, text))?;
        Ok([failures, repairs].concat())
    }
}

fn parse_all(
    option: &str,
    texts: &[String],
    parse: impl Fn(&str) -> Result<FabricFault, FaultParseError>,
) -> Result<Vec<FabricFault>, CommandError> {
    let texts = texts.iter();
    texts.map(|text| parse(text).map_err(|error| CommandError::input(option, error))).collect()
}
