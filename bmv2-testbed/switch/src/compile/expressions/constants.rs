//! Hexadecimal constants of the JSON.

use crate::compile::LoadError;
use crate::run::expression::NumberExpr;
use crate::spec::FieldRef;

/// A constant as an expression.
pub(super) fn parse_constant(text: &str, at: &str) -> Result<NumberExpr, LoadError> {
    let value = parse_hex(text, at)?;
    Ok(if value < 0 && !text.starts_with('-') {
        NumberExpr::Large(value as u128)
    } else {
        NumberExpr::Const(value)
    })
}

/// A constant of any width, cut into pieces like those of a field.
pub(super) fn parse_wide_constant(
    text: &str,
    like: &[FieldRef],
    at: &str,
) -> Result<Vec<NumberExpr>, LoadError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mut rest = digits;
    let mut pieces = Vec::new();
    for _ in like.iter().rev() {
        let (left, low) =
            rest.split_at_checked(rest.len().saturating_sub(32)).unwrap_or((rest, ""));
        pieces.push(NumberExpr::Const(parse_hex(&format!("0{low}"), at)?));
        rest = left;
    }
    pieces.reverse();
    Ok(pieces)
}

/// A hexadecimal constant, possibly negative, of at most 128 bits.
pub(in crate::compile) fn parse_hex(text: &str, at: &str) -> Result<i128, LoadError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let digits = digits.strip_prefix("0x").unwrap_or(digits).trim_start_matches('0');
    if digits.len() > 32 {
        return Err(LoadError::unsupported("constant of more than 128 bits", at));
    }
    let value = match digits {
        "" if !text.is_empty() => Ok(0),
        digits => u128::from_str_radix(digits, 16),
    };
    let value = value.map_err(|_| LoadError::malformed(format!("{text:?} is not a number"), at))?;
    let value = value as i128;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// A hexadecimal constant that is not negative and fits `bits` bits.
pub(in crate::compile) fn parse_unsigned_hex(
    text: &str,
    bits: u32,
    at: &str,
) -> Result<u128, LoadError> {
    let value = parse_hex(text, at)? as u128;
    if text.starts_with('-') || value & !crate::spec::bit_mask(bits) != 0 {
        return Err(LoadError::malformed(format!("{text} does not fit {bits} bits"), at));
    }
    Ok(value)
}
