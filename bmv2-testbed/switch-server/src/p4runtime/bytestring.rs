//! Integers as P4Runtime writes them: big-endian, in as few bytes as the value needs.
//!
//! Leading zeros are accepted and never sent, so values that are read back are canonical whatever
//! was written (P4Runtime v1.5, "Bytestrings").

use super::error::RequestFailure;

/// Reads an unsigned value of at most `bits` bits.
pub(super) fn decode_bytestring(bytes: &[u8], bits: u32) -> Result<u128, RequestFailure> {
    if bytes.is_empty() {
        return Err(RequestFailure::out_of_range("the value is empty"));
    }
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    let digits = &bytes[start..];
    let value = (digits.len() <= 16)
        .then(|| digits.iter().fold(0u128, |value, &byte| value << 8 | u128::from(byte)))
        .filter(|value| 128 - value.leading_zeros() <= bits);
    value
        .ok_or_else(|| RequestFailure::out_of_range(format!("the value is wider than {bits} bits")))
}

/// Reads a port, and leaves it in the form in which it is sent.
pub(super) fn canonicalize_port(bytes: &mut Vec<u8>) -> Result<u16, RequestFailure> {
    let port = decode_bytestring(bytes, 16)? as u16;
    *bytes = encode_bytestring(port.into());
    Ok(port)
}

/// Writes a value in as few bytes as it needs, zero in one.
pub(super) fn encode_bytestring(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len() - 1);
    bytes[start..].to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    /// The tables of valid and invalid encodings in the specification, unsigned rows.
    #[test]
    fn the_examples_of_the_specification_hold() {
        let read =
            |bytes: &[u8], bits| decode_bytestring(bytes, bits).map_err(|failure| failure.code);
        assert_eq!(read(b"\x63", 8), Ok(0x63));
        assert_eq!(read(b"\x00\x63", 16), Ok(0x63));
        assert_eq!(read(b"\x00\x30\x64", 16), Ok(0x3064));
        assert_eq!(read(b"\x00\x00\x63", 12), Ok(0x63));
        for (bytes, bits) in [
            (b"\x01\x63".as_slice(), 8),
            (b"", 8),
            (b"\x01\x00\x63", 16),
            (b"\x10\x63", 12),
            (b"\x01\x00\x63", 12),
            (b"\x00\x40\x63", 12),
        ] {
            assert_eq!(read(bytes, bits), Err(Code::OutOfRange), "{bytes:?} in {bits} bits");
        }
    }

    proptest! {
        #[test]
        fn entries_are_read_back_in_the_shortest_form(value: u128) {
            let bytes = encode_bytestring(value);
            prop_assert_eq!(decode_bytestring(&bytes, 128), Ok(value));
            prop_assert!(bytes.len() == 1 || bytes[0] != 0);
        }
    }
}
