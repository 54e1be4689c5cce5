//! Seeded mutations of inputs, for the short run on the stable toolchain.
//!
//! libFuzzer mutates alike but knows which inputs reach new code. The decision: equal seeds give
//! equal inputs, so that a failure of the short run is found again by its number.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The longest input.
const INPUT_BYTES: usize = 8 * 1024;
/// Changes of one input, at most.
const CHANGES: u32 = 6;
/// Numbers at which lengths and counters turn over.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// A stream of inputs that are mutations of a corpus.
#[derive(Debug)]
pub struct InputMutator<'a> {
    corpus: &'a [Vec<u8>],
    random: ChaCha8Rng,
}

impl<'a> InputMutator<'a> {
    /// Mutations of `corpus`, which has at least one input.
    pub fn new(corpus: &'a [Vec<u8>], seed: u64) -> Self {
        Self { corpus, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// One to six changes of an input of the corpus, cut to a length that parsers take fast.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.corpus.choose(&mut self.random).cloned().unwrap_or_default();
        for _ in 0..self.random.random_range(1..=CHANGES) {
            self.change_input(&mut input);
        }
        input.truncate(INPUT_BYTES);
        input
    }

    fn change_input(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        let length = self.random.random_range(0..=(input.len() - at).min(32));
        match self.random.random_range(0..7) {
            0 | 1 if at < input.len() => input[at] = self.random.random(),
            2 if at < input.len() => input[at] ^= 1 << self.random.random_range(0..8),
            3 => drop(input.drain(at..at + length)),
            4 => {
                let copied = input[at..at + length].to_vec();
                let to = self.random.random_range(0..=input.len());
                input.splice(to..to, copied);
            }
            5 => self.splice_other(input, at),
            _ => self.write_number(input, at),
        }
    }

    /// Continues as another input of the corpus does.
    fn splice_other(&mut self, input: &mut Vec<u8>, at: usize) {
        let other = self.corpus.choose(&mut self.random).map_or(&[][..], Vec::as_slice);
        let from = self.random.random_range(0..=other.len());
        input.truncate(at);
        input.extend(&other[from..]);
    }

    /// A number at an edge, in binary or as text.
    fn write_number(&mut self, input: &mut Vec<u8>, at: usize) {
        let number = *EDGES.choose(&mut self.random).unwrap_or(&0);
        let text = match self.random.random_range(0..4) {
            0 => number.to_string().into_bytes(),
            1 => format!("-{number}e30").into_bytes(),
            _ => {
                let bytes = number.to_be_bytes();
                bytes[bytes.len() - (1 << self.random.random_range(0..4))..].to_vec()
            }
        };
        let end = (at + text.len()).min(input.len());
        input.splice(at..end, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parser with a fault: a length that it believes.
    fn reads_beyond_its_end(input: &[u8]) -> bool {
        input.strip_prefix(b"len=").is_some_and(|rest| {
            rest.first().is_some_and(|length| usize::from(*length) > rest.len())
        })
    }

    #[test]
    fn a_planted_fault_is_found_and_equal_seeds_find_it_alike() {
        let corpus = [b"len=\x03abc".to_vec(), b"name=x".to_vec()];
        assert!(corpus.iter().all(|input| !reads_beyond_its_end(input)));
        let find = |seed| {
            let mut mutator = InputMutator::new(&corpus, seed);
            (0..1_000).map(|_| mutator.next_input()).find(|input| reads_beyond_its_end(input))
        };
        assert!(find(1).is_some());
        assert_eq!(find(1), find(1));
    }

    #[test]
    fn inputs_stay_within_their_bound() {
        let corpus = [vec![0; INPUT_BYTES]];
        let mut mutator = InputMutator::new(&corpus, 1);
        assert!((0..500).all(|_| mutator.next_input().len() <= INPUT_BYTES));
    }
}
