//! The map in tables: how Crux stands to each other scheduler, where, and the cells that matter.

use comfy_table::Table;
use simulator::Scheduler;

use super::cell::{HASHES, MapCell};
use super::cell_run::{HashResult, SCHEDULERS};
use super::result_file::GainMap;
use command_io::CommandError;
use command_io::output;

/// Schedulers that need no more of switches and hosts than Crux does: paths, levels and starts.
/// Spraying needs NICs that accept packets out of order, `varys-madd` a rate for every flow.
const COMPARABLE: [Scheduler; 6] = [
    Scheduler::Ecmp,
    Scheduler::Sincronia,
    Scheduler::Varys,
    Scheduler::Taccl,
    Scheduler::TacclJob,
    Scheduler::Cassini,
];

/// Points within which two schedulers are level.
const LEVEL_POINTS: f64 = 0.5;

/// Crux is below ECMP if it loses more than results are rounded to.
pub(super) const BELOW_ECMP: f64 = -0.05;

/// Points by which Crux exceeds its rivals in the Clos of Fig. 23.
const PAPER_MARGIN: [f64; 2] = [13.0, 23.0];

/// Cells that are listed at most.
const LISTED: usize = 12;

/// One cell with one hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellGains {
    pub(super) cell: MapCell,
    pub(super) hash: usize,
    /// Mean utilisation under Crux, in per cent.
    crux: f64,
    /// Points of Crux over each of [`SCHEDULERS`], means over the seeds.
    over: [f64; SCHEDULERS.len()],
}

impl CellGains {
    /// All cells, by number and then by hash.
    pub(super) fn of_map(map: &GainMap) -> Vec<Self> {
        let cells = MapCell::all().into_iter().enumerate();
        let with_hash = cells.flat_map(|cell| (0..HASHES.len()).map(move |hash| (cell, hash)));
        let crux = |result: &HashResult| result[Scheduler::Crux.name()];
        let of_cell = |((number, cell), hash)| Self {
            cell,
            hash,
            crux: map.mean(number, hash, crux),
            over: SCHEDULERS
                .map(|other| map.mean(number, hash, |result| crux(result) - result[other.name()])),
        };
        with_hash.map(of_cell).collect()
    }

    /// Points of Crux over another scheduler.
    pub(super) fn over(&self, other: Scheduler) -> f64 {
        let place = SCHEDULERS.iter().position(|known| *known == other);
        self.over[place.expect("every scheduler of the map is in the table")]
    }

    /// Points of Crux over the best of the comparable ones.
    pub(super) fn over_best(&self) -> f64 {
        COMPARABLE.into_iter().map(|other| self.over(other)).fold(f64::INFINITY, f64::min)
    }

    pub(super) fn is_below_ecmp(&self) -> bool {
        self.over(Scheduler::Ecmp) < BELOW_ECMP
    }

    /// Whether the margins over all of these are those of Fig. 23.
    fn has_paper_margins(&self, others: &[Scheduler]) -> bool {
        let [least, most] = PAPER_MARGIN;
        others.iter().all(|other| (least..=most).contains(&self.over(*other)))
    }

    fn describe(&self) -> String {
        let MapCell { oversubscription, connections, sharing, volume, spread } = self.cell;
        format!(
            "{oversubscription}:1, {connections} conn., {}, volume {volume}, periods {}, {}",
            sharing.name(),
            spread.name(),
            HASHES[self.hash]
        )
    }
}

pub(super) fn print_summary(map: &GainMap) -> Result<(), CommandError> {
    let all = CellGains::of_map(map);
    output::print_line(format_args!("{} cells, {} seeds each\n", all.len(), map.seeds.len()))?;
    output::print_line(scheduler_table(&all))?;
    output::print_line("\nPoints of GPU utilisation of Crux over others, means over the seeds.\n")?;
    output::print_line(parameter_table(&all))?;
    output::print_line(
        "\nBest other: the best of ecmp, sincronia, varys, taccl, taccl-job and cassini.",
    )?;
    let of_paper = [Scheduler::Sincronia, Scheduler::Cassini];
    let with = |taccl: Scheduler| [&of_paper[..], &[taccl]].concat();
    for (about, cells) in [
        ("Crux below ecmp", select(&all, CellGains::is_below_ecmp)),
        ("Crux below the best other", select(&all, |one| one.over_best() < -LEVEL_POINTS)),
        (
            "+13 to +23 over sincronia, cassini and taccl, as Fig. 23 of Crux",
            select(&all, |one| one.has_paper_margins(&with(Scheduler::Taccl))),
        ),
        (
            "+13 to +23 over sincronia, cassini and taccl-job",
            select(&all, |one| one.has_paper_margins(&with(Scheduler::TacclJob))),
        ),
    ] {
        output::print_line(format_args!("\n{about}: {} cells", cells.len()))?;
        if !cells.is_empty() {
            output::print_line(cell_table(&cells))?;
        }
    }
    Ok(())
}

