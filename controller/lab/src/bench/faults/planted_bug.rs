//! Bugs planted in a controller, to see whether the campaign finds them.

use clap::ValueEnum;

#[cfg(test)]
use super::fault_schedule::{FaultSchedule, FaultStep, LeadershipMode};
#[cfg(test)]
use super::lying_switch::SwitchLie;
#[cfg(test)]
use super::machine_phase::MachineStep;

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
    /// What it was about to write when its process was stopped is written with the election id of
    /// the leader at that time.
    WritesAsSuccessor,
    /// It does not write again to a disk that was full once.
    GivesUpOnDisk,
    /// It does not learn from switches which terms they have seen.
    ForgetsTerms,
    /// It goes on with a lease that etcd no longer has.
    KeepsLostLease,
    /// It takes a switch that runs the program of somebody else for one without a program.
    TakesProgramsForNone,
}

impl PlantedBug {
    /// All of them.
    #[cfg(test)]
    pub(super) const PLANTED: [Self; 19] = [
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
        Self::WritesAsSuccessor,
        Self::GivesUpOnDisk,
        Self::ForgetsTerms,
        Self::KeepsLostLease,
        Self::TakesProgramsForNone,
    ];

    /// Whether a schedule has anything that this bug could show in.
    #[cfg(test)]
    pub(super) fn may_show_in(self, schedule: &FaultSchedule) -> bool {
        let FaultSchedule { led, change, hostile, machines, .. } = schedule;
        let lies = |wanted: SwitchLie| {
            let mut steps = hostile.iter().flatten();
            steps.any(|(_, step)| matches!(step, FaultStep::Lie { lie, .. } if *lie == wanted))
        };
        let fails = |is_such: fn(&MachineStep) -> bool| {
            let mut steps = machines.iter().flatten();
            steps.any(|(_, step)| matches!(step, FaultStep::Machine(step) if is_such(step)))
        };
        match self {
            Self::StopsHalfWay => change.is_some(),
            Self::ReadsWithoutEnd => lies(SwitchLie::EndlessReads),
            Self::HearsOutFloods => lies(SwitchLie::FloodsStreams),
            Self::WaitsForLiars => lies(SwitchLie::Silent),
            Self::TrustsAcknowledgements | Self::BelievesReporters | Self::PreviewsWithoutQueue => {
                hostile.is_some()
            }
            Self::OutlivesItsLease | Self::KeepsLostLease => *led == LeadershipMode::Etcd,
            Self::TakesProgramsForNone => schedule.foreign.is_some(),
            Self::GivesUpOnDisk => {
                schedule.has_disks
                    && fails(|step| matches!(step, MachineStep::FillDisk { is_full: true, .. }))
            }
            Self::ForgetsTerms => {
                fails(|step| matches!(step, MachineStep::WipeEtcd | MachineStep::RestoreEtcd))
            }
            _ => true,
        }
    }
}
