//! One description for each figure of a paper that an experiment reproduces, as
//! `paper_figures.toml` has them.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};
use topology::document::{self, DocumentFormat};

use super::paper_figure::PaperFigure;

#[derive(Deserialize)]
struct FigureDocument {
    figure: Vec<Map<String, Value>>,
}

static FIGURES: LazyLock<Vec<PaperFigure>> = LazyLock::new(|| {
    let text = include_str!("paper_figures.toml");
    let read = document::parse_document(text, DocumentFormat::Toml, "paper_figures.toml");
    let document: FigureDocument = read.expect("a test reads the file");
    document.figure.into_iter().map(read_figure).collect()
});

/// A figure whose panels have its fields where they have none of their own.
fn read_figure(figure: Map<String, Value>) -> PaperFigure {
    let shared = figure.clone();
    let mut read = figure;
    let panels = read.get_mut("panel").and_then(Value::as_array_mut);
    for panel in panels.into_iter().flatten().filter_map(Value::as_object_mut) {
        for (name, value) in shared.iter().filter(|(name, _)| *name != "panel") {
            panel.entry(name).or_insert_with(|| value.clone());
        }
    }
    serde_json::from_value(Value::Object(read)).expect("a test reads the file")
}

/// The figure of the paper that an experiment repeats, if it is one.
pub(super) fn figure_of(experiment: &str) -> Option<&'static PaperFigure> {
    FIGURES.iter().find(|figure| figure.experiments.iter().any(|name| name == experiment))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::EXPERIMENTS;
    use super::super::stored_results::Reproductions;
    use super::*;

    #[test]
    fn all_that_a_figure_shows_is_in_the_stored_results() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let stored = Reproductions::read(root).unwrap();
        for (figure, name) in FIGURES
            .iter()
            .flat_map(|figure| figure.experiments.iter().map(move |name| (figure, name)))
        {
            assert!(EXPERIMENTS.iter().any(|experiment| experiment.name == name), "{name}");
            let found = stored.find(name).unwrap();
            let rows = found.rows.iter().map(|row| [row.part.clone(), row.measure.clone()]);
            let rows: BTreeSet<[String; 2]> = rows.collect();
            for row in figure.draw(found).rows {
                assert!(rows.contains(&row), "{name}: {row:?}");
            }
        }
    }
}
