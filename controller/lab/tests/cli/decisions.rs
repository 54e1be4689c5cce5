//! `crux bench decisions` as a user meets it: figures that do not depend on threads, the files
//! beside them, and tables.

use std::process::Output;

use serde_json::Value;

use super::support::{Files, printed};

/// Runs `crux bench decisions` with so many threads.
fn decisions(files: &Files, threads: &str, arguments: &[&str]) -> Output {
    let arguments = [&["bench", "decisions"], arguments].concat();
    let mut command = files.command(&arguments);
    command.env("RAYON_NUM_THREADS", threads).output().unwrap()
}

#[test]
fn figures_do_not_depend_on_threads() {
    let folder = Files::with(&[]);
    let files = ["--raw", "raw.json", "--figure", "errors.svg"];
    let run = |threads| {
        let json = ["--cases", "3", "--seed", "7", "--format", "json"];
        let output = decisions(&folder, threads, &[&json[..], &files].concat());
        let (raw, figure) = (folder.text("raw.json"), folder.text("errors.svg"));
        (printed(&output).to_owned(), raw, figure)
    };
    let (printed, raw, figure) = run("1");
    assert_eq!(run("3"), (printed.clone(), raw.clone(), figure.clone()));

    let summary: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["cases"], 3);
    for step in ["paths", "assignment", "compression", "joint"] {
        let ours = &summary["steps"][step]["crux"];
        let (mean, worst) = (ours["mean"].as_f64(), ours["worst"].as_f64());
        assert!(worst.unwrap() > 0.9 && mean >= worst && mean.unwrap() <= 1.0, "{step}: {ours}");
    }
    let raw: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(raw["summary"], summary);
    assert_eq!(raw["rows"].as_array().unwrap().len(), 3);
    assert!(figure.starts_with("<svg") && figure.contains("single-reference"));
}

#[test]
fn tables_have_the_paper_beside_ours() {
    let folder = Files::with(&[]);
    let output = decisions(&folder, "2", &["--cases", "1"]);
    let table = printed(&output);
    for part in ["1 cases of seed 1", "97.69", "97.24", "97.12", "below 95 %", "within 0.1 %"] {
        assert!(table.contains(part), "no {part:?} in: {table}");
    }
}

#[test]
fn no_cases_are_refused() {
    let output = decisions(&Files::with(&[]), "1", &["--cases", "0"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn fairness_trades_utilisation_for_the_worst_job() {
    let folder = Files::with(&[]);
    let arguments = ["bench", "fairness", "--cases", "2", "--format", "json"];
    let arguments = [&arguments[..], &["--figure", "fairness.svg"]].concat();
    let output = folder.command(&arguments).output().unwrap();
    let curve: Value = serde_json::from_str(printed(&output)).unwrap();
    let points = curve["points"].as_array().unwrap();
    assert_eq!(points.len(), 16);
    for planner in points.chunks(8) {
        let slowdown = |point: &Value| point["worst_slowdown_mean"].as_f64().unwrap();
        let (plain, fair) = (&planner[0], &planner[7]);
        assert_eq!((&plain["fairness"], &fair["fairness"]), (&0.0.into(), &1.0.into()));
        assert!(slowdown(fair) <= slowdown(plain), "{planner:?}");
    }
    assert_eq!(folder.text("fairness.svg").matches("<circle").count(), 16);
}
