//! The committed artefacts belong to the committed source.

use std::fs;
use std::process::Command;

use p4::artefacts::{self, COMPILE, JSON, P4INFO, RECORD, SOURCE};

#[test]
fn the_record_fits_source_and_artefacts() {
    let expected =
        artefacts::compilation_record(artefacts::recorded_compiler(RECORD), [SOURCE, JSON, P4INFO]);
    assert_eq!(RECORD, expected, "run: cargo run -p p4 --example compile");
}

/// Where the recorded p4c-bm2-ss is on PATH, compiling again gives the same bytes.
#[test]
fn compiling_again_changes_nothing() {
    let Ok(output) = Command::new("p4c-bm2-ss").arg("--version").output() else {
        println!("p4c-bm2-ss is not on PATH: only the record was compared");
        return;
    };
    let version = artefacts::compiler_version(&output);
    if version != artefacts::recorded_compiler(RECORD) {
        println!("{version} is not the recorded compiler: only the record was compared");
        return;
    }
    let folder = std::env::temp_dir().join(format!("fabric-p4-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("fabric.p4"), SOURCE).unwrap();
    let compiled = Command::new("p4c-bm2-ss").args(COMPILE).current_dir(&folder).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    assert_eq!(fs::read_to_string(folder.join("fabric.json")).unwrap(), JSON);
    assert_eq!(fs::read_to_string(folder.join("fabric.p4info.txtpb")).unwrap(), P4INFO);
    fs::remove_dir_all(&folder).unwrap();
}
