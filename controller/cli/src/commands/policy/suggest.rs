//! `crux policy suggest`: proposes a policy, with what it is forecast to bring.
//!
//! The controller previews every candidate with its own planner and the jobs that run now; nothing
//! is written. [`policy_search`](super::policy_search) chooses the candidates.

use std::collections::BTreeMap;

use ::controller::northbound::controller_view::JobRow;
use ::controller::northbound::service::{DocumentFile, PreviewPolicyRequest};
use ::controller::policy_history::PolicyRevision;
use ::controller::preview::PolicyPreview;
use command_io::output::{self, OutputFormat};
use command_io::{CommandError, ControllerClient, files};
use planner::PolicyDocument;
use serde::Serialize;
use topology::document::{self, DocumentFormat};

use super::PolicyQueryArgs;
use super::policy_search::{PolicyScore, PolicySearch, SuggestionGoal, search_policies};
use super::table;
use crate::commands::plan_preview;

/// Search for a better policy by previews, and propose it with its forecast; nothing is written
///
/// Tries fairness, fewer levels, a longer search, and a floor for the slowest job, from the policy
/// in force.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy suggest
  crux policy suggest --goal slowest --output better.toml
  crux policy diff better.toml
  crux policy apply better.toml --confirm-within 5m")]
pub(crate) struct PolicySuggestArgs {
    /// What to improve first
    #[arg(long, value_enum, default_value_t)]
    goal: SuggestionGoal,
    /// Write the proposed policy to this file
    #[arg(long, value_name = "FILE", default_value = "suggested-policy.toml")]
    output: String,
    /// Policies that are tried at most
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=500))]
    previews: u16,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// The result for programs.
#[derive(Serialize)]
struct PolicySuggestion<'a> {
    in_force: ScoreRow<'a>,
    tried: Vec<ScoreRow<'a>>,
    /// None where nothing is forecast to be better.
    proposed: Option<&'a PolicyDocument>,
}

/// A policy and its forecast.
#[derive(Serialize)]
struct ScoreRow<'a> {
    change: &'a str,
    gpu_utilization: f64,
    slowest_job: Option<&'a str>,
    slowest_slowdown: Option<f64>,
    is_better: bool,
}

pub(super) fn suggest_policy(args: &PolicySuggestArgs) -> Result<(), CommandError> {
    let client = &args.plain.client;
    let revision: PolicyRevision = client.get_json("/v1/policy")?;
    let jobs: Vec<JobRow> = client.get_json("/v1/jobs")?;
    if jobs.is_empty() {
        let text = "no job runs, so no policy is better than another";
        return Err(CommandError::Failed(text.to_owned()));
    }
    let tenants = jobs.iter().map(|job| (job.id.clone(), job.tenant.clone())).collect();
    let start = &revision.content.policy;
    let found =
        search_policies(start, &tenants, args.goal, usize::from(args.previews), |policy| {
            Ok(score_preview(&preview(client, policy)?, &jobs))
        })?;
    match args.plain.output.format {
        OutputFormat::Json => output::print_json(&PolicySuggestion::new(&found)),
        OutputFormat::Table => print_search(args, &found),
    }
}

fn preview(
    client: &ControllerClient,
    policy: &PolicyDocument,
) -> Result<PolicyPreview, CommandError> {
    let text = document::print_document(policy, DocumentFormat::Json);
    let text = text.map_err(CommandError::failed)?;
    let change = PreviewPolicyRequest {
        policy: Some(DocumentFile { file: "suggestion.json".to_owned(), text }),
        ..PreviewPolicyRequest::default()
    };
    client.post_json("/v1/policy/preview", &change)
}

/// What a preview forecasts, against the time of each job alone.
fn score_preview(preview: &PolicyPreview, jobs: &[JobRow]) -> PolicyScore {
    let alone: BTreeMap<&str, f64> =
        jobs.iter().map(|job| (job.id.as_str(), job.alone_seconds)).collect();
    let rows = preview.plan.jobs.iter().chain(&preview.plan.unchanged);
    let slowdowns = rows.filter_map(|row| {
        let alone = alone.get(row.id.as_str()).filter(|alone| **alone > 0.0)?;
        let seconds = row.iteration_seconds.after.unwrap_or(f64::INFINITY);
        Some((row.id.clone(), seconds / alone))
    });
    PolicyScore {
        gpu_utilization: preview.plan.gpu_utilization.after,
        slowdowns: slowdowns.collect(),
    }
}

fn print_search(args: &PolicySuggestArgs, found: &PolicySearch) -> Result<(), CommandError> {
    let suggestion = PolicySuggestion::new(found);
    let headings = ["tried", "GPU utilisation", "slowest job", "slowdown", ""];
    let mut rows = output::new_table(headings);
    for row in std::iter::once(&suggestion.in_force).chain(&suggestion.tried) {
        rows.add_row([
            row.change.to_owned(),
            format!("{:.2} %", row.gpu_utilization * 100.0),
            row.slowest_job.unwrap_or("-").to_owned(),
            row.slowest_slowdown.map_or_else(|| "-".to_owned(), |times| format!("{times:.3}")),
            if row.is_better { "better" } else { "" }.to_owned(),
        ]);
    }
    output::print_line(rows)?;
    let Some(best) = found.best() else {
        return output::print_line("\nnothing is forecast to be better than the policy in force");
    };
    let text = document::print_document(&best.policy, DocumentFormat::Toml);
    let text = text.map_err(CommandError::failed)?;
    files::write_requested(Some(&args.output), || text)?;
    let preview = preview(&args.plain.client, &best.policy)?;
    output::print_line("\nproposed:")?;
    table::print_preview(&preview, plan_preview::SHOWN)?;
    output::print_line(format_args!(
        "\nlook at it:  crux policy diff {0} --all\ntry it:      crux policy apply {0} \
         --confirm-within 5m",
        args.output
    ))
}

impl<'a> PolicySuggestion<'a> {
    fn new(found: &'a PolicySearch) -> Self {
        let tried = found.tried.iter();
        Self {
            in_force: ScoreRow::new("in force", &found.start, false),
            tried: tried.map(|one| ScoreRow::new(&one.change, &one.score, one.is_better)).collect(),
            proposed: found.best().map(|best| &best.policy),
        }
    }
}

impl<'a> ScoreRow<'a> {
    fn new(change: &'a str, score: &'a PolicyScore, is_better: bool) -> Self {
        let slowest = score.slowest();
        Self {
            change,
            gpu_utilization: score.gpu_utilization,
            slowest_job: slowest.map(|(job, _)| job),
            slowest_slowdown: slowest.map(|(_, slowdown)| slowdown),
            is_better,
        }
    }
}
