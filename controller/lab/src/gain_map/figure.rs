//! The map as one figure: a field for each cell with the points that Crux is above others.

use simulator::{Scheduler, SwitchHash};

use super::cell::HASHES;
use super::result_file::GainMap;
use super::summary::CellGains;
use crate::figure::WIDE;
use crate::figure::heat_map::{HeatField, HeatMap};
use crate::figure::svg_file::{self, HEAD};
use crate::figure::theme::{GRID, LEVELS, SERIES, ThemeShade};

/// Below ECMP.
const RED: ThemeShade = SERIES[8];
/// Below another scheduler.
const OCHRE: ThemeShade = SERIES[5];

/// Points from which a field is so strong; fields below the first are level.
const STEPS: [(f64, usize); 4] = [(0.5, 6), (3.0, 4), (8.0, 3), (15.0, 1)];

/// What a panel shows, and the points that a cell has there.
type MapPanel = (&'static str, fn(&CellGains) -> f64);

pub(super) fn draw_map(map: &GainMap) -> String {
    let all = CellGains::of_map(map);
    let panels: [MapPanel; 2] = [
        (
            "over the best of ecmp, sincronia, varys, taccl, taccl-job, cassini",
            CellGains::over_best,
        ),
        ("over spraying, which needs NICs that accept any order", |one| one.over(Scheduler::Spray)),
    ];
    let legend = [
        ("below ecmp", RED),
        ("below others", OCHRE),
        ("level", GRID),
        ("above by 0.5", LEVELS[6]),
        ("3", LEVELS[4]),
        ("8", LEVELS[3]),
        ("15 points", LEVELS[1]),
    ];
    let title =
        "Crux by oversubscription, hosts, connections (columns), hash, volume, periods (rows)";
    let mut body = svg_file::draw_heading(title, legend.into_iter());
    let mut bottom = HEAD;
    for (name, points) in panels {
        let drawn = heat_map(&all, name, points).draw();
        body += &svg_file::translate_group(0, bottom, &drawn.body);
        bottom += drawn.height;
    }
    svg_file::wrap_file((WIDE, bottom), &body)
}

/// Columns are the first three parameters of [`super::cell::MapCell::all`], rows the hash and the
/// other two.
fn heat_map(all: &[CellGains], name: &str, points: fn(&CellGains) -> f64) -> HeatMap {
    let mut map = HeatMap::new(format!("GPU utilisation, points {name}"));
    for one in all {
        let cell = one.cell;
        let column = [
            format!("{}:1", cell.oversubscription),
            cell.sharing.name().to_owned(),
            cell.connections.to_string(),
        ];
        let row = [
            match HASHES[one.hash] {
                SwitchHash::Independent => "own hashes",
                _ => "same hash",
            }
            .to_owned(),
            format!("volume {}", cell.volume),
            cell.spread.name().to_owned(),
        ];
        let value = points(one);
        let shade = if one.is_below_ecmp() { RED } else { point_shade(value) };
        // Adding zero makes -0 a plain 0.
        map.add_field(
            row,
            column,
            HeatField { text: format!("{:.0}", value.round() + 0.0), shade },
        );
    }
    map
}

fn point_shade(points: f64) -> ThemeShade {
    if points < -0.5 {
        return OCHRE;
    }
    let step = STEPS.iter().rev().find(|(least, _)| points >= *least);
    step.map_or(GRID, |(_, level)| LEVELS[*level])
}
