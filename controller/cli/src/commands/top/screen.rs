//! The state of the screen: the selected pane, and the order and position of each.
//!
//! Sans-IO: a key goes in, the state changes, and the action of the program comes out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::controller_poller::TopSnapshot;
use super::panes;

/// A pane of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopPane {
    #[default]
    Jobs,
    Links,
    Switches,
    Events,
}

/// All panes, in the order of their keys.
pub(super) const PANES: [TopPane; 4] =
    [TopPane::Jobs, TopPane::Links, TopPane::Switches, TopPane::Events];

/// The order and scroll position of a pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneView {
    /// The column that it is sorted by.
    pub(super) column: usize,
    /// Whether the order is reversed.
    pub(super) is_turned: bool,
    /// The first row that is shown.
    pub(super) top: usize,
}

/// The selected pane and the view of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenState {
    pub(super) pane: TopPane,
    views: [PaneView; PANES.len()],
}

/// What a key means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Continue,
    Quit,
}

impl TopPane {
    /// The name in the pane's title.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Links => "links",
            Self::Switches => "switches",
            Self::Events => "events",
        }
    }
}

impl ScreenState {
    /// The view of a pane.
    pub(super) fn pane_view(&self, pane: TopPane) -> PaneView {
        self.views[pane as usize]
    }

    /// Handles a key.
    pub(super) fn handle_key(&mut self, key: KeyEvent, known: &TopSnapshot) -> KeyAction {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let rows = panes::row_count(known, self.pane);
        let columns = panes::pane_headings(self.pane).len();
        let way = &mut self.views[self.pane as usize];
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Tab => self.rotate_pane(1),
            KeyCode::BackTab => self.rotate_pane(PANES.len() - 1),
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
        let way = &mut self.views[self.pane as usize];
        way.top = way.top.min(panes::row_count(known, self.pane).saturating_sub(1));
        KeyAction::Continue
    }

    fn rotate_pane(&mut self, steps: usize) {
        self.pane = PANES[(self.pane as usize + steps) % PANES.len()];
    }
}
