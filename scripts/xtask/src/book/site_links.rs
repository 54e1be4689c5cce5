//! The links of a built site: each leads to a file of it, and to an element with that id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::page_text::resolve_path;

/// Pages of mdBook itself, whose links are relative to where they are shown.
const OWN_PAGES: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// Links that lead nowhere, as `page: target`.
pub(super) fn broken_site_links(site: &Path) -> Result<Vec<String>, String> {
    let mut pages: BTreeMap<String, String> = BTreeMap::new();
    for file in html_files(site)? {
        let text = std::fs::read_to_string(site.join(&file)).map_err(|error| error.to_string())?;
        pages.insert(file, text);
    }
    let ids: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(page, text)| (page.as_str(), attributes(text, "id").collect()))
        .collect();
    let mut broken = Vec::new();
    for (page, text) in pages.iter().filter(|(page, _)| !OWN_PAGES.contains(&page.as_str())) {
        let targets: BTreeSet<&str> = attributes(text, "href").collect();
        let wrong = targets.into_iter().filter(|target| !leads_somewhere(page, target, site, &ids));
        broken.extend(wrong.map(|target| format!("{page}: {target}")));
    }
    Ok(broken)
}

fn leads_somewhere(
    page: &str,
    target: &str,
    site: &Path,
    ids: &BTreeMap<&str, BTreeSet<&str>>,
) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, id) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_owned(),
        file => resolve_path(page, file),
    };
    let has_id = ids.get(path.as_str()).is_none_or(|ids| id.is_empty() || ids.contains(id));
    site.join(&path).is_file() && has_id
}

/// Paths of all pages of a site, from its root, ascending.
pub(super) fn html_files(site: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(site.join(&folder)).map_err(|error| error.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let path = folder.join(entry.file_name());
            match path.extension().is_some_and(|ending| ending == "html") {
                true => found.push(path.to_string_lossy().into_owned()),
                false if entry.path().is_dir() => folders.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The values of an attribute in a page.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let places: Vec<usize> =
        text.match_indices(&opening).map(|(at, _)| at + opening.len()).collect();
    places.into_iter().filter_map(|at| text[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_ids_are_found() {
        let site = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(site.path().join(name), text).unwrap();
        std::fs::create_dir(site.path().join("docs")).unwrap();
        write("index.html", r##"<a href="docs/a.html#x"> <a href="https://x.org">"##);
        write(
            "docs/a.html",
            r##"<h1 id="x"> <a href="#x"> <a href="../index.html"> <a href="../f.toml">"##,
        );
        write("f.toml", "");
        assert_eq!(broken_site_links(site.path()).unwrap(), [""; 0]);
        write("docs/b.html", r##"<a href="a.html#y"> <a href="c.html"> <a href="#z">"##);
        let expected = ["docs/b.html: #z", "docs/b.html: a.html#y", "docs/b.html: c.html"];
        assert_eq!(broken_site_links(site.path()).unwrap(), expected);
    }
}
