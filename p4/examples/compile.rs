//! Compiles the programs with the p4c-bm2-ss on PATH and records each in its lock file.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use p4::artefacts::{self, CompiledProgram, PROGRAMS};

fn main() -> Result<(), Box<dyn Error>> {
    let version = Command::new("p4c-bm2-ss").arg("--version").output()?;
    let version = artefacts::compiler_version(&version);
    PROGRAMS.iter().try_for_each(|program| compile_program(program, &version))
}

fn compile_program(program: &CompiledProgram, version: &str) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(program.folder);
    let mut compiler = Command::new("p4c-bm2-ss");
    if !compiler.current_dir(&folder).args(program.compiler_arguments()).status()?.success() {
        return Err(format!("p4c-bm2-ss refused {}.p4", program.name).into());
    }
    let [source, json, p4info] = program.file_names();
    let read = |name: &String| fs::read_to_string(folder.join(name));
    let files = [read(&source)?, read(&json)?, read(&p4info)?];
    let record = program.compilation_record(version, files.each_ref().map(String::as_str));
    fs::write(folder.join(format!("{}.lock", program.name)), record)?;
    Ok(())
}
