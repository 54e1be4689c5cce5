//! A fabric as the fluid model has it: what each link can carry, and which levels it serves first.

use fluid::{FluidError, FluidNetwork};
use topology::Fabric;

/// The links of a fabric by their ids; one that is down carries nothing.
///
/// # Errors
/// A bandwidth that is no capacity.
pub fn fluid_network(fabric: &Fabric) -> Result<FluidNetwork, FluidError> {
    let capacities = fabric.link_ids().map(|link| match fabric.is_up(link) {
        true => fabric.link(link).bandwidth.bytes_per_second(),
        false => 0.0,
    });
    let fifo = fabric.link_ids().filter(|link| !fabric.link(*link).scheduler.serves_levels());
    Ok(FluidNetwork::new(capacities.collect())?.with_fifo_links(fifo.map(|link| link.0)))
}
