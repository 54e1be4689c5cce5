//! What the controller promises, measured on embedded switches over gRPC on loopback.
//!
//! `cargo bench -p controller --bench loopback [-- CASE...]` prints one line for each figure; what
//! it printed is kept in `controller/daemon/benches/results/`. Each case is a module:
//! [`apply_start`], [`repair`], [`takeover`], [`policy`], [`writes`], [`report_ingest`],
//! [`events_since`], [`bounds`], [`lying`]. The decision: the whole controller is measured, from
//! its public interface, and where a rate is compared with another one, both are taken in turn in
//! one run.

mod attack;
mod bare;
mod bmv2;
mod bounds;
mod events;
mod fleet;
mod lab;
#[path = "../../tests/sessions/liar.rs"]
mod liar;
#[path = "../../tests/sessions/line_counter.rs"]
mod line_counter;
mod lying;
mod policy;
mod protection;
mod repair;
mod samples;
mod serving_process;
mod start;
mod takeover;
mod telemetry;
mod writes;

use protection::ConnectionSecurity;
use std::error::Error;
use std::time::Duration;

/// Why a case cannot be measured.
type Failed = Box<dyn Error + Send + Sync>;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if arguments.iter().any(|argument| argument == fleet::SERVE_FLEET) {
        return runtime.block_on(fleet::serve());
    }
    if arguments.iter().any(|argument| argument == lying::SERVE_LIARS) {
        return runtime.block_on(lying::serve());
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
    let is_asked = |case: &str| named.is_empty() || named.contains(&case);
    if is_asked("start") {
        start::measure().await?;
    }
    if is_asked("repair") {
        repair::measure().await?;
    }
    if is_asked("takeover") {
        takeover::measure().await?;
    }
    if is_asked("policy") {
        policy::measure().await?;
    }
    if is_asked("writes") {
        writes::measure(ConnectionSecurity::Clear).await?;
    }
    if is_asked("secured-writes") {
        writes::measure(ConnectionSecurity::Secured).await?;
    }
    if is_asked("telemetry") {
        telemetry::measure(ConnectionSecurity::Clear).await?;
    }
    if is_asked("secured-telemetry") {
        telemetry::measure(ConnectionSecurity::Secured).await?;
    }
    if is_asked("events") {
        events::measure().await?;
    }
    if is_asked("memory") {
        telemetry::watch_memory().await?;
    }
    if is_asked("long-names") {
        bounds::measure_long_names().await?;
    }
    if is_asked("bounds") {
        bounds::measure().await?;
    }
    if is_asked("lying") {
        lying::measure().await?;
    }
    Ok(())
}

/// Processes that want a processor, averaged over 1, 5 and 15 minutes.
fn load() -> Result<String, Failed> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    Ok(averages.join(" "))
}
