//! Numbers, masked numbers and packet patterns of STF.

/// Hexadecimal digits with `*` for any, and `$` at the end where nothing may follow.
#[derive(Clone, Debug)]
pub(super) struct PacketPattern {
    digits: Vec<Option<u8>>,
    is_whole: bool,
}

impl PacketPattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (digits, is_whole) = match text.strip_suffix('$') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let digits = digits
            .chars()
            .map(|letter| match letter {
                '*' => Some(None),
                letter => letter.to_digit(16).map(|digit| Some(digit as u8)),
            })
            .collect::<Option<_>>()?;
        Some(Self { digits, is_whole })
    }

    /// Whether a packet is as expected.
    pub(super) fn matches_packet(&self, packet: &[u8]) -> bool {
        let given: Vec<u8> = packet.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
        let fits =
            given.len() == self.digits.len() || !self.is_whole && given.len() > self.digits.len();
        let agree =
            |(wanted, given): (&Option<u8>, &u8)| wanted.is_none_or(|digit| digit == *given);
        fits && self.digits.iter().zip(&given).all(agree)
    }
}

/// Bytes from hexadecimal digits.
pub(super) fn parse_hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|letter| letter.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    let pairs = digits.chunks(2);
    pairs.map(|pair| Some(pair[0] << 4 | pair.get(1)?)).collect()
}

/// A number: decimal, `0x`, `0b` or `0o`.
pub(super) fn parse_number(text: &str) -> Option<u128> {
    let (value, mask) = parse_masked(text)?;
    (mask == u128::MAX).then_some(value)
}

/// A number whose digits may be `*` for any: value and mask.
pub(super) fn parse_masked(text: &str) -> Option<(u128, u128)> {
    let (digits, bits) = match text.get(..2) {
        Some("0x") => (&text[2..], 4),
        Some("0b") => (&text[2..], 1),
        Some("0o") => (&text[2..], 3),
        _ if text == "true" => return Some((1, u128::MAX)),
        _ if text == "false" => return Some((0, u128::MAX)),
        _ => return text.parse().ok().map(|value| (value, u128::MAX)),
    };
    let mut value = (0_u128, u128::MAX);
    for letter in digits.chars() {
        let (digit, mask) = match letter {
            '*' => (0, 0),
            letter => (letter.to_digit(1 << bits)?, u128::MAX >> (128 - bits)),
        };
        value = (value.0 << bits | u128::from(digit), value.1 << bits | mask);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_any_digit() {
        assert_eq!(parse_masked("0x1*"), Some((0x10, !0xf)));
        assert_eq!(parse_number("0b101"), Some(5));
        assert_eq!(parse_number("17"), Some(17));
        assert_eq!(parse_number("0x*"), None);
    }

    #[test]
    fn a_pattern_is_a_prefix_unless_it_is_closed() {
        let open = PacketPattern::parse("1*2").unwrap();
        assert!(open.matches_packet(&[0x1f, 0x23, 0x45]));
        assert!(!open.matches_packet(&[0x1f]));
        assert!(!PacketPattern::parse("1f$").unwrap().matches_packet(&[0x1f, 0]));
    }
}
