//! Every library has its line in docs/dependencies.md, and every line its library.

use std::collections::BTreeSet;
use std::path::Path;

use super::RuleViolations;

pub(super) fn check_dependencies(root: &Path) -> Result<RuleViolations, String> {
    let used = workspace_libraries(&read_page(root, "Cargo.toml")?);
    let justified = justified_libraries(&read_page(root, "docs/dependencies.md")?);
    let missing = used
        .difference(&justified)
        .map(|name| format!("docs/dependencies.md: say why {name} is here"));
    let stale = justified
        .difference(&used)
        .map(|name| format!("docs/dependencies.md: {name} is no longer used"));
    Ok(missing.chain(stale).collect())
}

fn read_page(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Names under `[workspace.dependencies]` that are not our own crates.
fn workspace_libraries(manifest: &str) -> BTreeSet<String> {
    let section = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let entries = section.filter_map(|line| line.split_once(" = "));
    entries
        .filter(|(_, value)| !value.contains("path ="))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Names in the first column of the document's tables.
fn justified_libraries(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_reasons_are_read() {
        let manifest = "[workspace.dependencies]\nours = { path = \"ours\" }\nserde = \"1\"\n[x]\n";
        assert_eq!(workspace_libraries(manifest), BTreeSet::from(["serde".to_owned()]));
        assert_eq!(
            justified_libraries("| `serde` | why |\n"),
            BTreeSet::from(["serde".to_owned()])
        );
    }
}
