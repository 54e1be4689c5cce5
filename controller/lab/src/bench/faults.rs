//! `crux bench faults`: controllers and switches under schedules of faults, drawn from seeds.
//!
//! Each schedule runs in a testbed of its own on a virtual clock. [`fake_switch`] and [`fake_etcd`]
//! stand for the devices, [`fault_testbed`] holds them and the random streams, [`fake_network`]
//! carries messages, [`fault_schedule`] draws what fails and when, [`scenario_run`] executes it on
//! controllers of [`controller_setup`] and checks the final state, [`policy_change`] applies a policy
//! meanwhile. In [`hostile_phase`] switches lie ([`lying_switch`]) and clients attack
//! ([`hostile_client`]), in [`machine_phase`] processes, clocks, disks ([`fake_disk`]) and etcd fail,
//! in [`foreign_primary`] a switch belongs to somebody else.
//! The decision: the controllers are the real ones, and only what they would reach over gRPC, their
//! clock and their disk are replaced, at the traits that the controller has for them. A seed always
//! gives the same run, so a failing one can be repeated alone.

mod controller_setup;
mod fake_disk;
mod fake_etcd;
mod fake_network;
mod fake_switch;
mod fault_schedule;
mod fault_testbed;
mod foreign_primary;
mod hostile_client;
mod hostile_phase;
mod lying_switch;
mod machine_phase;
mod planted_bug;
mod policy_change;
mod scenario_run;

use serde::Serialize;

use self::planted_bug::PlantedBug;
use super::parallel_cases;
use command_io::CommandError;
use command_io::output;

/// Run controllers through schedules of faults and count those after which switches differ from the
/// plan.
///
/// Refused writes, lost, late and repeated messages, dropped streams, restarts of switches and
/// controllers, partitions, flapping cables, entries of others, plan changes in between, stopped
/// processes, wrong clocks, full and damaged disks, an etcd that is lost or restored, and a switch
/// that is somebody else's. Exit
/// status 1 when a schedule diverges.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench faults --schedules 10000
  crux bench faults --schedules 1 --seed 4711 --explain")]
pub(crate) struct FaultsArgs {
    /// Schedules to run
    #[arg(long, default_value_t = 1_000)]
    schedules: u32,
    /// Seed of the first; the others count up from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the steps and the result of each schedule on standard error
    #[arg(long)]
    explain: bool,
    /// Plant a bug in the controllers, to see that it is found
    #[arg(long, value_enum, default_value_t)]
    plant: PlantedBug,
}

/// The result as it is printed.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct CampaignOutcome {
    /// Schedules that were run.
    schedules: usize,
    /// Seeds of the schedules that violated an invariant or did not converge, ascending.
    divergent: Vec<u64>,
}

pub(crate) fn run_faults(args: &FaultsArgs) -> Result<(), CommandError> {
    let outcome = run_campaign(args)?;
    output::print_json(&outcome)?;
    match outcome.divergent.len() {
        0 => Ok(()),
        1 => Err(CommandError::Failed("1 schedule diverges".to_owned())),
        divergent => Err(CommandError::Failed(format!("{divergent} schedules diverge"))),
    }
}

/// Runs all schedules. They share no state, so the number of threads does not affect the result.
fn run_campaign(args: &FaultsArgs) -> Result<CampaignOutcome, CommandError> {
    let found = parallel_cases::run_cases(args.schedules, |number| {
        let seed = args.seed.saturating_add(number.into());
        schedule_diverges(seed, args.plant, args.explain).then_some(seed)
    })?;
    let (schedules, divergent) = (found.len(), found.into_iter().flatten().collect());
    Ok(CampaignOutcome { schedules, divergent })
}

