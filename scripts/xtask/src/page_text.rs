//! Pages of the documentation as text: their titles, links and headings.

/// The title of a page: its first heading.
pub(crate) fn page_title(text: &str) -> Option<&str> {
    prose_lines(text).find_map(|(_, line)| line.strip_prefix("# "))
}

/// Line and target of each `[text](target)` and `[text]: target` outside of code blocks.
pub(crate) fn page_links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose_lines(text).flat_map(|(number, line)| {
        let inline = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let reference = line.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1));
        inline.chain(reference).map(move |target| (number, target.trim()))
    })
}

/// Lines outside of code blocks, with their numbers.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Line and text of each command in blocks of shell, and after the prompts of those of a console.
pub(crate) fn shell_commands(text: &str) -> Vec<(usize, String)> {
    let mut language = None;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(opened) = line.strip_prefix("```") {
            language = language.is_none().then_some(opened);
            continue;
        }
        let command = match language {
            Some("sh") => Some(line),
            Some("console") => line.strip_prefix("$ "),
            _ => None,
        };
        found.extend(command.map(|command| (number, command.to_owned())));
    }
    found
}

/// The names under which headings are linked to: lower case, words joined by hyphens.
pub(crate) fn heading_names(text: &str) -> impl Iterator<Item = String> {
    let lines = prose_lines(text).filter(|(_, line)| line.starts_with('#'));
    lines.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// The path from the root that `target` means on the page `from`.
pub(crate) fn resolve_path(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_links_and_commands_are_found() {
        let text = "# T\n[a](b.md) and [c](d.md#e)\n```\n[x](y.md)\n```\n[f]: g.rs\n";
        let found: Vec<_> = page_links(text).collect();
        assert_eq!(found, [(2, "b.md"), (2, "d.md#e"), (6, "g.rs")]);
        assert_eq!(page_title(text), Some("T"));
        let text = "```sh\nls\n```\n```toml\na = 1\n```\n```console\n$ id\nuid=0\n```\n";
        assert_eq!(shell_commands(text), [(2, "ls".to_owned()), (8, "id".to_owned())]);
    }
}
