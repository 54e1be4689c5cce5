//! `crux policy`: what is in force, what a change would do, and changes that can be taken back.

mod author;
mod policy_search;
mod suggest;
mod table;

use std::time::Duration;

use ::controller::northbound::service::{
    ApplyPolicyRequest, PolicyChangeResponse, PolicyRevisionDiff, PreviewPolicyRequest,
    TemporaryOverrideRequest, parse_policy,
};
use ::controller::policy_history::{PolicyContent, PolicyRevision, TemporaryOverride};
use ::controller::preview::PolicyPreview;
use planner::{OverrideDocument, PolicyEdit, PolicyEditAction};
use serde::Serialize;
use topology::{Severity, document};

use crate::controller_files::{read_policy_file, read_policy_to_send};
use command_io::CommandError;
use command_io::ControllerClient;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

pub(super) use self::author::ChangeAuthorArgs;
use super::confirmation;
use super::local_time::format_time;
use super::plan_preview;

/// Look at the policy of a running controller, and change it.
///
/// A change is all or nothing: if a switch does not hold it in time, it is rolled back.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux policy check policy.toml
  crux policy diff policy.toml
  crux policy apply policy.toml --reason 'night batch' --confirm-within 60s
  crux policy confirm
  crux policy set fairness=0.4 --confirm-within 5m
  crux policy suggest
  crux policy override 'gpt*' --level 6 --for 1h --reason deadline
  crux policy history
  crux policy rollback 3")]
pub(crate) enum PolicyCommand {
    /// Check a policy file, without a controller
    Check(PolicyCheckArgs),
    /// Show what is in force
    #[command(after_help = "\
Examples:
  crux policy show
  crux policy show > policy.toml")]
    Show(PolicyQueryArgs),
    /// Show what a change would do: levels, flows, entries, utilisation; nothing is written
    Diff(PolicyDiffArgs),
    /// Put a policy in force
    Apply(PolicyApplyArgs),
    /// Change single fields and leave the rest as it is
    Set(PolicySetArgs),
    /// Give single fields their defaults and leave the rest as it is
    Unset(PolicyUnsetArgs),
    Suggest(suggest::PolicySuggestArgs),
    /// Confirm the change that is on trial
    Confirm(PolicyConfirmArgs),
    /// Roll back the change on trial, the latest change, or to any revision
    Rollback(PolicyRollbackArgs),
    /// Show who changed what, when and why
    History(PolicyHistoryArgs),
    /// Override the policy for some jobs, for some time
    Override(PolicyOverrideArgs),
}

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy check policy.toml
  crux policy check policy.toml --fabric lab.toml --format json")]
pub(crate) struct PolicyCheckArgs {
    /// Policy document
    file: String,
    /// Fabric document, to check that drained parts exist
    #[arg(long)]
    fabric: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// A policy file without errors.
#[derive(Serialize)]
struct CheckedPolicy<'a> {
    file: &'a str,
    fabric: Option<&'a str>,
}

