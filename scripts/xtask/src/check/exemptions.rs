//! What no attribute exempts from: tests are run, public items are documented, and a file opens with
//! what it is.
//!
//! The compiler accepts `ignore` and an allowed `missing_docs` in silence, and does not ask for the
//! documentation of private modules.

use std::path::Path;

use super::RuleViolations;
use crate::tree::{self, SourceFile};

pub(super) fn check_exemptions(root: &Path) -> Result<RuleViolations, String> {
    Ok(tree::rust_files(root)?.iter().flat_map(file_violations).collect())
}

fn file_violations(file: &SourceFile) -> RuleViolations {
    let mut found = RuleViolations::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let broken = ignored_test(line).or_else(|| undocumented(line));
        found.extend(broken.map(|what| format!("{}:{number}: {what}", file.path)));
    }
    let opens_with_doc = file.text.starts_with("//!") || file.text.starts_with("#!");
    if !opens_with_doc {
        found.push(format!("{}: open the file with what it is (//!)", file.path));
    }
    found
}

fn ignored_test(line: &str) -> Option<String> {
    // In two parts, so that this file does not break its own rule.
    let attribute = concat!("#[", "ignore");
    line.trim_start().starts_with(attribute).then(|| "a test is run or deleted".to_owned())
}

fn undocumented(line: &str) -> Option<String> {
    let attribute = concat!("allow(", "missing_docs)");
    // Nobody can document what a generator writes.
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
    fn files_that_exempt_themselves_are_found() {
        assert_eq!(found("//! A noun.\n"), 0);
        assert_eq!(found("fn a() {}\n"), 1);
        assert_eq!(found(concat!("//! A noun.\n    #[", "ignore = \"slow\"]\n")), 1);
        assert_eq!(found(concat!("//! A noun.\n#[allow(", "missing_docs)]\n")), 1);
    }
}
