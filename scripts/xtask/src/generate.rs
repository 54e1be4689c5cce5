//! `cargo xtask generate`: what the program writes about itself, in `target/generated`.
//!
//! These are the JSON Schemas of its documents, the OpenAPI document of the controller, its man
//! pages, and the reference pages of commands, configuration and reproductions. None of them is in the tree: a
//! copy there would have to be renewed with every flag. `cargo xtask check` makes them all and
//! checks that each is what it should be; packages and the site take them from the folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::check::RuleViolations;
use crate::{configuration_page, tree};

/// Where the files are written, from the root of the tree.
pub(crate) const FOLDER: &str = "target/generated";
/// The reference pages among them, with their titles on the site.
pub(crate) const PAGES: [(&str, &str); 3] = [
    ("Commands", "commands.md"),
    ("Configuration", "configuration.md"),
    ("Measures of reproductions", "reproduction.md"),
];

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

/// A generated file.
struct GeneratedFile {
    /// Its path from [`FOLDER`].
    path: String,
    text: String,
}

impl GeneratedFile {
    fn write_below(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(&self.path);
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        parent.and_then(|()| std::fs::write(&path, &self.text)).map_err(|error| error.to_string())
    }

    /// What is wrong with it: a generator that writes nothing fails no command.
    fn violations(&self) -> RuleViolations {
        let path = &self.path;
        let found = match path.rsplit_once('/') {
            Some(("man", page)) => man_page_problem(page.trim_end_matches(".1"), &self.text),
            Some(("schemas", _)) => return schema_problems(path, &self.text),
            _ if path == "openapi.json" => openapi_problem(&self.text),
            _ => page_problem(&self.text),
        };
        found.map(|problem| format!("{path}: {problem}")).into_iter().collect()
    }
}

