//! Compiles `fabric.p4` with the p4c-bm2-ss on PATH and records it in `fabric.lock`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use p4::artefacts;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compile = || {
        let mut command = Command::new("p4c-bm2-ss");
        command.current_dir(folder);
        command
    };
    if !compile().args(artefacts::COMPILE).status()?.success() {
        return Err("p4c-bm2-ss refused fabric.p4".into());
    }
    let version = artefacts::compiler_version(&compile().arg("--version").output()?);
    let read = |name| fs::read_to_string(folder.join(name));
    let files = [read("fabric.p4")?, read("fabric.json")?, read("fabric.p4info.txtpb")?];
    let record = artefacts::compilation_record(&version, files.each_ref().map(String::as_str));
    fs::write(folder.join("fabric.lock"), record)?;
    Ok(())
}
