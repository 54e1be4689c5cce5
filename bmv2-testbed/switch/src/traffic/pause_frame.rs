//! Priority-based flow control: the frame of IEEE 802.1Qbb (802.3 annex 31D) that pauses
//! priorities of the neighbour.

/// The multicast address that bridges do not forward.
const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x01];
/// EtherType of MAC control frames.
const MAC_CONTROL: [u8; 2] = [0x88, 0x08];
/// Opcode of priority-based flow control.
const OPCODE: [u8; 2] = [0x01, 0x01];
/// Without the frame check sequence.
const MINIMUM_FRAME: usize = 60;
/// Where opcode, enable vector and the eight times are.
const OPCODE_AT: std::ops::Range<usize> = 14..16;
const ENABLED_AT: usize = 17;
const TIMES_AT: usize = 18;
const FRAME_END: usize = TIMES_AT + 16;
/// Bits of a quantum.
const QUANTUM_BITS: u128 = 512;

/// A frame of priority-based flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// The sender's address.
    pub source: [u8; 6],
    /// For each priority: how long it pauses, in quanta of 512 bits at the port's rate. 0 resumes
    /// it, none leaves it as it is.
    pub quanta: [Option<u16>; 8],
}

/// Why a frame pauses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PauseFrameError {
    /// Not to the address or not of the EtherType and opcode of priority-based flow control.
    #[error("not a frame of priority-based flow control")]
    AnotherKind,
    /// It ends before the last of the eight times.
    #[error("a frame of priority-based flow control has at least 34 bytes, this one {0}")]
    TooShort(usize),
}

impl PauseFrame {
    /// Pauses one priority for so many quanta, or resumes it with 0.
    pub fn for_level(source: [u8; 6], level: u8, quanta: u16) -> Self {
        let mut frame = Self { source, quanta: [None; 8] };
        frame.quanta[usize::from(level & 7)] = Some(quanta);
        frame
    }

    /// The frame without its check sequence, padded to the least length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MINIMUM_FRAME);
        bytes.extend(DESTINATION);
        bytes.extend(self.source);
        bytes.extend(MAC_CONTROL);
        bytes.extend(OPCODE);
        let enabled = self.quanta.iter().enumerate();
        let enabled = enabled.filter(|(_, quanta)| quanta.is_some());
        let vector = enabled.fold(0, |vector, (level, _)| vector | 1_u8 << level);
        bytes.extend([0, vector]);
        bytes.extend(self.quanta.iter().flat_map(|quanta| quanta.unwrap_or(0).to_be_bytes()));
        bytes.resize(MINIMUM_FRAME, 0);
        bytes
    }

    /// Whether a frame is for MAC control, which no bridge forwards.
    pub fn is_mac_control(frame: &[u8]) -> bool {
        frame.get(12..14) == Some(&MAC_CONTROL)
    }

    /// Reads a frame; whatever follows the eight times is padding.
    ///
    /// # Errors
    /// It is another frame, or too short.
    pub fn parse(frame: &[u8]) -> Result<Self, PauseFrameError> {
        let is_control = frame.starts_with(&DESTINATION) && Self::is_mac_control(frame);
        if !is_control || frame.get(OPCODE_AT) != Some(&OPCODE) {
            return Err(PauseFrameError::AnotherKind);
        }
        let content = frame.get(..FRAME_END).ok_or(PauseFrameError::TooShort(frame.len()))?;
        let mut source = [0; 6];
        source.copy_from_slice(&content[6..12]);
        let mut quanta = [None; 8];
        for (level, time) in quanta.iter_mut().enumerate() {
            let at = TIMES_AT + 2 * level;
            let enabled = content[ENABLED_AT] >> level & 1 == 1;
            *time = enabled.then(|| u16::from_be_bytes([content[at], content[at + 1]]));
        }
        Ok(Self { source, quanta })
    }
}

/// How long so many quanta last at a rate.
pub(crate) fn quanta_nanos(quanta: u16, bits_per_second: u64) -> u64 {
    let bits = u128::from(quanta) * QUANTUM_BITS;
    u64::try_from(bits * 1_000_000_000 / u128::from(bits_per_second.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn a_frame_has_the_layout_of_the_standard() {
        let bytes = PauseFrame::for_level(SOURCE, 3, 0xffff).to_bytes();
        assert_eq!(bytes.len(), MINIMUM_FRAME);
        assert_eq!(bytes[..6], [1, 0x80, 0xc2, 0, 0, 1]);
        assert_eq!(bytes[12..18], [0x88, 0x08, 0x01, 0x01, 0x00, 0x08]);
        assert_eq!(bytes[18..34], [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn frames_round_trip() {
        let mut frame = PauseFrame::for_level(SOURCE, 0, 0);
        frame.quanta[7] = Some(77);
        assert_eq!(PauseFrame::parse(&frame.to_bytes()), Ok(frame));
    }

    #[test]
    fn other_frames_and_cut_ones_are_refused() {
        let whole = PauseFrame::for_level(SOURCE, 3, 9).to_bytes();
        for length in 0..whole.len() {
            let parsed = PauseFrame::parse(&whole[..length]);
            let expected = match length {
                0..16 => Err(PauseFrameError::AnotherKind),
                16..34 => Err(PauseFrameError::TooShort(length)),
                _ => PauseFrame::parse(&whole),
            };
            assert_eq!(parsed, expected, "{length}");
        }
        // A pause of the whole link (802.3 annex 31B) is another opcode.
        let mut link_pause = whole;
        link_pause[15] = 0x01;
        link_pause[14] = 0x00;
        assert_eq!(PauseFrame::parse(&link_pause), Err(PauseFrameError::AnotherKind));
    }

    #[test]
    fn quanta_are_bit_times() {
        assert_eq!(quanta_nanos(0xffff, 100_000_000_000), 335_539);
        assert_eq!(quanta_nanos(1, 1_000_000_000), 512);
    }
}
