//! Bytes as hexadecimal digits, and secrets in that form.

use std::fmt::Write;

use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// `bytes` as lower-case digits, two each.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of digits of either case, two each.
pub fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

/// A new secret that nobody can guess.
///
/// # Errors
/// The system has no random numbers.
pub fn random_secret() -> Result<String, Unspecified> {
    let mut secret = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut secret)?;
    Ok(encode_hex(&secret))
}
