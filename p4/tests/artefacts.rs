//! The committed artefacts belong to the committed sources.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::process::Command;

use p4::artefacts::{self, CompiledProgram, PROGRAMS};

#[test]
fn records_fit_sources_and_artefacts() {
    for program in PROGRAMS {
        let compiler = artefacts::recorded_compiler(program.record);
        let files = [program.source, program.json, program.p4info];
        let expected = program.compilation_record(compiler, files);
        assert_eq!(program.record, expected, "run: cargo run -p p4 --example compile");
    }
}

/// Where the recorded p4c-bm2-ss is on PATH, compiling again gives the same bytes.
#[test]
fn compiling_again_changes_nothing() {
    let Ok(output) = Command::new("p4c-bm2-ss").arg("--version").output() else {
        println!("p4c-bm2-ss is not on PATH: only the records were compared");
        return;
    };
    let version = artefacts::compiler_version(&output);
    for program in PROGRAMS {
        if version == artefacts::recorded_compiler(program.record) {
            compile_again(program);
        } else {
            println!("{version} is not the recorded compiler: only the record was compared");
        }
    }
}

fn compile_again(program: CompiledProgram) {
    let folder = std::env::temp_dir().join(format!("{}-p4-{}", program.name, std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [source, json, p4info] = program.file_names().map(|name| folder.join(name));
    fs::write(source, program.source).unwrap();
    let mut compiler = Command::new("p4c-bm2-ss");
    let compiled = compiler.args(program.compiler_arguments()).current_dir(&folder).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    assert_eq!(fs::read_to_string(json).unwrap(), program.json);
    assert_eq!(fs::read_to_string(p4info).unwrap(), program.p4info);
    fs::remove_dir_all(&folder).unwrap();
}
