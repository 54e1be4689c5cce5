//! `crux drain` and `crux undrain`: traffic leaves a switch or a cable, and returns to it.

use ::controller::northbound::service::{ApplyPolicyRequest, PreviewPolicyRequest};
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};
use planner::{PolicyEdit, PolicyEditAction};

use super::policy::{ChangeAuthorArgs, print_change};

/// Move traffic away from switches or cables of a running controller
///
/// Flows move to other paths before the old ones are removed. A switch that does not answer holds
/// up nothing. Everything else in the policy stays as it is. Refused where it would take the last
/// path of some NICs, whose traffic then stays on the part.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux drain spine2 --reason 'new line card'
  crux drain leaf1-spine2
  crux doctor
  crux undrain spine2")]
pub(crate) struct DrainArgs {
    /// Drain the last path of NICs too, over which their traffic then goes on
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: PartArgs,
}

/// Which parts, and who says so.
#[derive(clap::Args)]
struct PartArgs {
    /// Switches by name, cables as SWITCH-SWITCH or HOST-SWITCH
    #[arg(required = true, value_name = "PART")]
    parts: Vec<String>,
    #[command(flatten)]
    signature: ChangeAuthorArgs,
    #[command(flatten)]
    client: ControllerClient,
    #[command(flatten)]
    output: FormatArg,
}

/// Let traffic return to drained switches or cables
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux undrain spine2
  crux undrain leaf1-spine2 leaf2-spine2 --reason 'optics replaced'")]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    change: PartArgs,
}

/// Drains parts.
pub(crate) fn drain_parts(args: &DrainArgs) -> Result<(), CommandError> {
    apply_to_parts(&args.change, PolicyEditAction::Drain, args.force)?;
    match args.change.output.format {
        OutputFormat::Json => Ok(()),
        OutputFormat::Table => output::print_line(format_args!(
            "no new flow is placed there; `crux events` says when no switch sends there any more, \
             `crux doctor` what still does, and `crux undrain {}` takes it back",
            args.change.parts.join(" ")
        )),
    }
}

/// Lets traffic return.
pub(crate) fn undrain_parts(args: &UndrainArgs) -> Result<(), CommandError> {
    apply_to_parts(&args.change, PolicyEditAction::Undrain, false)
}

fn apply_to_parts(
    args: &PartArgs,
    action: PolicyEditAction,
    force: bool,
) -> Result<(), CommandError> {
    let edit = |name: &String| PolicyEdit { action, name: name.clone(), value: None };
    let edits = args.parts.iter().map(edit).collect();
    let order = ApplyPolicyRequest {
        change: PreviewPolicyRequest { edits, ..PreviewPolicyRequest::default() },
        author: args.signature.author_name(),
        reason: args.signature.reason.clone(),
        confirm_within_seconds: None,
        force,
    };
    print_change(&args.client.post_json("/v1/policy/apply", &order)?, args.output)
}
