//! The arrays of a device that packets read and write: counters, meters, registers, and chance.
//!
//! One value, so that an action needs one borrow for all of them. What a packet asks of a cell
//! beyond an array's size is not done: BMv2 built for speed would write elsewhere.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::run::counter::CounterData;
use crate::run::meter::TwoRateMeter;
use crate::spec::{CounterSpec, MeterSpec, RegisterSpec, bit_mask};
use crate::time::Nanos;

/// The cells of one register array.
#[derive(Clone, Debug)]
pub(crate) struct RegisterCells {
    pub(crate) cells: Vec<u128>,
    bits: u32,
}

impl RegisterCells {
    /// The width of a cell.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }
}

/// All arrays of a device, by the program's numbers.
#[derive(Debug)]
pub(crate) struct StatefulArrays {
    pub(crate) counters: Vec<Vec<CounterData>>,
    pub(crate) meters: Vec<Vec<TwoRateMeter>>,
    pub(crate) registers: Vec<RegisterCells>,
    random_source: ChaCha8Rng,
}

impl StatefulArrays {
    /// The arrays declared, all zero; `seed` is what random numbers follow from.
    pub(crate) fn new(
        counters: &[CounterSpec],
        meters: &[MeterSpec],
        registers: &[RegisterSpec],
        seed: u64,
    ) -> Self {
        let counters = counters.iter().map(|spec| vec![CounterData::default(); spec.size]);
        let meters = meters.iter().map(|spec| vec![TwoRateMeter::new(spec.unit); spec.size]);
        let registers = registers
            .iter()
            .map(|spec| RegisterCells { cells: vec![0; spec.size], bits: spec.bits });
        Self {
            counters: counters.collect(),
            meters: meters.collect(),
            registers: registers.collect(),
            random_source: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    #[inline]
    pub(crate) fn count_packet(&mut self, array: usize, cell: i128, bytes: u64) {
        if let Some(count) = cell_mut(&mut self.counters[array], cell) {
            count.add_packet(bytes);
        }
    }

    pub(crate) fn meter_packet(
        &mut self,
        array: usize,
        cell: i128,
        now: Nanos,
        bytes: u64,
    ) -> Option<u8> {
        cell_mut(&mut self.meters[array], cell).map(|meter| meter.color_packet(now, bytes))
    }

    pub(crate) fn read_register(&mut self, array: usize, cell: i128) -> Option<u128> {
        cell_mut(&mut self.registers[array].cells, cell).copied()
    }

    pub(crate) fn write_register(&mut self, array: usize, cell: i128, value: i128) {
        let register = &mut self.registers[array];
        let bits = register.bits;
        if let Some(cell) = cell_mut(&mut register.cells, cell) {
            // Cut here, because a register is read without a type that would cut it.
            *cell = value as u128 & bit_mask(bits);
        }
    }

    /// A number between two others, both included; none when they are the wrong way round.
    pub(crate) fn random_between(&mut self, low: u64, high: u64) -> Option<u64> {
        // An empty range would panic in the generator; the field then keeps its value.
        (low <= high).then(|| self.random_source.random_range(low..=high))
    }
}

#[inline]
fn cell_mut<T>(cells: &mut [T], cell: i128) -> Option<&mut T> {
    // A negative index fails the conversion, and one beyond the array the lookup.
    usize::try_from(cell).ok().and_then(|cell| cells.get_mut(cell))
}
