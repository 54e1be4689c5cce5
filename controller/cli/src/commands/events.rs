//! `crux events`: what happens at a running controller, as it happens.
//!
//! A client of the same stream that the page reads: it goes on where it was when the controller was
//! away for a while, and says so where it missed something.

use std::time::Duration;

use ::controller::chronicle::{Happening, Page, Position};
use ::controller::northbound::events::Missed;
use tokio::time::sleep;

use crate::client::{Frame, To};
use crate::failure::Failure;
use crate::output;

/// Before the controller is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Tell what happened at a running controller, and what happens.
///
/// Jobs that arrive, change and leave; plans, and when every switch holds them; changes of policy;
/// switches and cables that fail and work again; drift, findings, and who leads.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux events
  crux events --follow
  crux events --since 42 --json")]
pub(crate) struct Args {
    /// Go on with what happens, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Only what came after this number
    #[arg(long, value_name = "SEQUENCE", default_value = "0")]
    since: Position,
    /// One JSON object a line, for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    to: To,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match args.follow {
        true => follow(args),
        false => {
            let page: Page = args.to.get(&path(args.since))?;
            tell_missed(page.missed);
            page.events.iter().try_for_each(|event| tell(args, event))
        }
    }
}

fn path(since: Position) -> String {
    format!("/v1/events?since={since}")
}

/// Reads until interrupted. A controller that was there and went away is waited for.
fn follow(args: &Args) -> Result<(), Failure> {
    let mut since = args.since;
    args.to.run(async {
        let mut frames = args.to.stream(&path(since)).await?;
        loop {
            match frames.next().await {
                Some(frame) => since = heard(args, &frame, since)?,
                None => frames = again(args, since).await,
            }
        }
    })
}

async fn again(args: &Args, since: Position) -> crate::client::Frames {
    eprintln!("crux: the controller is gone; waiting for it");
    loop {
        sleep(RETRY).await;
        if let Ok(frames) = args.to.stream(&path(since)).await {
            return frames;
        }
    }
}

/// Prints a frame; how far it was read then.
fn heard(args: &Args, frame: &Frame, since: Position) -> Result<Position, Failure> {
    match frame.event.as_str() {
        "missed" => {
            let Missed { missed } = args.to.understand(frame.data.as_bytes())?;
            tell_missed(missed);
        }
        _ => tell(args, &args.to.understand(frame.data.as_bytes())?)?,
    }
    Ok(frame.id.parse().unwrap_or(since))
}

fn tell_missed(missed: u64) {
    if missed > 0 {
        eprintln!("crux: {missed} events are no longer kept");
    }
}

fn tell(args: &Args, event: &Happening) -> Result<(), Failure> {
    match args.json {
        true => output::print(serde_json::to_string(event).map_err(|e| Failure::work(&e))?),
        false => output::print(line(event)),
    }
}

/// An event in one line.
pub(crate) fn line(event: &Happening) -> String {
    let Happening {
        sequence,
        at_ms,
        severity,
        text,
        ..
    } = event;
    format!(
        "{sequence:>5}  {}  {:<7}  {text}",
        time_of_day(*at_ms),
        severity.to_string()
    )
}

/// The time of day of a Unix time, in UTC.
pub(crate) fn time_of_day(at_ms: u64) -> String {
    let (seconds, ms) = (at_ms / 1_000, at_ms % 1_000);
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{ms:03}Z", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_utc() {
        assert_eq!(time_of_day(1_763_767_001_042), "23:16:41.042Z");
    }
}
