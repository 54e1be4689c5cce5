//! The arrays of a device that packets read and write: counters, meters, registers, and chance.
//!
//! One value, so that an action needs one borrow for all of them. What a packet asks of a cell
//! beyond an array's size is not done: BMv2 built for speed would write elsewhere.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::counter::Count;
use crate::device::Nanos;
use crate::meter::Meter;
use crate::phv::mask;
use crate::program::Program;

/// A register array, as a program declares it.
#[derive(Clone, Debug)]
pub struct RegisterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
    /// The width of a cell, 1 to 128.
    pub bits: u32,
}

/// The cells of one register array.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) cells: Vec<u128>,
    bits: u32,
}

impl Register {
    /// The width of a cell.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }
}

/// All arrays of a device, by the program's numbers.
#[derive(Debug)]
pub(crate) struct Arrays {
    pub(crate) counters: Vec<Vec<Count>>,
    pub(crate) meters: Vec<Vec<Meter>>,
    pub(crate) registers: Vec<Register>,
    chance: ChaCha8Rng,
}

impl Arrays {
    /// The program's arrays, all zero; `seed` is what random numbers follow from.
    pub(crate) fn new(program: &Program, seed: u64) -> Self {
        let counters = program
            .counters
            .iter()
            .map(|spec| vec![Count::default(); spec.size]);
        let meters = program
            .meters
            .iter()
            .map(|spec| vec![Meter::new(spec.unit); spec.size]);
        let registers = program.registers.iter().map(|spec| Register {
            cells: vec![0; spec.size],
            bits: spec.bits,
        });
        Self {
            counters: counters.collect(),
            meters: meters.collect(),
            registers: registers.collect(),
            chance: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, array: usize, cell: i128, bytes: u64) {
        if let Some(count) = at(&mut self.counters[array], cell) {
            count.add_packet(bytes);
        }
    }

    pub(crate) fn meter(&mut self, array: usize, cell: i128, now: Nanos, bytes: u64) -> Option<u8> {
        at(&mut self.meters[array], cell).map(|meter| meter.execute(now, bytes))
    }

    pub(crate) fn read(&mut self, array: usize, cell: i128) -> Option<u128> {
        at(&mut self.registers[array].cells, cell).copied()
    }

    pub(crate) fn write(&mut self, array: usize, cell: i128, value: i128) {
        let register = &mut self.registers[array];
        let bits = register.bits;
        if let Some(cell) = at(&mut register.cells, cell) {
            *cell = value as u128 & mask(bits);
        }
    }

    /// A number between two others, both included; none when they are the wrong way round.
    pub(crate) fn random(&mut self, low: u64, high: u64) -> Option<u64> {
        (low <= high).then(|| self.chance.random_range(low..=high))
    }
}

#[inline]
fn at<T>(cells: &mut [T], cell: i128) -> Option<&mut T> {
    usize::try_from(cell)
        .ok()
        .and_then(|cell| cells.get_mut(cell))
}