/// Writes every generated file; `programs` is a folder of built programs, or they are built.
pub(crate) fn write_generated(root: &Path, programs: Option<&str>) -> ExitCode {
    let programs = match programs {
        // The programs are started in the root, wherever this was called.
        Some(folder) => std::path::absolute(folder).map_err(|error| error.to_string()),
        None => build_programs(root),
    };
    let written = programs.and_then(|programs| write_files(root, &programs));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask generate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the files with the programs of a folder.
pub(crate) fn write_files(root: &Path, programs: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    // Pages of commands that are gone must not reach a package.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    generate_files(root, programs)?.iter().try_for_each(|file| file.write_below(&folder))
}

/// Generated files that are not what they should be.
pub(crate) fn check_generated(root: &Path) -> Result<RuleViolations, String> {
    let files = generate_files(root, &build_programs(root)?)?;
    Ok(files.iter().flat_map(GeneratedFile::violations).collect())
}

/// Builds the programs, and returns their folder.
pub(crate) fn build_programs(root: &Path) -> Result<PathBuf, String> {
    tree::run_command(root, "cargo", &["build", "--quiet", "--workspace", "--bins"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    Ok(root.join(target.map_or_else(|| "target".into(), PathBuf::from)).join("debug"))
}

fn generate_files(root: &Path, programs: &Path) -> Result<Vec<GeneratedFile>, String> {
    // The one program that has every command.
    let program = programs.join("crux-lab");
    let program = program.to_string_lossy();
    let run = |arguments: &[&str]| tree::command_output(root, &program, arguments);
    let mut files = Vec::new();
    let mut add = |path: String, text: String| files.push(GeneratedFile { path, text });
    for kind in SCHEMAS {
        add(format!("schemas/{kind}.schema.json"), run(&["schema", kind])?);
    }
    let page = configuration_page::render_page(&run(&["schema", "configuration"])?)?;
    add("configuration.md".to_owned(), page);
    add("openapi.json".to_owned(), run(&["schema", "openapi"])?);
    add("commands.md".to_owned(), run(&["man", "--markdown"])?);
    let stored = run(&["reproduce", "all", "--stored", "--format", "markdown"])?;
    add("reproduction.md".to_owned(), stored);
    for page in run(&["man", "--list"])?.lines() {
        add(format!("man/{page}.1"), run(&["man", page])?);
    }
    Ok(files)
}

fn man_page_problem(name: &str, text: &str) -> Option<String> {
    let head = format!(".TH {name} 1");
    (!text.contains(&head)).then(|| format!("has no line {head:?}"))
}

fn page_problem(text: &str) -> Option<String> {
    let is_page = text.starts_with("# ") && text.contains("\n|---|");
    (!is_page).then(|| "has no title or no table".to_owned())
}

/// The tests of the daemon compare operations with endpoints and RPCs; here they have to be there.
fn openapi_problem(text: &str) -> Option<String> {
    let document: Value = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => return Some(error.to_string()),
    };
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations: Vec<&Value> = paths
        .flat_map(|(_, methods)| methods.as_object().into_iter().flatten())
        .map(|(_, operation)| operation)
        .collect();
    let is_described = |operation: &&Value| {
        operation["operationId"].is_string() && operation["summary"].is_string()
    };
    let is_complete = !operations.is_empty() && operations.iter().all(is_described);
    (!is_complete).then(|| "has no operations, or one without id or summary".to_owned())
}

/// Objects whose fields have no description, and schemas without any field.
fn schema_problems(path: &str, text: &str) -> RuleViolations {
    let schema: Value = match serde_json::from_str(text) {
        Ok(schema) => schema,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut fields = Vec::new();
    collect_fields(&schema, &mut fields);
    if fields.is_empty() {
        return vec![format!("{path}: describes no field")];
    }
    let silent = fields.iter().filter(|(_, property)| !is_described(&schema, property));
    silent.map(|(name, _)| format!("{path}: the field {name} has no description")).collect()
}

/// A field says what it is, or its type does.
fn is_described(schema: &Value, property: &Value) -> bool {
    let of_type = property["$ref"].as_str().and_then(|at| schema.pointer(at.strip_prefix('#')?));
    let says = |value: &Value| value["description"].as_str().is_some_and(|text| !text.is_empty());
    says(property) || of_type.is_some_and(says)
}

/// Name and schema of every field, wherever it stands.
fn collect_fields<'a>(value: &'a Value, fields: &mut Vec<(&'a str, &'a Value)>) {
    if let Some(properties) = value["properties"].as_object() {
        fields.extend(properties.iter().map(|(name, property)| (name.as_str(), property)));
    }
    match value {
        Value::Object(members) => members.values().for_each(|one| collect_fields(one, fields)),
        Value::Array(items) => items.iter().for_each(|one| collect_fields(one, fields)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str, text: &str) -> usize {
        GeneratedFile { path: path.to_owned(), text: text.to_owned() }.violations().len()
    }

    #[test]
    fn files_that_say_nothing_are_found() {
        assert_eq!(found("man/crux-plan.1", ".TH crux-plan 1\n"), 0);
        assert_eq!(found("man/crux-plan.1", ".TH crux 1\n"), 1);
        assert_eq!(found("commands.md", "# Commands\n\n| a | b |\n|---|---|\n"), 0);
        assert_eq!(found("commands.md", "\n"), 1);
        let operation = r#"{"operationId": "ListJobs", "summary": "Jobs"}"#;
        let document = |of: &str| format!(r#"{{"paths": {{"/v1/jobs": {{"get": {of}}}}}}}"#);
        assert_eq!(found("openapi.json", &document(operation)), 0);
        assert_eq!(found("openapi.json", &document("{}")), 1);
        assert_eq!(found("openapi.json", r#"{"paths": {}}"#), 1);
    }

    #[test]
    fn fields_without_a_description_are_found() {
        let check = |schema: &Value| found("schemas/jobs.schema.json", &schema.to_string());
        let mut host = json!({
            "properties": {"host": {"$ref": "#/$defs/Host"}},
            "$defs": {"Host": {"description": "A server."}}
        });
        assert_eq!(check(&host), 0);
        host["$defs"]["Host"] = json!({});
        assert_eq!(check(&host), 1);
        assert_eq!(check(&json!({"$defs": {"Job": {"properties": {"name": {}}}}})), 1);
        assert_eq!(check(&json!({})), 1);
    }
}
