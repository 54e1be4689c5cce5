//! Documentation that says nothing: blocks of three words or fewer on public items, and blocks that
//! begin with "The same".

use crate::check::RuleViolations;
use crate::source::{Token, TokenKind, is_test_file, read_tokens, without_tests};
use crate::tree::SourceFile;

/// Words of a documentation block on a public item, at least.
const MIN_WORDS: usize = 4;
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "union", "type", "const", "static", "mod"];

pub(super) fn empty_docs(file: &SourceFile) -> RuleViolations {
    if is_test_file(file) {
        return RuleViolations::new();
    }
    let tokens = without_tests(&read_tokens(&file.text));
    let mut found = RuleViolations::new();
    let mut at = 0;
    while at < tokens.len() {
        let lines =
            tokens[at..].iter().take_while(|token| token.kind == TokenKind::OuterDoc).count();
        if lines > 0 {
            let (block, after) = tokens[at..].split_at(lines);
            let problem = block_problem(block, after);
            found.extend(problem.map(|what| format!("{}:{}: {what}", file.path, block[0].line)));
        }
        at += lines.max(1);
    }
    found
}

fn block_problem(block: &[Token<'_>], after: &[Token<'_>]) -> Option<String> {
    let text: Vec<&str> = block.iter().flat_map(|line| line.text.split_whitespace()).collect();
    if let ["The", "same" | "same," | "same.", ..] = text[..] {
        return Some("say what it is instead of \"The same ...\"".to_owned());
    }
    let is_short = text.len() < MIN_WORDS && is_public_item(after);
    is_short.then(|| format!("{:?} repeats the name; delete it or say more", text.join(" ")))
}

/// Whether an item that other crates see follows, behind its attributes; fields are no items.
fn is_public_item(mut tokens: &[Token<'_>]) -> bool {
    while tokens.first().is_some_and(|token| token.is("#")) {
        tokens = &tokens[attribute_length(tokens)..];
    }
    let words: Vec<&str> = tokens.iter().take(5).map(|token| token.text).collect();
    match words[..] {
        ["pub", "(", ..] => false,
        ["pub", ref rest @ ..] => rest.iter().take(3).any(|word| ITEMS.contains(word)),
        _ => false,
    }
}

fn attribute_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(1) {
        depth += i32::from(token.is("[")) - i32::from(token.is("]"));
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::super::test_file;
    use super::*;

    #[test]
    fn blocks_without_information_are_found() {
        let count = |text: &str| empty_docs(&test_file("a/src/b.rs", text)).len();
        assert_eq!(count("/// Its name.\n#[must_use]\npub fn name() {}"), 1);
        assert_eq!(count("/// One switch.\n#[derive(Debug)]\npub struct Device {"), 1);
        assert_eq!(count("/// The same,\n/// sorted by rank of the jobs.\nfn sorted() {}"), 1);
        assert_eq!(count("/// Name of a host or switch.\npub fn node_name() {}"), 0);
        assert_eq!(count("/// Its name.\npub(crate) fn name() {}"), 0);
        assert_eq!(count("struct A {\n/// Its name.\npub name: String }"), 0);
        assert_eq!(count("#[cfg(test)]\nmod tests {\n/// Its name.\npub fn name() {} }"), 0);
    }
}
