//! `cargo xtask book`: the documentation as a site, by mdBook.
//!
//! The decision: the pages are copied to where they stand in the tree, together with every file
//! that they link to, so a link is the same on a code host and on the site. One thing is rewritten:
//! a README is the index of its folder. The generated reference pages exist on the site alone.
//! Links are checked where the pages are written, by [`crate::check`].

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::page_text::{page_links, page_title, resolve_path};
use crate::{generate, tree};

/// The table of contents, from the root of the tree.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
/// Where pages and site are built, from the root of the tree.
const SOURCES: &str = "target/book-sources";
const SITE: &str = "target/book";
/// Where the generated pages are on the site.
const REFERENCE: &str = "reference";
/// Files that mdBook reads beside the pages.
const SETTINGS: [&str; 2] = ["book.toml", "site.css"];

/// Builds the site.
pub(crate) fn build_book(root: &Path) -> ExitCode {
    match build_site(root) {
        Ok(()) => {
            println!("{SITE}/index.html: open it, or serve the folder");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask book: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build_site(root: &Path) -> Result<(), String> {
    if !has_mdbook() {
        return Err("mdbook is not on the path; install it: cargo install --locked mdbook".into());
    }
    let sources = root.join(SOURCES);
    generate::write_files(root, &generate::build_programs(root)?)?;
    copy_sources(root, &sources)?;
    let site = std::path::absolute(root.join(SITE)).map_err(|error| error.to_string())?;
    let folders = [&sources, &site].map(|folder| folder.to_string_lossy().into_owned());
    tree::run_command(root, "mdbook", &["build", &folders[0], "--dest-dir", &folders[1]])
}

fn has_mdbook() -> bool {
    let mut asked = Command::new("mdbook");
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Writes the book's folder anew: settings, pages, and what the pages link to.
fn copy_sources(root: &Path, sources: &Path) -> Result<(), String> {
    if sources.exists() {
        std::fs::remove_dir_all(sources).map_err(|error| error.to_string())?;
    }
    let summary = read_text(root, SUMMARY)?;
    let listed: BTreeSet<String> =
        page_links(&summary).map(|(_, target)| resolve_path(SUMMARY, target)).collect();
    let copied = linked_files(root, &listed)?;
    for path in &copied {
        let target = sources.join("src").join(site_text(path));
        match path.ends_with(".md") {
            true => write_text(&target, &site_text(&read_text(root, path)?))?,
            false => copy_file(&root.join(path), &target)?,
        }
    }
    let further = copied.iter().filter(|path| path.ends_with(".md") && !listed.contains(*path));
    let contents = table_of_contents(root, &summary, further)?;
    write_text(&sources.join("src/SUMMARY.md"), &site_text(&contents))?;
    copy_reference(root, &sources.join("src").join(REFERENCE))?;
    SETTINGS
        .iter()
        .try_for_each(|name| copy_file(&root.join("docs").join(name), &sources.join(name)))
}

/// Copies the generated pages, and the schemas that they link to.
fn copy_reference(root: &Path, reference: &Path) -> Result<(), String> {
    let generated = root.join(generate::FOLDER);
    for (_, page) in generate::PAGES {
        copy_file(&generated.join(page), &reference.join(page))?;
    }
    copy_file(&generated.join("openapi.json"), &reference.join("openapi.json"))?;
    let schemas =
        std::fs::read_dir(generated.join("schemas")).map_err(|error| error.to_string())?;
    for schema in schemas {
        let schema = schema.map_err(|error| error.to_string())?;
        copy_file(&schema.path(), &reference.join("schemas").join(schema.file_name()))?;
    }
    Ok(())
}

/// A path, or a page with its links, in which a README is the index of its folder.
fn site_text(text: &str) -> String {
    let mut moved = text.replace("README.md)", "index.md)").replace("README.md#", "index.md#");
    if let Some(folder) = moved.strip_suffix("README.md") {
        moved = format!("{folder}index.md");
    }
    moved
}

/// The listed pages, and all files that they and the pages among these link to.
fn linked_files(root: &Path, listed: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    let mut found = listed.clone();
    let mut waiting: VecDeque<String> = listed.iter().cloned().collect();
    while let Some(page) = waiting.pop_front() {
        for (_, target) in page_links(&read_text(root, &page)?) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let path = resolve_path(&page, file);
            let is_new = root.join(&path).is_file() && found.insert(path.clone());
            if is_new && path.ends_with(".md") {
                waiting.push_back(path);
            }
        }
    }
    Ok(found)
}

/// The table of contents with paths from the root, and parts for generated pages and for pages that
/// others link to.
fn table_of_contents<'a>(
    root: &Path,
    summary: &str,
    further: impl Iterator<Item = &'a String>,
) -> Result<String, String> {
    let mut contents = String::new();
    for line in summary.lines() {
        let moved = line.split_once("](").and_then(|(title, rest)| {
            let target = resolve_path(SUMMARY, rest.trim_end().strip_suffix(')')?);
            Some(format!("{title}]({target})"))
        });
        contents.push_str(moved.as_deref().unwrap_or(line));
        contents.push('\n');
    }
    contents.push_str("\n# Reference\n\n");
    for (title, page) in generate::PAGES {
        contents.push_str(&format!("- [{title}]({REFERENCE}/{page})\n"));
    }
    contents.push_str("\n# Beside the sources\n\n");
    for path in further {
        let text = read_text(root, path)?;
        contents.push_str(&format!("- [{}]({path})\n", page_title(&text).unwrap_or(path)));
    }
    Ok(contents)
}

fn read_text(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    create_parent(to)?;
    let copied = std::fs::copy(from, to);
    copied.map(|_| ()).map_err(|error| format!("{}: {error}", from.display()))
}

fn write_text(path: &Path, text: &str) -> Result<(), String> {
    create_parent(path)?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn create_parent(path: &Path) -> Result<(), String> {
    let parent: Option<PathBuf> = path.parent().map(Path::to_path_buf);
    parent.map_or(Ok(()), std::fs::create_dir_all).map_err(|error| error.to_string())
}
