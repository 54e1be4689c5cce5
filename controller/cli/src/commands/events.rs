//! `crux events`: what happens at a running controller, as it happens.
//!
//! A client of the event stream that the web page reads too. It resumes at its position after the
//! controller was unreachable, and reports how many events were missed.

use std::time::Duration;

use ::controller::event_log::{EventPage, EventPosition, OperatorEvent};
use ::controller::northbound::events::MissedEvents;
use tokio::time::sleep;
use topology::count_noun;

use command_io::CommandError;
use command_io::output;
use command_io::{ControllerClient, EventFrame};

use super::local_time::format_log_time;

/// The delay before a reconnect.
const RETRY: Duration = Duration::from_secs(1);

/// Print the events of a running controller, and follow new ones.
///
/// Jobs that arrive, change and leave; plans, and when every switch holds them; policy changes;
/// failures and recoveries of switches and cables; drift, findings, and changes of leadership.
/// Times are those of this machine's zone; TZ=UTC prints those of the log.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux events
  crux events --follow
  crux events --since 42 --json")]
pub(crate) struct EventsArgs {
    /// Print new events too, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Only events after this sequence number
    #[arg(long, value_name = "SEQUENCE", default_value = "0")]
    since: EventPosition,
    /// One JSON object a line, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ControllerClient,
}

pub(crate) fn run_events(args: &EventsArgs) -> Result<(), CommandError> {
    match args.follow {
        true => follow_events(args),
        false => {
            let page: EventPage = args.client.get_json(&events_path(args.since))?;
            warn_missed(page.missed);
            page.events.iter().try_for_each(|event| print_event(args, event))
        }
    }
}

fn events_path(since: EventPosition) -> String {
    format!("/v1/events?since={since}")
}

/// Prints events until interrupted; reconnects when the controller was unreachable.
fn follow_events(args: &EventsArgs) -> Result<(), CommandError> {
    let mut since = args.since;
    args.client.block_on(async {
        let mut frames = args.client.open_event_stream(&events_path(since)).await?;
        loop {
            match frames.next().await {
                Some(frame) => since = print_frame(args, &frame, since)?,
                None => frames = reconnect_stream(args, since).await,
            }
        }
    })
}

async fn reconnect_stream(args: &EventsArgs, since: EventPosition) -> command_io::FrameStream {
    eprintln!("crux: lost the controller; reconnecting");
    loop {
        sleep(RETRY).await;
        if let Ok(frames) = args.client.open_event_stream(&events_path(since)).await {
            return frames;
        }
    }
}

/// Prints a frame; the position after it.
fn print_frame(
    args: &EventsArgs,
    frame: &EventFrame,
    since: EventPosition,
) -> Result<EventPosition, CommandError> {
    match frame.event.as_str() {
        "missed" => {
            let MissedEvents { missed } = args.client.parse_json(frame.data.as_bytes())?;
            warn_missed(missed);
        }
        _ => print_event(args, &args.client.parse_json(frame.data.as_bytes())?)?,
    }
    Ok(frame.id.parse().unwrap_or(since))
}

fn warn_missed(missed: u64) {
    if missed > 0 {
        eprintln!("crux: missed {}", count_noun(missed, "event"));
    }
}

fn print_event(args: &EventsArgs, event: &OperatorEvent) -> Result<(), CommandError> {
    match args.json {
        true => output::print_line(serde_json::to_string(event).map_err(CommandError::failed)?),
        false => output::print_line(event_line(event)),
    }
}

/// An event in one line.
pub(crate) fn event_line(event: &OperatorEvent) -> String {
    let OperatorEvent { sequence, at_ms, severity, text, .. } = event;
    format!("{sequence:>5}  {}  {:<7}  {text}", format_log_time(*at_ms), severity.to_string())
}
