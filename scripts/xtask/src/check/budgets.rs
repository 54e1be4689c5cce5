//! Budgets of style.md that no lint knows: length of files, width of lines, tests that hide.
//!
//! Length of functions and number of parameters are clippy's (clippy.toml).

use std::path::Path;

use super::RuleViolations;
use crate::tree::{self, SourceFile};

/// Lines of a file before its tests.
const MAX_LINES: usize = 500;
/// Columns of a line.
const MAX_WIDTH: usize = 100;

pub(super) fn check_budgets(root: &Path) -> Result<RuleViolations, String> {
    Ok(tree::rust_files(root)?.iter().flat_map(file_violations).collect())
}

fn file_violations(file: &SourceFile) -> RuleViolations {
    let mut found = RuleViolations::new();
    let lines = lines_without_tests(file);
    if lines > MAX_LINES {
        found.push(format!("{}: {lines} lines without tests, at most {MAX_LINES}", file.path));
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        let broken = too_wide(line).or_else(|| ignored_test(line)).or_else(|| undocumented(line));
        found.extend(broken.map(|what| format!("{}:{number}: {what}", file.path)));
    }
    let opens_with_doc = file.text.starts_with("//!") || file.text.starts_with("#!");
    if !opens_with_doc {
        found.push(format!("{}: open the file with what it is (//!)", file.path));
    }
    found
}

fn lines_without_tests(file: &SourceFile) -> usize {
    let is_test_file = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    if is_test_file {
        return 0;
    }
    file.text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

fn too_wide(line: &str) -> Option<String> {
    let width = line.chars().count();
    (width > MAX_WIDTH).then(|| format!("{width} columns, at most {MAX_WIDTH}"))
}

fn ignored_test(line: &str) -> Option<String> {
    let attribute = concat!("#[", "ignore");
    line.trim_start().starts_with(attribute).then(|| "a test is run or deleted".to_owned())
}

fn undocumented(line: &str) -> Option<String> {
    let attribute = concat!("allow(", "missing_docs)");
    let generated = line.contains("generated");
    (line.contains(attribute) && !generated).then(|| "document it instead".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        file_violations(&SourceFile { path: "a/src/b.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn exceeded_budgets_are_found() {
        assert_eq!(found("//! A noun.\n"), 0);
        assert_eq!(found("fn a() {}\n"), 1);
        assert_eq!(found(&format!("//! A noun.\n//{}\n", "-".repeat(99))), 1);
        assert_eq!(found(&format!("//! A noun.\n{}", "//\n".repeat(500))), 1);
        assert_eq!(found(&format!("//! A noun.\n#[cfg(test)]\n{}", "//\n".repeat(500))), 0);
        assert_eq!(found(concat!("//! A noun.\n    #[", "ignore = \"slow\"]\n")), 1);
    }
}
