//! A fabric as the fluid model has it: what each link can carry, and which levels it serves first.

use fluid::{FluidError, FluidNetwork};
use topology::Fabric;

/// The links of a fabric and inside its hosts by their ids; one that is down carries nothing.
///
/// # Errors
/// A bandwidth that is no capacity.
pub fn fluid_network(fabric: &Fabric) -> Result<FluidNetwork, FluidError> {
    let links = || fabric.link_ids().chain(fabric.intra_host_link_ids());
    let capacities = links().map(|link| {
        let works = fabric.intra_host_link(link).is_some() || fabric.is_up(link);
        if works { fabric.link_bandwidth(link).bytes_per_second() } else { 0.0 }
    });
    let fifo = links().filter(|link| !fabric.link_scheduler(*link).serves_levels());
    Ok(FluidNetwork::new(capacities.collect())?.with_fifo_links(fifo.map(|link| link.0)))
}
