//! Bugs planted in a controller, to see whether the campaign finds them.

use clap::ValueEnum;

/// A mistake that a controller could make, made at the seam to its switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum PlantedBug {
    /// The controller as it is.
    #[default]
    None,
    /// It never takes an entry away.
    ForgetsDeletions,
    /// It uses the tables that it wrote instead of reading the switch.
    RemembersTables,
    /// Every stream of it bids with the same election id.
    ReusesElectionIds,
    /// A stream bids when it opens and never again.
    BidsOnce,
    /// A primary ignores the notice that another controller is primary.
    DeafToLoss,
    /// It takes for granted that the switch runs the program.
    BelievesInProgram,
    /// It takes its lease for longer than etcd does.
    OutlivesItsLease,
    /// A policy change that misses its deadline is reported as rolled back, but stays in force.
    StopsHalfWay,
}

impl PlantedBug {
    /// All of them.
    #[cfg(test)]
    pub(super) const PLANTED: [Self; 8] = [
        Self::ForgetsDeletions,
        Self::RemembersTables,
        Self::ReusesElectionIds,
        Self::BidsOnce,
        Self::DeafToLoss,
        Self::BelievesInProgram,
        Self::OutlivesItsLease,
        Self::StopsHalfWay,
    ];
}
