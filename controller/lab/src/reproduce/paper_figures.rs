//! One description for each figure of a paper that an experiment reproduces.
//!
//! Forms are those of the papers: what is on the axes, what is beside what, in the papers' order
//! and with their names. A value of the paper is marked only where the paper prints it, or where
//! the graphics of its PDF give it and the row says so.

mod crux_figures;
mod placement_figures;

pub(super) use crux_figures::{
    FIG_6, FIG_7, FIG_16, FIG_19, FIG_20, FIG_21, FIG_22, FIG_23, FIG_23_PROFILES, FIG_24, FIG_25,
    FIG_25_PROFILES,
};
pub(super) use placement_figures::{
    CRIUS_ABLATION, CRIUS_DEADLINES, CRIUS_JCT, SJF_BCO_FIG_4, SJF_BCO_FIG_5, SJF_BCO_FIG_6,
    SJF_BCO_FIG_7,
};

use super::paper_figure::{FigureSeries, PaperChange, RelativeValue, ValuePlace};
use crate::figure::theme::SERIES;

/// Ours where a panel has one series.
const OURS: &[FigureSeries] = &[FigureSeries { name: "ours", key: "", shade: SERIES[0] }];

/// What the paper says of a series in every group, by what it has in the same group.
const fn relative_series(
    series: &'static str,
    over: &'static str,
    change: PaperChange,
) -> RelativeValue {
    relative_value(["", series], ["", over], change)
}

/// What the paper says of a value by another, each given by group and series.
const fn relative_value(
    [group, series]: [&'static str; 2],
    [over_group, over_series]: [&'static str; 2],
    change: PaperChange,
) -> RelativeValue {
    RelativeValue {
        at: ValuePlace { group, series },
        over: ValuePlace { group: over_group, series: over_series },
        change,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::EXPERIMENTS;
    use super::super::stored_results::Reproductions;

    #[test]
    fn all_that_a_figure_shows_is_in_the_stored_results() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let stored = Reproductions::read(root).unwrap();
        for experiment in &EXPERIMENTS {
            let Some(figure) = experiment.figure else { continue };
            let found = stored.find(experiment.name).unwrap();
            let rows = found.rows.iter().map(|row| [row.part.clone(), row.measure.clone()]);
            let rows: BTreeSet<[String; 2]> = rows.collect();
            for row in figure.draw(found).rows {
                assert!(rows.contains(&row), "{}: {row:?}", experiment.name);
            }
        }
    }
}
