//! `crux bench`: what the system promises, tried on this machine.

mod contention;
mod decisions;
mod fairness;
mod families;
mod faults;
mod forwarding;
mod packets;
mod parallel_cases;
mod queues;
mod service_bound;
mod slow_links;
mod soak;

use clap::Subcommand;

use command_io::CommandError;

/// Test on this machine what the system promises.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    Contention(contention::ContentionArgs),
    Decisions(decisions::DecisionsArgs),
    Fairness(fairness::FairnessArgs),
    Families(families::FamilyArgs),
    Faults(faults::FaultsArgs),
    Forwarding(forwarding::ForwardingArgs),
    Packets(packets::PacketsArgs),
    Queues(queues::QueuesArgs),
    ServiceBound(service_bound::ServiceBoundArgs),
    SlowLinks(slow_links::SlowLinksArgs),
    Soak(soak::SoakArgs),
}

pub(crate) fn run_bench(command: &BenchCommand) -> Result<(), CommandError> {
    match command {
        BenchCommand::Contention(args) => contention::run_contention(args),
        BenchCommand::Decisions(args) => decisions::run_decisions(args),
        BenchCommand::Fairness(args) => fairness::run_fairness(args),
        BenchCommand::Families(args) => families::run_families(args),
        BenchCommand::Faults(args) => faults::run_faults(args),
        BenchCommand::Forwarding(args) => forwarding::run_forwarding(args),
        BenchCommand::Packets(args) => packets::run_packets(args),
        BenchCommand::Queues(args) => queues::run_queues(args),
        BenchCommand::ServiceBound(args) => service_bound::run_service_bound(args),
        BenchCommand::SlowLinks(args) => slow_links::run_slow_links(args),
        BenchCommand::Soak(args) => soak::run_soak(args),
    }
}
