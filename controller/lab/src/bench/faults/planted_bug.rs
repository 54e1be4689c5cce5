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
    /// It remembers what it wrote instead of reading the switch.
    RemembersTables,
    /// Every stream of it bids with the same election id.
    ReusesElectionIds,
    /// A stream bids when it opens and never again.
    BidsOnce,
    /// Once primary, it does not hear that another one is.
    DeafToLoss,
    /// It takes for granted that the switch runs the program.
    BelievesInProgram,
    /// It takes its lease for longer than etcd does.
    OutlivesItsLease,
    /// A change of policy that not every switch takes in time is told to be taken back, and is not.
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
