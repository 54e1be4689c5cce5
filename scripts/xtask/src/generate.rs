//! Files that the program itself writes: JSON Schemas of its documents, the OpenAPI document of the
//! controller, its man pages and the page of its commands.

use std::path::Path;
use std::process::ExitCode;

use crate::check::RuleViolations;
use crate::{configuration_page, tree};

const SCHEMAS: [&str; 9] = [
    "fabric",
    "jobs",
    "policy",
    "plan",
    "outcome",
    "comparison",
    "replay",
    "decisions",
    "configuration",
];

/// A generated file: its path from the root and its text.
struct GeneratedFile {
    path: String,
    text: String,
}

impl GeneratedFile {
    fn write_below(self, root: &Path) -> Result<(), String> {
        let path = root.join(&self.path);
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&path, self.text)).map_err(|error| error.to_string())
    }

    fn is_stale(&self, root: &Path) -> bool {
        std::fs::read_to_string(root.join(&self.path)).unwrap_or_default() != self.text
    }
}

/// Writes every generated file.
pub(crate) fn write_generated(root: &Path) -> ExitCode {
    let written = generate_files(root)
        .and_then(|files| files.into_iter().try_for_each(|file| file.write_below(root)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask generate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Generated files that are not what the program writes today.
pub(crate) fn check_generated(root: &Path) -> Result<RuleViolations, String> {
    let stale = generate_files(root)?.into_iter().filter(|file| file.is_stale(root));
    Ok(stale.map(|file| format!("{}: stale; run cargo xtask generate", file.path)).collect())
}

fn generate_files(root: &Path) -> Result<Vec<GeneratedFile>, String> {
    let mut files = Vec::new();
    for kind in SCHEMAS {
        let text = run_crux(root, &["schema", kind])?;
        files.push(GeneratedFile { path: format!("docs/schemas/{kind}.schema.json"), text });
    }
    let configuration = run_crux(root, &["schema", "configuration"])?;
    files.push(GeneratedFile {
        path: "docs/configuration.md".to_owned(),
        text: configuration_page::render_page(&configuration)?,
    });
    files.push(GeneratedFile {
        path: "docs/openapi.json".to_owned(),
        text: run_crux(root, &["schema", "openapi"])?,
    });
    files.push(GeneratedFile {
        path: "docs/commands.md".to_owned(),
        text: run_crux(root, &["man", "--markdown"])?,
    });
    for page in run_crux(root, &["man", "--list"])?.lines() {
        let text = run_crux(root, &["man", page])?;
        files.push(GeneratedFile { path: format!("docs/man/{page}.1"), text });
    }
    Ok(files)
}

fn run_crux(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let run = [&["run", "--quiet", "--package", "crux", "--"], arguments].concat();
    tree::command_output(root, "cargo", &run)
}
