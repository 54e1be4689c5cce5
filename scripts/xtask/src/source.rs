//! Rust sources as tokens, for rules about names, comments and imports.
//!
//! The decision: a lexer and no parser. Rules then need neither a build nor a syntax tree, and work
//! on code that does not compile yet.

use crate::tree::SourceFile;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or a keyword.
    Word,
    /// `///` of one line, without the slashes.
    OuterDoc,
    /// `//!` of one line, without the slashes.
    InnerDoc,
    /// `//` of one line or `/* */`, without the slashes of the former.
    Comment,
    /// A string, a character or a number.
    Literal,
    /// One character of punctuation.
    Mark,
}

/// A token and the line, from 1, on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Whether it is this keyword or this mark.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Mark) && self.text == text
    }
}

/// The tokens of a text, in order.
pub(crate) fn read_tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = first_token(rest, first);
        let (token, after) = rest.split_at(length);
        if let Some(kind) = kind {
            let text = match kind {
                TokenKind::OuterDoc | TokenKind::InnerDoc => &token[3..],
                TokenKind::Comment => token.strip_prefix("//").unwrap_or(token),
                _ => token,
            };
            tokens.push(Token { kind, text, line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Kind and length of the token that `rest` begins with; no kind for white space and lifetimes.
fn first_token(rest: &str, first: char) -> (Option<TokenKind>, usize) {
    if rest.starts_with("//") {
        let length = rest.find('\n').unwrap_or(rest.len());
        let kind = match rest.as_bytes().get(2) {
            Some(b'/') if rest.as_bytes().get(3) != Some(&b'/') => TokenKind::OuterDoc,
            Some(b'!') => TokenKind::InnerDoc,
            _ => TokenKind::Comment,
        };
        return (Some(kind), length);
    }
    if rest.starts_with("/*") {
        return (Some(TokenKind::Comment), block_comment(rest));
    }
    if let Some(length) = string_literal(rest) {
        return (Some(TokenKind::Literal), length);
    }
    match first {
        '\'' => character_or_lifetime(rest),
        _ if first.is_ascii_digit() => (Some(TokenKind::Literal), word_length(rest)),
        _ if first.is_alphabetic() || first == '_' => (Some(TokenKind::Word), word_length(rest)),
        _ if first.is_whitespace() => (None, first.len_utf8()),
        _ => (Some(TokenKind::Mark), first.len_utf8()),
    }
}

fn word_length(rest: &str) -> usize {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    end.unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Length of a string literal of any kind, if `rest` begins with one.
fn string_literal(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""];
    let prefix = prefix.into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        let length = rest[body..].find(&end).map(|at| body + at + end.len());
        return Some(length.unwrap_or(rest.len()));
    }
    if hashes > 0 {
        return None;
    }
    let mut escaped = false;
    let end = rest[body..].find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    Some(end.map_or(rest.len(), |at| body + at + 1))
}

/// `'a'` and `'\n'` are literals, `'a` is a lifetime.
fn character_or_lifetime(rest: &str) -> (Option<TokenKind>, usize) {
    let inner = &rest[1..];
    if inner.starts_with('\\') {
        let end = inner[2..].find('\'').map_or(rest.len(), |at| at + 4);
        return (Some(TokenKind::Literal), end);
    }
    let width = inner.chars().next().map_or(0, char::len_utf8);
    match inner[width..].starts_with('\'') {
        true => (Some(TokenKind::Literal), width + 2),
        false => (None, 1 + word_length(inner)),
    }
}

/// The tokens without modules under `#[cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match test_module(&tokens[at..]) {
            Some(length) => at += length,
            None => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    kept
}

/// Length of a `#[cfg(test)] mod x { ... }` or `#[cfg(test)] mod x;` at the beginning.
fn test_module(tokens: &[Token<'_>]) -> Option<usize> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let starts =
        tokens.len() > 9 && tokens.iter().zip(ATTRIBUTE).all(|(token, text)| token.is(text));
    if !starts {
        return None;
    }
    let module = tokens.iter().skip(7).position(|token| token.is("mod"))? + 7;
    // Other attributes may stand between; anything else is no module.
    if tokens[7..module].iter().any(|token| token.is("fn") || token.is("{")) {
        return None;
    }
    match tokens.get(module + 2)? {
        token if token.is(";") => Some(module + 3),
        _ => Some(module + 2 + block_length(&tokens[module + 2..])),
    }
}

/// Number of tokens of the block that begins with the first token.
pub(crate) fn block_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Whether a file holds only tests, benchmarks or examples.
pub(crate) fn is_test_file(file: &SourceFile) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    folders.iter().any(|folder| file.path.contains(folder)) || file.path.ends_with("tests.rs")
}

/// The parts of an identifier, in lower case: `HTTPServer2` is `http`, `server2`.
pub(crate) fn split_identifier(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let letters: Vec<char> = identifier.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let after_lower = index > 0 && !letters[index - 1].is_uppercase();
        let before_lower = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase() && (after_lower || before_lower);
        if *letter == '_' || begins {
            words.push(String::new());
        }
        if *letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let tokens = read_tokens(text).into_iter();
        let words = tokens.filter(|token| token.kind == TokenKind::Word);
        words.map(|token| token.text).collect()
    }

    #[test]
    fn strings_characters_and_comments_hide_words() {
        assert_eq!(words("a \"b\" c"), ["a", "c"]);
        assert_eq!(words(r##"a r#"b " c"# d"##), ["a", "d"]);
        assert_eq!(words(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(words("a '\\'' b 'c' d 'e, f"), ["a", "b", "d", "f"]);
        assert_eq!(words("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(words("0x1f 1_u32 x1"), ["x1"]);
    }

    #[test]
    fn kinds_of_comments_are_distinguished() {
        let tokens = read_tokens("//! a\n/// b\n// c\n//// d\n");
        let found: Vec<_> = tokens.iter().map(|t| (t.kind, t.text, t.line)).collect();
        let expected = [
            (TokenKind::InnerDoc, " a", 1),
            (TokenKind::OuterDoc, " b", 2),
            (TokenKind::Comment, " c", 3),
            (TokenKind::Comment, "// d", 4),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn test_modules_are_left_out() {
        let text = "a #[cfg(test)] mod tests { b { c } } d #[cfg(test)] mod e; f";
        let tokens = read_tokens(text);
        let kept = without_tests(&tokens);
        let kept: Vec<_> = kept.iter().map(|token| token.text).collect();
        assert_eq!(kept, ["a", "d", "f"]);
    }

    #[test]
    fn identifiers_are_split_at_humps_and_underscores() {
        assert_eq!(split_identifier("read_HTTPServer2"), ["read", "http", "server2"]);
        assert_eq!(split_identifier("MAX_LINES"), ["max", "lines"]);
    }
}
