//! Links between pages lead somewhere: to a file or folder of the tree, and to a heading of it.

use std::collections::BTreeMap;

use crate::check::RuleViolations;
use crate::page_text::{heading_names, page_links, resolve_path};
use crate::tree::SourceFile;

/// Links to files or headings that do not exist.
pub(super) fn broken_links(pages: &[SourceFile], files: &[String]) -> RuleViolations {
    let by_path: BTreeMap<&str, &SourceFile> =
        pages.iter().map(|page| (page.path.as_str(), page)).collect();
    let mut found = RuleViolations::new();
    for page in pages {
        for (line, target) in page_links(&page.text) {
            let problem = link_problem(page, target, &by_path, files);
            found.extend(problem.map(|problem| format!("{}:{line}: {problem}", page.path)));
        }
    }
    found
}

fn link_problem(
    page: &SourceFile,
    target: &str,
    pages: &BTreeMap<&str, &SourceFile>,
    files: &[String],
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.path.clone(),
        file => resolve_path(&page.path, file),
    };
    let folder = format!("{path}/");
    let exists = files.iter().any(|known| *known == path || known.starts_with(&folder));
    if !exists {
        return Some(format!("{target} leads to {path}, which does not exist"));
    }
    let linked = pages.get(path.as_str()).filter(|_| !heading.is_empty())?;
    let has_heading = heading_names(&linked.text).any(|slug| slug == heading);
    (!has_heading).then(|| format!("{target} leads to a heading that {path} does not have"))
}

#[cfg(test)]
mod tests {
    use super::super::test_file;
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let files = ["docs/a.md", "p4/src/lib.rs"].map(str::to_owned);
        let count = |text: &str| broken_links(&[test_file("docs/a.md", text)], &files).len();
        assert_eq!(count("[x](../p4/src/lib.rs) [y](../p4) [z](https://x.org/y)"), 0);
        assert_eq!(count("[x](b.md)"), 1);
        assert_eq!(count("[x](../p4/src/lib.rs) [y](../p4/main.rs)"), 1);
        assert_eq!(count("# On `P4`: it\n[x](#on-p4-it) [y](a.md#other)"), 1);
        assert_eq!(count("```\n[x](b.md)\n```\n"), 0);
    }
}
