//! What keys have chosen: a pane, and in each pane an order and a place.
//!
//! Sans-IO: a key goes in, what it changes is here, and whether it is the end comes out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::panes;
use super::source::Known;

/// A pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Jobs,
    Links,
    Switches,
    Events,
}

/// All panes, in the order of their keys.
pub(super) const PANES: [Pane; 4] = [Pane::Jobs, Pane::Links, Pane::Switches, Pane::Events];

/// How a pane is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// The column that it is sorted by.
    pub(super) column: usize,
    /// Whether the order is turned round.
    pub(super) is_turned: bool,
    /// The first row that is shown.
    pub(super) top: usize,
}

/// What is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) pane: Pane,
    ways: [Way; PANES.len()],
}

/// What a key means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Stay,
    End,
}

impl Pane {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Links => "links",
            Self::Switches => "switches",
            Self::Events => "events",
        }
    }
}

impl Screen {
    /// How a pane is looked at.
    pub(super) fn way(&self, pane: Pane) -> Way {
        self.ways[pane as usize]
    }

    /// Takes in a key.
    pub(super) fn press(&mut self, key: KeyEvent, known: &Known) -> Verdict {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let rows = panes::rows(known, self.pane);
        let columns = panes::headings(self.pane).len();
        let way = &mut self.ways[self.pane as usize];
        match key.code {
            KeyCode::Char('c') if is_control => return Verdict::End,
            KeyCode::Char('q') | KeyCode::Esc => return Verdict::End,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(PANES.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => self.pane = PANES[digit as usize - '1' as usize],
            KeyCode::Char('s') => {
                way.column = (way.column + 1) % columns;
                way.top = 0;
            }
            KeyCode::Char('r') => way.is_turned = !way.is_turned,
            KeyCode::Down | KeyCode::Char('j') => way.top += 1,
            KeyCode::Up | KeyCode::Char('k') => way.top = way.top.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => way.top += 10,
            KeyCode::PageUp => way.top = way.top.saturating_sub(10),
            KeyCode::Home => way.top = 0,
            KeyCode::End => way.top = rows,
            _ => {}
        }
        let way = &mut self.ways[self.pane as usize];
        way.top = way.top.min(panes::rows(known, self.pane).saturating_sub(1));
        Verdict::Stay
    }

    fn turn(&mut self, steps: usize) {
        self.pane = PANES[(self.pane as usize + steps) % PANES.len()];
    }
}
