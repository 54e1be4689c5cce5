//! `crux top`: what the page shows, in a terminal.
//!
//! One thread polls the controller ([`controller_poller`]), this one draws the latest snapshot and
//! reads keys; [`screen`] is the state that keys change, [`panes`] the frame. The decision: drawing
//! never waits for a response, so keys work while the controller is unreachable.

mod controller_poller;
mod panes;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;

use self::controller_poller::{ControllerPoller, TopSnapshot};
use self::screen::{KeyAction, ScreenState};
use command_io::CommandError;
use command_io::ControllerClient;
use command_io::output;

/// Between two updates of the screen, while no key is pressed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The size of a frame that is printed where there is no terminal.
const PRINTED: (u16, u16) = (120, 40);

/// Show jobs, links, switches and events of a running controller, as they change.
#[derive(clap::Args)]
#[command(after_help = "\
Keys:  Tab or 1 to 4 choose a pane, up and down scroll, s sorts by the next column, r turns the
       order round, q ends

Examples:
  crux top
  crux top --once
  crux top --controller spine-ctl:9300")]
pub(crate) struct TopArgs {
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    client: ControllerClient,
}

pub(crate) fn run_top(args: &TopArgs) -> Result<(), CommandError> {
    match args.once {
        true => print_frame(args),
        false => watch_controller(args),
    }
}

fn print_frame(args: &TopArgs) -> Result<(), CommandError> {
    let known = args.client.block_on(controller_poller::read_snapshot(&args.client))?;
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let (width, height) = size.unwrap_or(PRINTED);
    output::print_line(render_frame(&known, &ScreenState::default(), width, height)?)
}

/// A frame as text.
fn render_frame(
    known: &TopSnapshot,
    screen: &ScreenState,
    width: u16,
    height: u16,
) -> Result<String, CommandError> {
    let backend = TestBackend::new(width.max(40), height.max(12));
    let mut terminal = Terminal::new(backend).map_err(CommandError::failed)?;
    terminal
        .draw(|frame| panes::draw_screen(frame, known, screen))
        .map_err(CommandError::failed)?;
    Ok(buffer_text(terminal.backend().buffer()))
}

fn buffer_text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width));
    rows.map(|row| {
        let line: String = row.iter().map(Cell::symbol).collect();
        line.trim_end().to_owned()
    })
    .collect::<Vec<_>>()
    .join("\n")
}

/// The terminal is as it was before, however this ends: a panic restores it as well.
fn watch_controller(args: &TopArgs) -> Result<(), CommandError> {
    let source = ControllerPoller::spawn_poller(&args.client)?;
    let mut terminal = ratatui::try_init().map_err(CommandError::failed)?;
    let ended = draw_until_quit(&mut terminal, &source);
    ratatui::restore();
    ended.map_err(CommandError::failed)
}

fn draw_until_quit(
    terminal: &mut ratatui::DefaultTerminal,
    source: &ControllerPoller,
) -> std::io::Result<()> {
    let mut screen = ScreenState::default();
    while !source.is_terminated() {
        let known = source.latest_snapshot();
        terminal.draw(|frame| panes::draw_screen(frame, &known, &screen))?;
        if !event::poll(POLL_INTERVAL)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        let action = match key.kind {
            KeyEventKind::Press => screen.handle_key(key, &known),
            _ => KeyAction::Continue,
        };
        if action == KeyAction::Quit {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
