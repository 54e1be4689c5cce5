//! The programs and what p4c made of them, embedded.
//!
//! [`ForwardingPipeline::embedded_fabric`](crate::ForwardingPipeline::embedded_fabric) loads
//! `fabric.p4`. The decision: the compiled artefacts are committed, so that nobody needs p4c to
//! build or run; a lock file records of which source and by which compiler they were made, and a
//! test compares.

use std::process::Output;

use sha2::{Digest, Sha256};

/// A program and what p4c made of it.
#[derive(Clone, Copy, Debug)]
pub struct CompiledProgram {
    /// Its name: the stem of its four files.
    pub name: &'static str,
    /// Its folder, relative to that of this crate.
    pub folder: &'static str,
    /// Its source.
    pub source: &'static str,
    /// The program for BMv2 and for the embedded switch.
    pub json: &'static str,
    /// Its interface, as text.
    pub p4info: &'static str,
    /// The record of their compilation.
    pub record: &'static str,
}

/// Embeds the four files of the program of this name in this folder.
macro_rules! compiled_program {
    ($folder:literal, $name:literal) => {
        CompiledProgram {
            name: $name,
            folder: $folder,
            source: include_str!(concat!("../", $folder, "/", $name, ".p4")),
            json: include_str!(concat!("../", $folder, "/", $name, ".json")),
            p4info: include_str!(concat!("../", $folder, "/", $name, ".p4info.txtpb")),
            record: include_str!(concat!("../", $folder, "/", $name, ".lock")),
        }
    };
}

/// `fabric.p4`, the program of our own tables.
pub const FABRIC: CompiledProgram = compiled_program!(".", "fabric");

/// `sai.p4`, the fixed tables of SAI P4 with ACL tables of our own.
pub const SAI: CompiledProgram = compiled_program!("sai", "sai");

/// What the compile example compiles and the tests of artefacts compare with their records.
pub const PROGRAMS: [CompiledProgram; 2] = [FABRIC, SAI];

impl CompiledProgram {
    /// The names of its source, JSON and P4Info.
    pub fn file_names(&self) -> [String; 3] {
        ["p4", "json", "p4info.txtpb"].map(|extension| format!("{}.{extension}", self.name))
    }

    /// The compiler's arguments, to be run in the folder of the source: no path gets into the
    /// artefacts.
    pub fn compiler_arguments(&self) -> [String; 7] {
        let [source, json, p4info] = self.file_names();
        ["--std", "p4-16", "--p4runtime-files", &p4info, "-o", &json, &source].map(str::to_owned)
    }

    /// The record of a compilation of these files: the compiler's version and the SHA-256 of
    /// source, JSON and P4Info.
    pub fn compilation_record(&self, compiler: &str, files: [&str; 3]) -> String {
        let hashes = self.file_names().into_iter().zip(files);
        let hashes = hashes.map(|(name, text)| format!("{:x}  {name}\n", Sha256::digest(text)));
        format!("{compiler}\n{}", hashes.collect::<String>())
    }
}

/// The compiler that a record names.
pub fn recorded_compiler(record: &str) -> &str {
    record.lines().next().unwrap_or_default()
}

/// The compiler that printed `output` when asked for its `--version`.
pub fn compiler_version(output: &Output) -> String {
    // p4c prints it to standard error.
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("Version"));
    format!("p4c-bm2-ss {}", line.unwrap_or("of unknown version").trim())
}
