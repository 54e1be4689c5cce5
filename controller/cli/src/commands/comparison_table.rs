//! What a plan was chosen from, as a table.

use planner::ComparisonDocument;

use command_io::CommandError;
use command_io::output;

/// Prints the candidates for some jobs, sprayed or not, the adopted one first.
pub(crate) fn print_comparison(
    comparison: &ComparisonDocument,
    are_sprayed: bool,
) -> Result<(), CommandError> {
    let headings =
        ["candidate paths", "levels", "GPU utilisation %", "worst slowdown", "longest wait, s"];
    let mut table = output::new_table(headings);
    for (place, candidate) in comparison.candidates.iter().enumerate() {
        let adopted = if place == 0 { " (adopted)" } else { "" };
        table.add_row([
            format!("{}{adopted}", candidate.paths),
            candidate.levels.join(", "),
            format!("{:.2}", candidate.gpu_utilization * 100.0),
            format!("{:.2}", candidate.worst_slowdown),
            format!("{:.3}", candidate.worst_wait_seconds),
        ]);
    }
    let jobs = comparison.jobs.join(", ");
    output::print_line(format_args!("\nforecast for {jobs}\n{table}"))?;
    if let Some(without) = comparison.ecmp_utilization {
        let percent = without * 100.0;
        let without = match are_sprayed {
            true => format!("spraying on one level: {percent:.2} %"),
            false => format!("ECMP: {percent:.2} % in the mean over hashes"),
        };
        output::print_line(without)?;
    }
    if let Some(limit) = comparison.slowdown_limit {
        output::print_line(format_args!(
            "no job may be more than {limit:.2} times slower than alone (slowdown_limit)"
        ))?;
    }
    if let Some(cost) = comparison.bound_cost {
        output::print_line(format_args!(
            "the bound on waits without service (service_bound_seconds) costs {:.2} % of the GPUs",
            cost * 100.0
        ))?;
    }
    Ok(())
}
