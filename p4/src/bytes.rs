//! Canonical byte strings of P4Runtime: big-endian, no leading zero byte, at least one byte.
//!
//! Only [`codec`](crate::codec) and the reader of P4Info use them; everywhere else values are
//! numbers. The decision: strict when writing, lenient when reading, because switches
//! return padded strings and comparing those with our own would reinstall entries forever.

/// The canonical byte string of a value.
pub fn encode_value(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros.min(bytes.len() - 1)..].to_vec()
}

/// The value of a byte string, canonical or padded; `None` if it is empty or exceeds 128 bits.
pub fn decode_value(bytes: &[u8]) -> Option<u128> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let significant = &bytes[zeros..];
    let fits = !bytes.is_empty() && significant.len() <= size_of::<u128>();
    fits.then(|| significant.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodings_are_shortest() {
        let cases: [(u128, &[u8]); 5] =
            [(0, &[0]), (1, &[1]), (255, &[255]), (256, &[1, 0]), (0x0a00_0102, &[10, 0, 1, 2])];
        for (value, bytes) in cases {
            assert_eq!(encode_value(value), bytes);
            assert_eq!(decode_value(bytes), Some(value));
        }
    }

    #[test]
    fn padding_is_accepted_and_nonsense_is_not() {
        assert_eq!(decode_value(&[0, 0, 7]), Some(7));
        assert_eq!(decode_value(&[0; 40]), Some(0));
        assert_eq!(decode_value(&[]), None);
        assert_eq!(decode_value(&[1; 17]), None);
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(value: u128) {
            prop_assert_eq!(decode_value(&encode_value(value)), Some(value));
        }
    }
}
