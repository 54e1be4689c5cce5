//! Every page of `docs/` is on the site: in its table of contents, once, or linked from there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::RuleViolations;
use crate::book::SUMMARY;
use crate::page_text::{page_links, resolve_path};
use crate::tree::{self, SourceFile};

pub(super) fn check_pages(root: &Path) -> Result<RuleViolations, String> {
    let pages = tree::read_files(root, ".md")?;
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let summary = summary.ok_or(format!("{SUMMARY} is missing"))?;
    Ok(compare_pages(summary, &pages))
}

fn compare_pages(summary: &SourceFile, pages: &[SourceFile]) -> RuleViolations {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for (_, target) in page_links(&summary.text) {
        *listed.entry(resolve_path(SUMMARY, target)).or_default() += 1;
    }
    let known = |path: &str| pages.iter().any(|page| page.path == path);
    let missing = listed.keys().filter(|page| !known(page));
    let missing = missing.map(|page| format!("{SUMMARY}: there is no page {page}"));
    let repeated = listed.iter().filter(|(_, count)| **count > 1);
    let repeated = repeated.map(|(page, _)| format!("{SUMMARY}: {page} stands there twice"));
    // Pages that listed pages link to are on the site as well (`cargo xtask book`).
    let of_site = pages.iter().filter(|page| listed.contains_key(&page.path));
    let links = of_site.flat_map(|page| {
        page_links(&page.text)
            .map(|(_, target)| target.split('#').next().unwrap_or_default())
            .map(|target| resolve_path(&page.path, target))
    });
    let linked: BTreeSet<String> = links.collect();
    let own = pages.iter().filter(|page| page.path.starts_with("docs/") && page.path != SUMMARY);
    let orphans =
        own.filter(|page| !listed.contains_key(&page.path) && !linked.contains(&page.path));
    let orphans = orphans.map(|page| format!("{}: not in {SUMMARY}; add it", page.path));
    missing.chain(repeated).chain(orphans).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> SourceFile {
        let (path, text) = (path.to_owned(), text.to_owned());
        SourceFile { path, text }
    }

    #[test]
    fn orphans_missing_and_repeated_entries_are_found() {
        let summary = |text| page(SUMMARY, text);
        let pages =
            [page("docs/a.md", "[d](d.md)"), page("docs/b/c.md", ""), page("README.md", "")];
        let check = |text| compare_pages(&summary(text), &pages);
        assert_eq!(check("[x](../README.md)\n- [a](a.md)\n    - [c](b/c.md)"), [""; 0]);
        assert_eq!(check("- [a](a.md)"), ["docs/b/c.md: not in docs/SUMMARY.md; add it"]);
        assert_eq!(check("- [a](a.md)\n- [a](a.md)\n- [c](b/c.md)\n- [d](d.md)").len(), 2);
    }
}
