//! A probe: one frame that names the port of the switch that it left by, and authenticates it.
//!
//! ```text
//! 01:80:c2:00:00:0e  02:00:00:00:00:00  0x88b5 | version 8, switch 32, port 16, round 64 | tag 128
//! ```
//!
//! The group address is LLDP's, which bridges never pass on; the EtherType is the first of IEEE's
//! for local experiments. The tag is HMAC-SHA-256 (RFC 2104), cut to 128 bits, under a key that
//! only this run of the controller knows. The decision: hosts can receive probes and can send
//! frames, so a probe without a valid tag is ignored, and so is one of a round that was already
//! received.

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::SystemRandom;
use topology::SwitchId;

use super::SwitchPort;
use crate::pipelines::ETHERTYPE_PROBE;

const ADDRESSES: [u8; 12] = [1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 0];
const VERSION: u8 = 1;
/// Ethernet header, then version, switch, port and round.
const HEADER: usize = 14;
const PAYLOAD: usize = 1 + 4 + 2 + 8;
const TAG: usize = 16;
/// Without the check sequence, which ports add.
const SHORTEST_FRAME: usize = 60;

/// The HMAC key that proves probes to be this controller's.
#[derive(Clone)]
pub struct ProbeKey(hmac::Key);

impl std::fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl ProbeKey {
    /// A key of bytes that nobody can guess.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, &secret))
    }

    /// A key from the operating system's randomness.
    ///
    /// # Panics
    /// The operating system has no source of randomness.
    pub fn random() -> Self {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the operating system provides random bytes"))
    }

    fn compute_tag(&self, message: &[u8]) -> [u8; TAG] {
        let tag = hmac::sign(&self.0, message);
        std::array::from_fn(|index| tag.as_ref()[index])
    }
}

/// The contents of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProbe {
    /// Where it was sent.
    pub from: SwitchPort,
    /// When, in rounds of probing.
    pub round: u64,
}

impl LinkProbe {
    /// The frame of the probe, padded to the shortest that Ethernet carries.
    pub fn encode(&self, key: &ProbeKey) -> Vec<u8> {
        let mut frame = Vec::with_capacity(SHORTEST_FRAME);
        frame.extend_from_slice(&ADDRESSES);
        frame.extend_from_slice(&ETHERTYPE_PROBE.to_be_bytes());
        frame.push(VERSION);
        frame.extend_from_slice(&self.from.switch.0.to_be_bytes());
        frame.extend_from_slice(&self.from.port.to_be_bytes());
        frame.extend_from_slice(&self.round.to_be_bytes());
        let tag = key.compute_tag(&frame[HEADER..]);
        frame.extend_from_slice(&tag);
        frame.resize(SHORTEST_FRAME, 0);
        frame
    }

    /// Decodes a frame, if it is a probe signed with this key.
    pub fn decode(frame: &[u8], key: &ProbeKey) -> Option<Self> {
        let (header, rest) = frame.split_at_checked(HEADER)?;
        let (payload, rest) = rest.split_at_checked(PAYLOAD)?;
        let tag = rest.get(..TAG)?;
        if header[12..] != ETHERTYPE_PROBE.to_be_bytes()
            || !equals_constant_time(tag, &key.compute_tag(payload))
        {
            return None;
        }
        let (version, payload) = payload.split_first()?;
        let (switch, payload) = payload.split_first_chunk()?;
        let (port, payload) = payload.split_first_chunk()?;
        let round = u64::from_be_bytes(payload.try_into().ok()?);
        let from = SwitchPort {
            switch: SwitchId(u32::from_be_bytes(*switch)),
            port: u16::from_be_bytes(*port),
        };
        (*version == VERSION).then_some(Self { from, round })
    }
}

/// Compares all bytes, wherever the first difference is, so that timing reveals nothing of the tag.
/// `hmac::verify` compares whole tags only, and probes carry truncated ones.
fn equals_constant_time(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> ProbeKey {
        ProbeKey::new([byte; 32])
    }

    fn probe(switch: u32, port: u16, round: u64) -> LinkProbe {
        let from = SwitchPort { switch: SwitchId(switch), port };
        LinkProbe { from, round }
    }

    /// RFC 4231, test case 2 with its key filled up with zeros, as HMAC itself does.
    #[test]
    fn the_tag_is_hmac_sha_256() {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(b"Jefe");
        let tag = ProbeKey::new(secret).compute_tag(b"what do ya want for nothing?");
        let expected = 0x5bdc_c146_bf60_754e_6a04_2426_0895_75c7_u128;
        assert_eq!(u128::from_be_bytes(tag), expected);
    }

    proptest! {
        #[test]
        fn sent_probes_are_read(switch: u32, port: u16, round: u64) {
            let probe = probe(switch, port, round);
            prop_assert_eq!(LinkProbe::decode(&probe.encode(&key(7)), &key(7)), Some(probe));
        }

        #[test]
        fn changed_or_foreign_probes_are_ignored(
            at in 12usize..45,
            bit in 0u8..8,
            garbage in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut frame = probe(3, 4, 5).encode(&key(7));
            prop_assert_eq!(LinkProbe::decode(&frame, &key(8)), None);
            frame[at] ^= 1 << bit;
            prop_assert_eq!(LinkProbe::decode(&frame, &key(7)), None);
            prop_assert_eq!(LinkProbe::decode(&garbage, &key(7)), None);
        }
    }
}
