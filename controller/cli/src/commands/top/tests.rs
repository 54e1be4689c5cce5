//! Frames as text, and what keys do to them.

use ::controller::northbound::controller_view::{JobRow, JobSource, LevelLoad, LinkRow, SwitchRow};
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use ::controller::northbound::utilization::{UtilizationHistory, UtilizationSeries};
use topology::Finding;

use super::controller_poller::UsedJob;
use super::screen::TopPane;
use super::*;

fn known() -> TopSnapshot {
    let job = |id: &str, rank, level, gpus| JobRow {
        id: id.to_owned(),
        tenant: None,
        model: None,
        gpus,
        reported: false,
        profiled: false,
        level,
        rank,
        intensity: 1e15 / f64::from(rank),
        alone_seconds: 1.5,
        flows: 4,
        source: JobSource::Document,
        measured_bytes_per_second: None,
        measured_iteration_seconds: None,
        measured_iteration_bytes: None,
        forecast_seconds: None,
        forecast_band: None,
        start_shift: None,
        reported_seconds: None,
    };
    let used = |row, measured| UsedJob { row, utilization: [Some(measured), Some(0.8), Some(0.4)] };
    let link = |link: &str, load, state: &str| LinkRow {
        link: link.to_owned(),
        gbps: 400.0,
        state: state.to_owned(),
        load,
        levels: vec![LevelLoad { level: 7, load }],
        jobs: vec!["gpt".to_owned()],
        measured: Some(load / 2.0),
        measured_levels: Vec::new(),
    };
    let switch = |name: &str| SwitchRow {
        name: name.to_owned(),
        state: "up".to_owned(),
        mastership: "primary".to_owned(),
        verified_generation: Some(3),
        verified_entries: Some(9),
        verified_age_seconds: Some(0.5),
        entries_written: 9,
        entries_drifted: 0,
        session_failures: 0,
        problems: Vec::new(),
        quarantined: false,
    };
    TopSnapshot {
        jobs: vec![used(job("gpt", 1, 7, 16), 0.75), used(job("bert", 2, 5, 32), 0.5)],
        links: vec![link("leaf1:4>spine1:1", 0.25, "up"), link("leaf2:4>spine1:2", 0.9, "down")],
        switches: vec![switch("leaf1"), switch("spine1")],
        findings: vec![Finding::info("job gpt", "fine"), Finding::error("leaf1", "broken")],
        worth: UtilizationHistory {
            total: UtilizationSeries {
                measured: vec![Some(0.6)],
                forecast: vec![Some(0.625)],
                ecmp: vec![Some(0.4)],
                ..UtilizationSeries::default()
            },
            ..UtilizationHistory::default()
        },
        ..TopSnapshot::default()
    }
}

fn press(screen: &mut ScreenState, known: &TopSnapshot, keys: &str) -> KeyAction {
    let mut action = KeyAction::Continue;
    for key in keys.chars() {
        let code = match key {
            '\t' => KeyCode::Tab,
            key => KeyCode::Char(key),
        };
        action = screen.handle_key(KeyEvent::from(code), known);
    }
    action
}

/// Where a text is in a frame.
fn place(frame: &str, text: &str) -> usize {
    frame.find(text).unwrap_or_else(|| panic!("no {text:?} in\n{frame}"))
}

#[test]
fn a_wide_frame_has_all_panes_and_a_narrow_one_the_chosen_one() {
    let known = known();
    let mut screen = ScreenState::default();
    let wide = render_frame(&known, &screen, 120, 40).unwrap();
    for text in [
        "GPU use: measured 60.0 %, planned 62.5 %, under ECMP 40.0 %",
        "error: leaf1: broken (and 1 more: crux doctor)",
        "75.0",
        "2 of 2 switches hold generation 3",
        "1 jobs",
        "2 links",
        "3 switches",
        "4 events",
    ] {
        place(&wide, text);
    }
    assert!(place(&wide, "leaf2:4>spine1:2") < place(&wide, "leaf1:4>spine1:1"), "{wide}");
    let narrow = render_frame(&known, &screen, 60, 20).unwrap();
    assert!(narrow.contains("gpt") && !narrow.contains("leaf2:4"), "{narrow}");
    press(&mut screen, &known, "\t");
    let narrow = render_frame(&known, &screen, 60, 20).unwrap();
    assert!(
        narrow.contains("0.450") && narrow.contains("█████ ") && !narrow.contains("TFLOP"),
        "{narrow}"
    );
}

#[test]
fn keys_choose_sort_and_end() {
    let known = known();
    let mut screen = ScreenState::default();
    let order = |screen: &ScreenState| {
        let frame = render_frame(&known, screen, 60, 20).unwrap();
        place(&frame, "gpt") < place(&frame, "bert")
    };
    assert!(order(&screen));
    assert_eq!(press(&mut screen, &known, "s"), KeyAction::Continue);
    assert!(!order(&screen), "by name");
    press(&mut screen, &known, "r");
    assert!(order(&screen), "turned round");
    press(&mut screen, &known, "r3jjjj");
    assert_eq!((screen.pane, screen.pane_view(TopPane::Switches).top), (TopPane::Switches, 1));
    assert_eq!(press(&mut screen, &known, "q"), KeyAction::Quit);
}

#[test]
fn an_unreachable_controller_is_shown() {
    let known = TopSnapshot { trouble: Some("the controller is away".to_owned()), ..known() };
    let frame = render_frame(&known, &ScreenState::default(), 60, 20).unwrap();
    assert!(frame.contains("the controller is away") && frame.contains("gpt"), "{frame}");
}
