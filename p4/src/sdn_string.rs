//! Values of fields and parameters: numbers, or strings that stand for numbers of the switch.
//!
//! P4Info declares such a string as `sdn_string`; the switch translates it
//! (`@p4runtime_translation`). The decision: a string is a value of its own and not an encoded
//! number, so that nothing shifts, masks or pads it, and its bytes on the wire are the string
//! itself. It may be empty, as the name of the default VRF is.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

/// An identifier that the switch translates: at most [`SdnString::MAX_BYTES`] bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SdnString(Arc<str>);

/// A string is too long to be an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an identifier of {0} bytes; at most {max} are allowed", max = SdnString::MAX_BYTES)]
pub struct SdnStringTooLong(pub usize);

/// The value of a field or of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldValue {
    /// A number of at most 128 bits.
    Number(u128),
    /// A string of any content.
    Text(SdnString),
}

impl SdnString {
    /// How long an identifier may be. P4Runtime has no bound; a message of a switch must not decide
    /// how much memory a row takes.
    pub const MAX_BYTES: usize = 255;

    /// As it is on the wire, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identifier of a numbered thing, after a short prefix.
    pub(crate) fn numbered(prefix: &'static str, number: u32) -> Self {
        Self(format!("{prefix}{number}").into())
    }

    /// The identifier with these bytes; `None` if they are too many or not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::try_from(std::str::from_utf8(bytes).ok()?).ok()
    }
}

impl Default for SdnString {
    /// The empty string.
    fn default() -> Self {
        Self("".into())
    }
}

impl TryFrom<&str> for SdnString {
    type Error = SdnStringTooLong;

    fn try_from(text: &str) -> Result<Self, SdnStringTooLong> {
        match text.len() {
            0..=Self::MAX_BYTES => Ok(Self(text.into())),
            bytes => Err(SdnStringTooLong(bytes)),
        }
    }
}

impl FieldValue {
    /// The number; `None` for a string.
    pub fn number(&self) -> Option<u128> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    /// The string; `None` for a number.
    pub fn text(&self) -> Option<&SdnString> {
        match self {
            Self::Number(_) => None,
            Self::Text(text) => Some(text),
        }
    }
}

impl<T: Into<u128>> From<T> for FieldValue {
    fn from(number: T) -> Self {
        Self::Number(number.into())
    }
}

impl From<SdnString> for FieldValue {
    fn from(text: SdnString) -> Self {
        Self::Text(text)
    }
}

impl Debug for SdnString {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

impl Display for SdnString {
    /// Quoted, and with escapes in place of control characters: a switch may return any text.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_encoding_are_checked() {
        let longest = "a".repeat(SdnString::MAX_BYTES);
        assert_eq!(SdnString::try_from(&*longest).unwrap().as_str(), longest);
        assert_eq!(
            SdnString::try_from(&*(longest + "b")).unwrap_err().to_string(),
            "an identifier of 256 bytes; at most 255 are allowed"
        );
        assert_eq!(SdnString::from_bytes(&[0xff]), None);
        assert_eq!(SdnString::from_bytes(b"").unwrap().as_str(), "");
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = SdnString::try_from("Ethernet4\n\"").unwrap();
        assert_eq!(text.to_string(), r#""Ethernet4\n\"""#);
    }
}
