//! The arguments that say what to simulate, and their way to an [`Experiment`].

use simulator::{Experiment, Fault, FaultError, SimulationError};
use topology::{Fabric, Finding};

use crate::failure::Failure;
use crate::input::{InputArgs, Known};

/// What to simulate, whoever schedules.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExperimentArgs {
    #[command(flatten)]
    documents: InputArgs,
    /// Time to simulate
    #[arg(long, default_value_t = 600.0)]
    pub(crate) seconds: f64,
    /// Classes of the switches, instead of the policy's
    #[arg(long, value_name = "K")]
    pub(crate) levels: Option<u8>,
    /// A cable or switch fails at a time, such as leaf1-spine1@10s; may be repeated
    #[arg(long, value_name = "PART@TIME")]
    pub(crate) fail: Vec<String>,
    /// A cable or switch works again; may be repeated
    #[arg(long, value_name = "PART@TIME")]
    pub(crate) repair: Vec<String>,
}

impl ExperimentArgs {
    /// The experiment, and what is odd about its input.
    pub(crate) fn read(&self) -> Result<(Experiment, Vec<Finding>), Failure> {
        let Known {
            input,
            policy,
            findings,
        } = self.documents.read_with(|document| {
            document.levels = self.levels.unwrap_or(document.levels);
        })?;
        let experiment = Experiment {
            faults: self.faults(&input.fabric)?,
            input,
            policy,
            seconds: self.seconds,
            views: Vec::new(),
        };
        Ok((experiment, findings))
    }

    /// Why the experiment was not simulated, by the argument at fault.
    pub(crate) fn failure(&self, error: &SimulationError) -> Failure {
        match error {
            SimulationError::Horizon(_) => Failure::input("--seconds", error),
            SimulationError::TooMany { .. } => Failure::input(&self.documents.jobs, error),
            SimulationError::Job { source, .. } => {
                Failure::input(&self.documents.jobs, format_args!("{error}: {source}"))
            }
            SimulationError::Engine(_) => Failure::work(error),
        }
    }

    fn faults(&self, fabric: &Fabric) -> Result<Vec<Fault>, Failure> {
        let failures = parsed("--fail", &self.fail, |text| Fault::failure(fabric, text))?;
        let repairs = parsed("--repair", &self.repair, |text| Fault::repair(fabric, text))?;
        Ok([failures, repairs].concat())
    }
}

fn parsed(
    option: &str,
    texts: &[String],
    parse: impl Fn(&str) -> Result<Fault, FaultError>,
) -> Result<Vec<Fault>, Failure> {
    let texts = texts.iter();
    texts
        .map(|text| parse(text).map_err(|error| Failure::input(option, error)))
        .collect()
}
