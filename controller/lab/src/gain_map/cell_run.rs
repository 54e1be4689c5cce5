//! What every scheduler makes of a cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use simulator::{HashedScheduler, Scheduler, SwitchHash, simulate_experiment};

use super::cell::{HASHES, MapCell};
use command_io::CommandError;

/// The schedulers of the map.
pub(super) const SCHEDULERS: [Scheduler; 10] = [
    Scheduler::Ecmp,
    Scheduler::Spray,
    Scheduler::Sincronia,
    Scheduler::Varys,
    Scheduler::VarysMadd,
    Scheduler::Taccl,
    Scheduler::TacclJob,
    Scheduler::Cassini,
    Scheduler::CruxPa,
    Scheduler::Crux,
];

/// Those that choose paths themselves: the hash of switches changes nothing.
const OWN_PATHS: [Scheduler; 4] =
    [Scheduler::Spray, Scheduler::Taccl, Scheduler::TacclJob, Scheduler::Crux];

/// One cell with one seed, as a line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellResult {
    /// Its number among [`MapCell::all`].
    pub(super) cell: usize,
    pub(super) seed: u64,
    /// By hash of the switches, in the order of [`HASHES`].
    pub(super) hashes: [HashResult; 2],
}

/// GPU utilisation by scheduler in per cent, to two digits after the point.
pub(super) type HashResult = BTreeMap<String, f64>;

impl CellResult {
    /// Simulates a cell with every scheduler.
    pub(super) fn run(number: usize, cell: &MapCell, seed: u64) -> Result<Self, CommandError> {
        let experiment = cell.experiment(seed)?;
        let utilisation = |scheduler: Scheduler, hash: SwitchHash| {
            let hashed = HashedScheduler { scheduler, hash };
            let simulated = simulate_experiment(&experiment, hashed, &mut |_| {});
            let simulated = simulated.map_err(CommandError::failed)?;
            Ok::<_, CommandError>((simulated.outcome.gpu_utilization * 1e4).round() / 100.0)
        };
        let mut hashes = [HashResult::new(), HashResult::new()];
        for scheduler in SCHEDULERS {
            let [independent, alike] = HASHES;
            let known = utilisation(scheduler, independent)?;
            let polarised = match OWN_PATHS.contains(&scheduler) {
                true => known,
                false => utilisation(scheduler, alike)?,
            };
            for (result, value) in hashes.iter_mut().zip([known, polarised]) {
                result.insert(scheduler.name().to_owned(), value);
            }
        }
        Ok(Self { cell: number, seed, hashes })
    }
}