/// Arguments of what only shows.
#[derive(clap::Args)]
pub(crate) struct PolicyQueryArgs {
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `history`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy history
  crux policy history --before 900 --limit 50")]
pub(crate) struct PolicyHistoryArgs {
    /// Only revisions before this number: the lowest of the page before
    #[arg(long, value_name = "REVISION")]
    before: Option<u64>,
    /// Revisions at most; never more than 1,000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `diff`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy diff policy.toml
  crux policy diff policy.toml --all")]
pub(crate) struct PolicyDiffArgs {
    /// Policy document
    file: String,
    /// Print all entries of all switches
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `apply`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy apply policy.toml --reason 'night batch'
  crux policy apply policy.toml --confirm-within 5m
  crux policy apply policy.toml --yes")]
pub(crate) struct PolicyApplyArgs {
    /// Policy document
    file: String,
    /// Take it back by itself unless it is confirmed within this time
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    confirm_within: Option<Duration>,
    /// Do not ask where it drops an override or lowers a floor
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `set`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy set fairness=0.4 --reason 'slow jobs complain'
  crux policy set levels=4 reserved_levels='[3]' --preview
  crux policy set paths=greedy --confirm-within 5m")]
pub(crate) struct PolicySetArgs {
    /// Fields of a policy with their values, as a policy file has them
    #[arg(required = true, value_parser = parse_assignment, value_name = "FIELD=VALUE")]
    fields: Vec<PolicyEdit>,
    #[command(flatten)]
    terms: PolicyEditArgs,
}

/// Arguments of `unset`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy unset fairness
  crux policy unset levels reserved_levels --preview")]
pub(crate) struct PolicyUnsetArgs {
    /// Fields of a policy
    #[arg(required = true, value_name = "FIELD")]
    fields: Vec<String>,
    #[command(flatten)]
    terms: PolicyEditArgs,
}

/// How single fields are changed.
#[derive(clap::Args)]
struct PolicyEditArgs {
    /// Show what the change would do, and write nothing
    #[arg(long, conflicts_with = "confirm_within")]
    preview: bool,
    /// Take it back by itself unless it is confirmed within this time
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    confirm_within: Option<Duration>,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `confirm`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy confirm
  crux policy confirm --reason 'no job complains'")]
pub(crate) struct PolicyConfirmArgs {
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `rollback`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy rollback
  crux policy rollback 3 --reason 'slower than before'")]
pub(crate) struct PolicyRollbackArgs {
    /// Number of the revision to go back to, from crux policy history
    revision: Option<u64>,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

/// Arguments of `override`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux policy override 'gpt*' --level 6 --for 1h --reason deadline
  crux policy override tenant:batch --max-level 2 --for 30m")]
pub(crate) struct PolicyOverrideArgs {
    /// Glob over job ids and tenants; job:GLOB or tenant:GLOB for one of the two
    pattern: String,
    /// Fixed level
    #[arg(long, conflicts_with_all = ["max_level", "min_level", "exempt"])]
    level: Option<u8>,
    /// Highest level
    #[arg(long)]
    max_level: Option<u8>,
    /// Lowest level
    #[arg(long)]
    min_level: Option<u8>,
    /// Factor on the priority
    #[arg(long)]
    weight: Option<f64>,
    /// Leave the jobs to ECMP
    #[arg(long)]
    exempt: bool,
    /// How long it lasts, as 30s, 5m or 1h
    #[arg(long = "for", value_parser = parse_duration, value_name = "TIME")]
    lasts: Duration,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    plain: PolicyQueryArgs,
}

pub(crate) fn run_policy(command: &PolicyCommand) -> Result<(), CommandError> {
    match command {
        PolicyCommand::Check(args) => check_policy(args),
        PolicyCommand::Show(args) => show_policy(args),
        PolicyCommand::Diff(args) => preview_policy(args),
        PolicyCommand::Apply(args) => apply_policy(args),
        PolicyCommand::Set(args) => edit_policy(args.fields.clone(), &args.terms),
        PolicyCommand::Unset(args) => {
            let action = PolicyEditAction::Unset;
            let fields = args.fields.iter().cloned();
            let edits = fields.map(|name| PolicyEdit { action, name, value: None });
            edit_policy(edits.collect(), &args.terms)
        }
        PolicyCommand::Suggest(args) => suggest::suggest_policy(args),
        PolicyCommand::Confirm(args) => {
            let done = args
                .plain
                .client
                .post_json("/v1/policy/confirm", &args.signature.confirm_request())?;
            print_change(&done, args.plain.output)
        }
        PolicyCommand::Rollback(args) => {
            let say = args.signature.rollback_request(args.revision);
            let done = args.plain.client.post_json("/v1/policy/rollback", &say)?;
            print_change(&done, args.plain.output)
        }
        PolicyCommand::History(args) => show_history(args),
        PolicyCommand::Override(args) => set_override(args),
    }
}

fn check_policy(args: &PolicyCheckArgs) -> Result<(), CommandError> {
    let text = read_policy_file(&args.file)?;
    let document = parse_policy(&text).map_err(|finding| CommandError::document(finding.text))?;
    if let Some(fabric) = &args.fabric {
        let fabric = files::read_fabric(fabric)?;
        let policy = document.to_policy(&args.file).map_err(CommandError::document)?;
        let checked = policy.check_on(&fabric);
        let format =
            document::DocumentFormat::from_file_name(&args.file).map_err(CommandError::document)?;
        checked.map_err(|error| {
            let file = args.file.clone();
            let error = planner::DocumentFieldError { file, ..error };
            CommandError::document(error.with_line_in(&text.text, format))
        })?;
    }
    match args.output.format {
        OutputFormat::Json => {
            output::print_json(&CheckedPolicy { file: &args.file, fabric: args.fabric.as_deref() })
        }
        OutputFormat::Table => output::print_line("ok"),
    }
}

fn show_policy(args: &PolicyQueryArgs) -> Result<(), CommandError> {
    let revision: PolicyRevision = args.client.get_json("/v1/policy")?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&revision),
        OutputFormat::Table => {
            let PolicyContent { mut policy, temporary_overrides } = revision.content;
            let drained = match std::mem::take(&mut policy.drained) {
                parts if parts.is_empty() => String::new(),
                parts => format!("# drained, and no part of a file: {}\n", parts.join(", ")),
            };
            let policy = document::print_document(&policy, document::DocumentFormat::Toml)
                .map_err(CommandError::failed)?;
            let temporary = temporary_overrides.iter().map(describe_temporary);
            let temporary = temporary.collect::<Result<String, _>>()?;
            let number = revision.number;
            output::print_line(format_args!("# revision {number}\n{drained}{temporary}{policy}"))
        }
    }
}

/// An override that a file cannot state, as a comment.
fn describe_temporary(temporary: &TemporaryOverride) -> Result<String, CommandError> {
    let rule = toml::to_string(&temporary.rule).map_err(CommandError::failed)?;
    let rule = rule.trim_end().replace('\n', ", ");
    Ok(format!("# until {}, before the rules below: {rule}\n", format_time(temporary.until_ms)))
}

fn preview_policy(args: &PolicyDiffArgs) -> Result<(), CommandError> {
    let shown = if args.all { usize::MAX } else { plan_preview::SHOWN };
    print_preview_of(&preview_request(&args.file)?, &args.plain, shown)
}

fn print_preview_of(
    change: &PreviewPolicyRequest,
    plain: &PolicyQueryArgs,
    shown: usize,
) -> Result<(), CommandError> {
    let preview: PolicyPreview = plain.client.post_json("/v1/policy/preview", change)?;
    match plain.output.format {
        OutputFormat::Json => output::print_json(&preview),
        OutputFormat::Table => table::print_preview(&preview, shown),
    }
}

fn edit_policy(edits: Vec<PolicyEdit>, terms: &PolicyEditArgs) -> Result<(), CommandError> {
    let change = PreviewPolicyRequest { edits, ..PreviewPolicyRequest::default() };
    if terms.preview {
        return print_preview_of(&change, &terms.plain, plan_preview::SHOWN);
    }
    let order = ApplyPolicyRequest {
        change,
        author: terms.signature.author_name(),
        reason: terms.signature.reason.clone(),
        confirm_within_seconds: terms.confirm_within.map(|within| within.as_secs()),
        force: false,
    };
    print_change(&terms.plain.client.post_json("/v1/policy/apply", &order)?, terms.plain.output)
}

fn apply_policy(args: &PolicyApplyArgs) -> Result<(), CommandError> {
    // A trial ends by itself.
    if !args.yes && args.confirm_within.is_none() {
        ask_for_lost_promises(args)?;
    }
    let order = ApplyPolicyRequest {
        change: preview_request(&args.file)?,
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        confirm_within_seconds: args.confirm_within.map(|within| within.as_secs()),
        force: false,
    };
    let done = args.plain.client.post_json("/v1/policy/apply", &order)?;
    print_change(&done, args.plain.output)
}

/// Asks whether a file may take back what the policy in force promises to jobs, if it does.
fn ask_for_lost_promises(args: &PolicyApplyArgs) -> Result<(), CommandError> {
    let text = read_policy_file(&args.file)?;
    let after = parse_policy(&text).map_err(|finding| CommandError::document(finding.text))?;
    let now: PolicyRevision = args.plain.client.get_json("/v1/policy")?;
    let lost = now.content.policy.promises_lost(&after);
    if lost.is_empty() {
        return Ok(());
    }
    let text = format!("{} {} (crux policy diff shows what follows)", args.file, lost.join(", "));
    confirmation::ask(&text, "Apply it?")
}

fn set_override(args: &PolicyOverrideArgs) -> Result<(), CommandError> {
    let rule = OverrideDocument {
        pattern: args.pattern.clone(),
        level: args.level,
        max_level: args.max_level,
        min_level: args.min_level,
        weight: args.weight,
        exempt: args.exempt,
        min_throughput: None,
    };
    let order = ApplyPolicyRequest {
        change: PreviewPolicyRequest {
            temporary_override: Some(TemporaryOverrideRequest {
                rule,
                duration_seconds: args.lasts.as_secs(),
            }),
            ..PreviewPolicyRequest::default()
        },
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        confirm_within_seconds: None,
        force: false,
    };
    let done = args.plain.client.post_json("/v1/policy/apply", &order)?;
    print_change(&done, args.plain.output)
}

fn show_history(args: &PolicyHistoryArgs) -> Result<(), CommandError> {
    let before = args.before.map(|before| format!("&before={before}")).unwrap_or_default();
    let page = format!("/v1/policy/revisions?limit={}{before}", args.limit);
    let chapters: Vec<PolicyRevisionDiff> = args.plain.client.get_json(&page)?;
    match args.plain.output.format {
        OutputFormat::Json => output::print_json(&chapters),
        OutputFormat::Table => output::print_line(table::history_table(&chapters)),
    }
}

/// Tells what became of a change; a change that was taken back is no success.
pub(super) fn print_change(
    done: &PolicyChangeResponse,
    output: FormatArg,
) -> Result<(), CommandError> {
    match output.format {
        OutputFormat::Json => output::print_json(done)?,
        OutputFormat::Table => {
            done.findings.iter().try_for_each(output::print_line)?;
            output::print_line(describe_revision(done))?;
        }
    }
    let error = done.findings.iter().find(|finding| finding.severity == Severity::Error);
    match error {
        Some(finding) if !done.applied => Err(CommandError::Failed(finding.text.clone())),
        _ => Ok(()),
    }
}

/// Which revision is in force, and what to type where it is on trial.
fn describe_revision(done: &PolicyChangeResponse) -> String {
    let number = done.revision;
    match done.trial_until_ms {
        None => format!("revision {number} is in force"),
        Some(until) => format!(
            "revision {number} is on trial until {}; then the one before it returns by itself\n  \
             keep it:      crux policy confirm\n  take it back: crux policy rollback",
            format_time(until),
        ),
    }
}

fn preview_request(file: &str) -> Result<PreviewPolicyRequest, CommandError> {
    Ok(PreviewPolicyRequest {
        policy: Some(read_policy_to_send(file)?),
        ..PreviewPolicyRequest::default()
    })
}

/// A field and its value, as `fairness=0.4`.
fn parse_assignment(text: &str) -> Result<PolicyEdit, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` has no value: write it as FIELD=VALUE"))?;
    Ok(PolicyEdit {
        action: PolicyEditAction::Set,
        name: name.trim().to_owned(),
        value: Some(value.trim().to_owned()),
    })
}

/// A time as people write it: 30s, 5m, 1h.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid time `{text}`: write it as 30s, 5m or 1h");
    let split = text.len() - text.chars().next_back().map_or(0, char::len_utf8);
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text| parse_duration(text).map(|time| time.as_secs());
        assert_eq!(["30s", "5m", "1h"].map(seconds), [Ok(30), Ok(300), Ok(3_600)]);
        for wrong in ["", "s", "30", "1d", "5µ"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
