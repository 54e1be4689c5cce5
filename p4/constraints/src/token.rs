//! The words of a constraint. The decision: every word keeps where it stood, so that an error and a
//! violated clause can be quoted from the source.

use crate::ConstraintProblem;
use crate::condition::Integer;

/// A word of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A key, attribute, keyword or type of address, with its dots.
    Name(String),
    Number(Integer),
    /// What stands between quotes.
    Quoted(String),
    /// An operator or bracket.
    Symbol(&'static str),
}

/// A word and its bytes in the text.
#[derive(Clone, Debug)]
pub(super) struct PlacedToken {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Longer ones first: a symbol may begin another.
const SYMBOLS: [&str; 15] =
    ["::", "&&", "||", "->", "==", "!=", "<=", ">=", "<", ">", "!", "-", "(", ")", ";"];

/// The words of a text without its comments.
pub(super) fn split_tokens(text: &str) -> Result<Vec<PlacedToken>, (usize, ConstraintProblem)> {
    let mut tokens = Vec::new();
    let mut rest = skip_blanks(text);
    while !rest.is_empty() {
        let start = text.len() - rest.len();
        let (token, after) = next_token(rest).map_err(|problem| (start, problem))?;
        tokens.push(PlacedToken { token, start, end: text.len() - after.len() });
        rest = skip_blanks(after);
    }
    Ok(tokens)
}

fn skip_blanks(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return rest;
        };
        rest = after.trim_start();
    }
}

fn next_token(text: &str) -> Result<(Token, &str), ConstraintProblem> {
    if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| text.starts_with(symbol)) {
        return Ok((Token::Symbol(symbol), &text[symbol.len()..]));
    }
    if let Some(quote) = ['\'', '"'].into_iter().find(|quote| text.starts_with(*quote)) {
        let (quoted, after) = text[1..].split_once(quote).ok_or(ConstraintProblem::OpenQuote)?;
        return Ok((Token::Quoted(quoted.to_owned()), after));
    }
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '$');
    let end = text.find(|it| !is_part(it)).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    match word.chars().next() {
        None => Err(ConstraintProblem::Character(text.chars().next().unwrap_or_default())),
        Some('0'..='9') => {
            let number =
                parse_number(word).ok_or_else(|| ConstraintProblem::Number(word.into()))?;
            Ok((Token::Number(Integer::from(number)), after))
        }
        Some(_) => Ok((Token::Name(word.to_owned()), after)),
    }
}

/// A number, whose digits may be separated by `_`.
fn parse_number(word: &str) -> Option<u128> {
    let word = word.replace('_', "");
    let prefix = word.get(..2).unwrap_or_default();
    let radix = match prefix {
        "0x" | "0X" => 16,
        "0o" | "0O" => 8,
        "0b" | "0B" => 2,
        "0d" | "0D" => 10,
        _ => return word.parse().ok(),
    };
    u128::from_str_radix(&word[2..], radix).ok()
}