/// Whether a schedule violates an invariant or does not converge; so does a controller that panics.
fn schedule_diverges(seed: u64, planted_bug: PlantedBug, explain: bool) -> bool {
    let ended = std::panic::catch_unwind(|| scenario_run::run_schedule(seed, planted_bug))
        .unwrap_or_else(|_| Err("panicked".to_owned()));
    if explain {
        eprint!("{}", fault_schedule::FaultSchedule::from_seed(seed));
        match &ended {
            Ok(trace) => eprintln!("seed {seed}: converged, trace {trace:016x}"),
            Err(why) => eprintln!("seed {seed}: {why}"),
        }
    }
    ended.is_err()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::machine_phase::MachineStep;
    use super::*;

    fn run(schedules: u32, plant: PlantedBug) -> CampaignOutcome {
        let args = FaultsArgs { schedules, seed: 1, explain: false, plant };
        run_campaign(&args).unwrap()
    }

    #[test]
    fn controllers_end_with_every_switch_as_planned() {
        let none = CampaignOutcome { schedules: 32, divergent: Vec::new() };
        assert_eq!(run(32, PlantedBug::None), none);
    }

    /// 559: etcd was lost twice and elected a controller at the revision of an earlier election.
    /// 4639: a leader read back what it had stored before its latest message. 9617: a revision that
    /// could not be stored was not stored as soon as etcd was reachable again. 75876: a leader that
    /// was cut off from etcd while it had a successor was given the lead back by a snapshot, and
    /// never bid above the term of that successor. 301978: etcd confirmed a policy without an answer, and
    /// was lost before it could store the rollback, which its answer said.
    #[test]
    fn seeds_that_found_something_end_well() {
        let seeds = [559, 4639, 9617, 75876, 301978];
        let diverging = seeds.map(|seed| schedule_diverges(seed, PlantedBug::None, false));
        assert_eq!(diverging, [false; 5]);
    }

    #[test]
    fn a_leader_that_most_switches_do_not_answer_leaves_the_lead() {
        for seed in 1..=8 {
            let handed_over = machine_phase::run_handover(seed);
            assert_eq!(handed_over, Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_member_that_takes_over_moves_no_flow_and_writes_no_entry() {
        for seed in 1..=8 {
            assert_eq!(machine_phase::run_takeovers(seed, 4), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn an_etcd_that_was_lost_or_restored_has_a_leader_within_ten_seconds() {
        for loss in [MachineStep::WipeEtcd, MachineStep::RestoreEtcd] {
            let of = |seed| machine_phase::run_etcd_loss(seed, loss).unwrap();
            let longest = (1..=8).map(of).max().unwrap();
            println!("{loss:?}: a leader after {longest:?} at most");
            let limit = Duration::from_secs(10);
            assert!(!longest.is_zero() && longest < limit, "{loss:?}: {longest:?}");
        }
    }

    /// Each of `bugs` makes some schedule diverge.
    fn check_that_bugs_show(bugs: &[PlantedBug]) {
        for bug in bugs {
            // Where the search begins: schedules that show some bugs are rare, and in others what a
            // bug keeps from converging takes its time.
            let first = match bug {
                PlantedBug::ReusesElectionIds => 2,
                PlantedBug::ForgetsDeletions | PlantedBug::RemembersTables => 4,
                PlantedBug::TrustsAcknowledgements => 7,
                PlantedBug::ReadsWithoutEnd => 8,
                PlantedBug::WritesAsSuccessor | PlantedBug::StopsHalfWay => 16,
                PlantedBug::KeepsLostLease => 23,
                PlantedBug::WaitsForLiars => 30,
                PlantedBug::HearsOutFloods => 42,
                PlantedBug::ForgetsTerms => 51,
                PlantedBug::GivesUpOnDisk => 126,
                _ => 1,
            };
            let shows = |seed: &u64| {
                bug.may_show_in(&fault_schedule::FaultSchedule::from_seed(*seed))
                    && schedule_diverges(*seed, *bug, false)
            };
            let found = (first..first + 240).find(shows);
            println!("{bug:?}: schedule {}", found.unwrap_or_default());
            assert!(found.is_some(), "{bug:?} goes unnoticed");
        }
    }

    #[test]
    fn a_bug_that_is_planted_is_found() {
        check_that_bugs_show(&PlantedBug::PLANTED[..8]);
    }

    #[test]
    fn a_bug_beside_hostile_peers_and_lost_machines_is_found() {
        check_that_bugs_show(&PlantedBug::PLANTED[8..]);
    }

    #[test]
    fn a_seed_always_gives_the_same_run() {
        for seed in 1..=3 {
            let traces = [0, 1].map(|_| scenario_run::run_schedule(seed, PlantedBug::None));
            assert_eq!(traces[0], traces[1], "seed {seed}");
        }
    }
}
