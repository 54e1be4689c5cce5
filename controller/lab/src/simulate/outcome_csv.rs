//! Outcomes as one table for other programs: a row for each job, scheduler and draw (RFC 4180).

use simulator::SimulationOutcome;

/// The outcomes of schedulers with the same draw of ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CsvRun<'a> {
    pub(crate) seed: u64,
    pub(crate) outcomes: &'a [SimulationOutcome],
}

const HEADINGS: &str = "seed,scheduler,gpu_utilization,cluster_gpu_utilization,job,gpus,level,\
                        start_shift_seconds,iterations,mean_iteration_seconds,gpu_busy_fraction\n";

/// The table, with its headings; unknown cells are empty.
pub(crate) fn render_csv(runs: &[CsvRun<'_>]) -> String {
    let mut text = HEADINGS.to_owned();
    for CsvRun { seed, outcomes } in runs {
        for outcome in *outcomes {
            let of_run = format!(
                "{seed},{},{},{}",
                outcome.scheduler, outcome.gpu_utilization, outcome.cluster_gpu_utilization
            );
            for job in &outcome.jobs {
                let mean = job.mean_iteration_seconds.map_or_else(String::new, |s| s.to_string());
                text += &format!(
                    "{of_run},{},{},{},{},{},{mean},{}\n",
                    quote_field(&job.id),
                    job.gpus,
                    job.level,
                    job.start_shift_seconds,
                    job.iterations,
                    job.gpu_busy_fraction,
                );
            }
        }
    }
    text
}

fn quote_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_and_quotes_are_one_field() {
        for (name, field) in [("a", "a"), ("a,b", "\"a,b\""), ("a \"b\"", "\"a \"\"b\"\"\"")] {
            assert_eq!(quote_field(name), field);
        }
    }
}
