//! Sums by dense index (a link, a switch, a pair of leaves) with a list of the indexes in use, so
//! that clearing and iterating cost what was added and not the size of the fabric.

/// Sums by dense index.
#[derive(Clone, Debug)]
pub(crate) struct SparseSums {
    sums: Vec<f64>,
    touched: Vec<usize>,
}

impl SparseSums {
    /// All sums zero, for indexes below `len`.
    pub(crate) fn new(len: usize) -> Self {
        Self { sums: vec![0.0; len], touched: Vec::new() }
    }

    /// Adds `amount`, not negative, at `index`.
    pub(crate) fn add_at(&mut self, index: usize, amount: f64) {
        if self.sums[index] == 0.0 && amount > 0.0 {
            self.touched.push(index);
        }
        self.sums[index] += amount;
    }

    /// The sum at `index`.
    pub(crate) fn sum_at(&self, index: usize) -> f64 {
        self.sums[index]
    }

    /// Indexes and sums above zero, in the order of first touch.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.touched.iter().map(|index| (*index, self.sums[*index]))
    }

    /// All sums zero again.
    pub(crate) fn clear(&mut self) {
        for index in self.touched.drain(..) {
            self.sums[index] = 0.0;
        }
    }
}
