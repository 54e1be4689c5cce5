//! Every page of `docs/` is on the site: in its table of contents, once, or linked from there. What
//! readers come for is two clicks from README.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::RuleViolations;
use crate::book::SUMMARY;
use crate::page_text::{page_links, resolve_path};
use crate::tree::{self, SourceFile};

const ENTRANCE: &str = "README.md";
const MAX_CLICKS: usize = 2;

/// Sections that answer what readers come for.
const TASKS: [&str; 5] = [
    "docs/recipes.md#replace-a-spine-without-losing-a-packet",
    "docs/recipes.md#add-a-leaf-or-remove-a-host",
    "docs/bring-your-jobs.md#slurm",
    "docs/gain.md",
    "docs/glossary.md",
];

pub(super) fn check_pages(root: &Path) -> Result<RuleViolations, String> {
    let pages = tree::read_files(root, ".md")?;
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let summary = summary.ok_or(format!("{SUMMARY} is missing"))?;
    let mut found = compare_pages(summary, &pages);
    found.extend(distant_sections(&TASKS, &pages));
    Ok(found)
}

/// Sections that no chain of so few links leads to.
fn distant_sections(sections: &[&str], pages: &[SourceFile]) -> RuleViolations {
    let mut reached: BTreeSet<String> = [ENTRANCE.to_owned()].into();
    for _ in 0..MAX_CLICKS {
        let read = |page: &&SourceFile| {
            reached.iter().any(|place| place.split('#').next() == Some(&page.path))
        };
        let links = pages.iter().filter(read).flat_map(|page| {
            page_links(&page.text).map(|(_, target)| resolve_path(&page.path, target))
        });
        let next: Vec<String> = links.collect();
        reached.extend(next);
    }
    let distant = sections.iter().filter(|section| !reached.contains(**section));
    distant
        .map(|section| format!("{ENTRANCE}: {section} is more than {MAX_CLICKS} links away"))
        .collect()
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
    fn sections_that_are_far_away_are_found() {
        let pages = [
            page(ENTRANCE, "[a](docs/a.md)"),
            page("docs/a.md", "[b](b.md#here)"),
            page("docs/b.md", "[c](c.md)"),
        ];
        assert_eq!(distant_sections(&["docs/a.md", "docs/b.md#here"], &pages), [""; 0]);
        assert_eq!(distant_sections(&["docs/b.md#there", "docs/c.md"], &pages).len(), 2);
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
