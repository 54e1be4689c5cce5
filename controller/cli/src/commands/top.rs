//! `crux top`: what the page shows, in a terminal.
//!
//! One thread asks the controller ([`source`]), this one draws what is known and reads keys;
//! [`screen`] is what the keys have chosen, [`panes`] what is drawn. The decision: drawing never
//! waits for an answer, so keys work while the controller is away.

mod panes;
mod screen;
mod source;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal;

use self::screen::{Screen, Verdict};
use self::source::{Known, Source};
use crate::client::To;
use crate::failure::Failure;
use crate::output;

/// Between two looks at what is known, while no key is pressed.
const LOOK: Duration = Duration::from_millis(100);

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
pub(crate) struct Args {
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    to: To,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match args.once {
        true => once(args),
        false => watch(args),
    }
}

fn once(args: &Args) -> Result<(), Failure> {
    let known = args.to.run(source::read(&args.to))?;
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let (width, height) = size.unwrap_or(PRINTED);
    output::print(printed(&known, &Screen::default(), width, height)?)
}

/// A frame as text.
fn printed(known: &Known, screen: &Screen, width: u16, height: u16) -> Result<String, Failure> {
    let backend = TestBackend::new(width.max(40), height.max(12));
    let mut terminal = Terminal::new(backend).map_err(|error| Failure::work(&error))?;
    let drawn = terminal.draw(|frame| panes::draw(frame, known, screen));
    drawn.map_err(|error| Failure::work(&error))?;
    Ok(text(terminal.backend().buffer()))
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width));
    let line = |row: &[Cell]| {
        let line: String = row.iter().map(Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    rows.map(line).collect::<Vec<_>>().join("\n")
}

/// The terminal is as it was before, however this ends: a panic restores it as well.
fn watch(args: &Args) -> Result<(), Failure> {
    let source = Source::start(&args.to)?;
    let mut terminal = ratatui::try_init().map_err(|error| Failure::work(&error))?;
    let ended = watch_on(&mut terminal, &source);
    ratatui::restore();
    ended.map_err(|error| Failure::work(&error))
}

fn watch_on(terminal: &mut ratatui::DefaultTerminal, source: &Source) -> std::io::Result<()> {
    let mut screen = Screen::default();
    while !source.is_told_to_end() {
        let known = source.known();
        terminal.draw(|frame| panes::draw(frame, &known, &screen))?;
        if !event::poll(LOOK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        let verdict = match key.kind {
            KeyEventKind::Press => screen.press(key, &known),
            _ => Verdict::Stay,
        };
        if verdict == Verdict::End {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
