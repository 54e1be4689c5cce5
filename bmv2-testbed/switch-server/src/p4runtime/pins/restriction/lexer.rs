//! The words of a restriction, with the place of each in the text.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConstraintToken<'a> {
    Name(&'a str),
    Number(u128),
    Quoted(&'a str),
    Mark(&'static str),
}

/// The longer marks first: `->` is not `-`, `<=` is not `<`.
const MARKS: [&str; 16] =
    ["->", "::", "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "-", ";", "(", ")", ","];

/// The words of a text and where each begins.
pub(super) fn split_words(text: &str) -> Result<Vec<(usize, ConstraintToken<'_>)>, String> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            words.push((at, ConstraintToken::Mark(mark)));
            at += mark.len();
        } else if first == '\'' || first == '"' {
            let inner = &rest[1..];
            let end = inner.find(first).ok_or("a quote is not closed")?;
            words.push((at, ConstraintToken::Quoted(&inner[..end])));
            at += end + 2;
        } else {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let word = &rest[..end];
            match first {
                '0'..='9' => words.push((at, ConstraintToken::Number(parse_number(word)?))),
                _ if is_part(first) && first != '.' => {
                    words.push((at, ConstraintToken::Name(word)));
                }
                _ => return Err(format!("unexpected `{first}`")),
            }
            at += end;
        }
    }
    Ok(words)
}

/// Decimal, or hexadecimal, octal or binary with `0x`, `0o` or `0b`; `_` may separate digits.
fn parse_number(word: &str) -> Result<u128, String> {
    let digits = word.replace('_', "").to_lowercase();
    let radixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = radixes.iter().find_map(|(prefix, radix)| {
        digits.strip_prefix(prefix).map(|digits| u128::from_str_radix(digits, *radix))
    });
    let number = prefixed.unwrap_or_else(|| digits.parse());
    number.map_err(|_| format!("`{word}` is no number of 128 bits"))
}
