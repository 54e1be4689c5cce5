//! What the controller promises, measured on embedded switches over gRPC on loopback.
//!
//! `cargo bench -p controller --bench loopback [-- CASE...]` prints one line for each figure; what
//! it printed is kept in `controller/daemon/benches/results/raw.tar.gz`. Each case is a module:
//! [`apply_start`], [`repair`], [`gnmi`], [`takeover`], [`policy`], [`writes`], [`report_ingest`],
//! [`events_since`], [`job_events`], [`bounds`], [`lying`], [`scale`]. The decision: the whole
//! controller is measured, from its public interface, and where a rate is compared with another
//! one, both are taken in turn in one run.

mod attack;
mod bare;
mod bmv2;
mod bounds;
#[path = "../../../planner/examples/scale/cluster.rs"]
mod cluster;
mod events;
mod fleet;
mod gnmi;
mod job_events;
mod lab;
#[path = "../../tests/sessions/liar.rs"]
mod liar;
#[path = "../../tests/sessions/line_counter.rs"]
mod line_counter;
mod lying;
mod policy;
mod protection;
mod repair;
#[path = "../../../planner/examples/scale/ring_job.rs"]
mod ring_job;
mod samples;
mod scale;
mod serving_process;
mod start;
mod takeover;
mod telemetry;
mod writes;

use fleet::FleetKind;
use protection::ConnectionSecurity;
use std::error::Error;
use std::time::Duration;

/// Why a case cannot be measured.
type Failed = Box<dyn Error + Send + Sync>;

/// What can be measured, in this order.
const CASES: [&str; 16] = [
    "start",
    "repair",
    "port-repair",
    "gnmi-repair",
    "takeover",
    "policy",
    "writes",
    "secured-writes",
    "telemetry",
    "secured-telemetry",
    "events",
    "job-events",
    "bounds",
    "lying",
    "wide",
    "thousand",
];

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let fleet = fleet::FLEETS.iter().find(|(name, _)| arguments.iter().any(|a| a == name));
    if let Some((_, kind)) = fleet {
        return runtime.block_on(fleet::serve(*kind));
    }
    if arguments.iter().any(|argument| argument == lying::SERVE_LIARS) {
        return runtime.block_on(lying::serve());
    }
    let served = writes::SERVE_LEAF.iter().find(|(name, _)| arguments.iter().any(|a| a == name));
    if let Some((_, protection)) = served {
        return runtime.block_on(writes::serve(*protection));
    }
    if arguments.iter().any(|argument| argument == attack::ATTACK) {
        return runtime.block_on(attack::attack(&arguments));
    }
    // Cargo says so when it measures; as a test there is nothing to do.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("load average before: {}", load()?);
    let named: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    runtime.block_on(measure_cases(&named))?;
    println!("load average after: {}", load()?);
    Ok(())
}

/// Measures the cases with these names, or all.
async fn measure_cases(named: &[&str]) -> Result<(), Failed> {
    if let Some(unknown) = named.iter().find(|name| !CASES.contains(name)) {
        return Err(format!("there is no case `{unknown}`; there are {}", CASES.join(", ")).into());
    }
    for case in CASES.into_iter().filter(|case| named.is_empty() || named.contains(case)) {
        measure_case(case).await?;
    }
    Ok(())
}

async fn measure_case(case: &str) -> Result<(), Failed> {
    match case {
        "start" => start::measure().await,
        "repair" => repair::measure().await,
        "port-repair" => repair::measure_ports().await,
        "gnmi-repair" => gnmi::measure().await,
        "takeover" => takeover::measure().await,
        "policy" => policy::measure().await,
        "writes" => writes::measure(ConnectionSecurity::Clear).await,
        "secured-writes" => writes::measure(ConnectionSecurity::Secured).await,
        "telemetry" => telemetry::measure(ConnectionSecurity::Clear).await,
        "secured-telemetry" => telemetry::measure(ConnectionSecurity::Secured).await,
        "events" => events::measure().await,
        "job-events" => job_events::measure(),
        "bounds" => bounds::measure().await,
        "lying" => lying::measure().await,
        "wide" => scale::measure(FleetKind::Wide).await,
        "thousand" => scale::measure(FleetKind::Thousand).await,
        other => unreachable!("{other} is none of CASES"),
    }
}

/// Processes that want a processor, averaged over 1, 5 and 15 minutes.
fn load() -> Result<String, Failed> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    Ok(averages.join(" "))
}
