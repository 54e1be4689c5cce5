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
    /// It collects whatever a switch returns to a read.
    ReadsWithoutEnd,
    /// It discards errors on a stream before they are counted.
    HearsOutFloods,
    /// It calls one switch at a time, and waits for an answer without a deadline.
    WaitsForLiars,
    /// It takes updates that a switch acknowledged for written, without reading them back.
    TrustsAcknowledgements,
    /// It plans for reported jobs without checking them.
    BelievesReporters,
    /// Every call of a client has a queue of previews of its own.
    PreviewsWithoutQueue,
    /// A leader takes a follower that it heard once for one that follows for ever.
    FollowedForEver,
}

impl PlantedBug {
    /// All of them.
    #[cfg(test)]
    pub(super) const PLANTED: [Self; 15] = [
        Self::ForgetsDeletions,
        Self::RemembersTables,
        Self::ReusesElectionIds,
        Self::BidsOnce,
        Self::DeafToLoss,
        Self::BelievesInProgram,
        Self::OutlivesItsLease,
        Self::StopsHalfWay,
        Self::ReadsWithoutEnd,
        Self::HearsOutFloods,
        Self::WaitsForLiars,
        Self::TrustsAcknowledgements,
        Self::BelievesReporters,
        Self::PreviewsWithoutQueue,
        Self::FollowedForEver,
    ];
}
