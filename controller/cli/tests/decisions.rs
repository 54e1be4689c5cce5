//! `crux bench decisions` as a user meets it: figures that do not depend on threads, the files
//! beside them, and tables.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails where its own set-up fails"
)]

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Runs `crux bench decisions` in `folder` with so many threads.
fn decisions(folder: &TempDir, threads: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crux"))
        .args(["bench", "decisions"])
        .args(arguments)
        .env("RAYON_NUM_THREADS", threads)
        .current_dir(folder.path())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn figures_do_not_depend_on_threads() {
    let folder = TempDir::new().unwrap();
    let files = ["--raw", "raw.json", "--figure", "errors.svg"];
    let run = |threads| {
        let json = ["--cases", "3", "--seed", "7", "--format", "json"];
        let printed = said(&decisions(&folder, threads, &[&json[..], &files].concat()));
        let read = |file| std::fs::read_to_string(folder.path().join(file)).unwrap();
        (printed, read("raw.json"), read("errors.svg"))
    };
    let (printed, raw, figure) = run("1");
    assert_eq!(run("3"), (printed.clone(), raw.clone(), figure.clone()));

    let summary: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["cases"], 3);
    for step in ["paths", "assignment", "compression", "joint"] {
        let ours = &summary["steps"][step]["crux"];
        let (mean, worst) = (ours["mean"].as_f64(), ours["worst"].as_f64());
        assert!(
            worst.unwrap() > 0.9 && mean >= worst && mean.unwrap() <= 1.0,
            "{step}: {ours}"
        );
    }
    let raw: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(raw["summary"], summary);
    assert_eq!(raw["rows"].as_array().unwrap().len(), 3);
    assert!(figure.starts_with("<svg") && figure.contains("single-reference"));
}

#[test]
fn tables_have_the_paper_beside_ours() {
    let folder = TempDir::new().unwrap();
    let table = said(&decisions(&folder, "2", &["--cases", "1"]));
    for part in [
        "1 cases of seed 1",
        "97.69",
        "97.24",
        "97.12",
        "below 95 %",
        "within 0.1 %",
    ] {
        assert!(table.contains(part), "no {part:?} in: {table}");
    }
}

#[test]
fn no_cases_are_refused() {
    let output = decisions(&TempDir::new().unwrap(), "1", &["--cases", "0"]);
    assert_eq!(output.status.code(), Some(2));
}
