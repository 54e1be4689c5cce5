//! The network: capacities of directed links, and nothing else. A caller with a fabric numbers its
//! links densely; a path is a list of those numbers.

use crate::error::FluidError;

/// Directed links by dense index, each with a capacity in bytes/s. Zero is a failed link.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidNetwork {
    capacities: Vec<f64>,
}

impl FluidNetwork {
    /// A network of links with these capacities, bytes/s.
    ///
    /// # Errors
    /// [`FluidError::Capacity`] if one is negative, infinite or not a number.
    pub fn new(capacity: Vec<f64>) -> Result<Self, FluidError> {
        for (link, value) in (0..).zip(&capacity) {
            check_capacity(link, *value)?;
        }
        Ok(Self { capacities: capacity })
    }

    /// Capacity of every link, bytes/s.
    #[must_use]
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }
}

pub(crate) fn check_capacity(link: u32, value: f64) -> Result<(), FluidError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(FluidError::Capacity { link, value })
    }
}
