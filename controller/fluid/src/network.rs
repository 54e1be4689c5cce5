//! The network: capacities of directed links, and nothing else. A caller with a fabric numbers its
//! links densely; a path is a list of those numbers.

use crate::error::FluidError;

/// Directed links by dense index, each with a capacity in bytes/s. Zero is a failed link.
///
/// A link serves higher levels first, unless it is a fifo link, which serves all levels alike.
#[derive(Debug, Clone, PartialEq)]
pub struct FluidNetwork {
    capacities: Vec<f64>,
    is_fifo: Vec<bool>,
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
        Ok(Self { is_fifo: vec![false; capacity.len()], capacities: capacity })
    }

    /// The network in which these links serve all levels alike; numbers of no link are ignored.
    #[must_use]
    pub fn with_fifo_links(mut self, links: impl IntoIterator<Item = u32>) -> Self {
        for link in links {
            if let Some(is_fifo) = self.is_fifo.get_mut(link as usize) {
                *is_fifo = true;
            }
        }
        self
    }

    /// Whether each link serves all levels alike.
    #[must_use]
    pub fn fifo_links(&self) -> &[bool] {
        &self.is_fifo
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