fn select(all: &[CellGains], is_wanted: impl Fn(&CellGains) -> bool) -> Vec<&CellGains> {
    all.iter().filter(|one| is_wanted(one)).collect()
}

fn scheduler_table(all: &[CellGains]) -> Table {
    let headings = ["Crux over", "mean", "least", "most", "above", "level", "below"];
    let mut table = output::new_table(headings);
    for other in SCHEDULERS.into_iter().filter(|other| *other != Scheduler::Crux) {
        let points: Vec<f64> = all.iter().map(|one| one.over(other)).collect();
        let count = |is_counted: fn(f64) -> bool| {
            points.iter().filter(|points| is_counted(**points)).count().to_string()
        };
        let first = [other.name().to_owned()].into_iter().chain(format_points(&points));
        table.add_row(first.chain([
            count(|points| points > LEVEL_POINTS),
            count(|points| points.abs() <= LEVEL_POINTS),
            count(|points| points < -LEVEL_POINTS),
        ]));
    }
    table
}

/// Mean, least and most.
fn format_points(points: &[f64]) -> [String; 3] {
    let mean = points.iter().sum::<f64>() / points.len() as f64;
    let least = points.iter().copied().fold(f64::INFINITY, f64::min);
    let most = points.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Adding zero makes -0 a plain 0.
    [mean, least, most].map(|value| format!("{:+.1}", (value * 10.0).round() / 10.0 + 0.0))
}

/// A parameter, and its value in a cell as text.
type ParameterText = (&'static str, fn(&CellGains) -> String);

fn parameter_table(all: &[CellGains]) -> Table {
    let parameters: [ParameterText; 6] = [
        ("oversubscription", |one| format!("{}:1", one.cell.oversubscription)),
        ("connections", |one| one.cell.connections.to_string()),
        ("hosts", |one| one.cell.sharing.name().to_owned()),
        ("volume", |one| one.cell.volume.to_string()),
        ("periods", |one| one.cell.spread.name().to_owned()),
        ("hash", |one| HASHES[one.hash].to_string()),
    ];
    let headings =
        ["parameter", "value", "over ecmp", "over best other", "over spray", "below ecmp"];
    let mut table = output::new_table(headings);
    for (name, text) in parameters {
        let mut values: Vec<String> = Vec::new();
        for value in all.iter().map(text) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        for value in values {
            let cells = select(all, |one| text(one) == value);
            let mean = |of: fn(&CellGains) -> f64| {
                let points: Vec<f64> = cells.iter().map(|one| of(one)).collect();
                format_points(&points)[0].clone()
            };
            let below = cells.iter().filter(|one| one.is_below_ecmp()).count();
            table.add_row([
                name.to_owned(),
                value,
                mean(|one| one.over(Scheduler::Ecmp)),
                mean(CellGains::over_best),
                mean(|one| one.over(Scheduler::Spray)),
                below.to_string(),
            ]);
        }
    }
    table
}

fn cell_table(cells: &[&CellGains]) -> Table {
    let others = [
        Scheduler::Ecmp,
        Scheduler::Sincronia,
        Scheduler::Cassini,
        Scheduler::Taccl,
        Scheduler::TacclJob,
        Scheduler::CruxPa,
    ];
    let mut table = output::new_table([""; 0]);
    let names = others.iter().map(|other| other.name());
    table.set_header(["cell", "crux %"].into_iter().chain(names));
    for one in cells.iter().take(LISTED) {
        let over = others.iter().map(|other| format!("{:+.1}", one.over(*other)));
        table.add_row([one.describe(), format!("{:.1}", one.crux)].into_iter().chain(over));
    }
    if cells.len() > LISTED {
        table.add_row(["...".to_owned()]);
    }
    table
}
