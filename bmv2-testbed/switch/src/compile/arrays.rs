//! Counters, meters and registers of the JSON, as their specs.

use std::collections::BTreeMap;

use super::headers::HeaderCatalog;
use super::{LoadError, json};
use crate::spec::{CounterSpec, DirectMeter, MeterSpec, MeterUnit, RegisterSpec};

/// The most cells that all arrays of one kind may have together: 64 MiB of counters. A program
/// could otherwise ask for any amount of memory.
const MAX_CELLS: usize = 1 << 22;

/// The indirect counters.
pub(super) fn counter_specs(root: &json::ProgramDocument) -> Result<Vec<CounterSpec>, LoadError> {
    let indirect = root.counter_arrays.iter().filter(|array| !array.is_direct);
    let spec =
        |array: &json::CounterArrayDecl| CounterSpec { name: array.name.clone(), size: array.size };
    let specs: Vec<CounterSpec> = indirect.map(spec).collect();
    check_cell_count("counter", specs.iter().map(|spec| (&spec.name, spec.size)))?;
    Ok(specs)
}

/// The indirect meters.
pub(super) fn meter_specs(root: &json::ProgramDocument) -> Result<Vec<MeterSpec>, LoadError> {
    let indirect = root.meter_arrays.iter().filter(|array| !array.is_direct);
    let specs: Vec<MeterSpec> = indirect
        .map(|array| {
            let (name, size) = (array.name.clone(), array.size);
            Ok(MeterSpec { name, size, unit: meter_unit(array)? })
        })
        .collect::<Result<_, LoadError>>()?;
    check_cell_count("meter", specs.iter().map(|spec| (&spec.name, spec.size)))?;
    Ok(specs)
}

/// The direct meters, by name.
pub(super) fn direct_meters(
    root: &json::ProgramDocument,
    headers: &HeaderCatalog,
) -> Result<BTreeMap<String, DirectMeter>, LoadError> {
    let direct = root.meter_arrays.iter().filter(|array| array.is_direct);
    direct.map(|array| Ok((array.name.clone(), direct_meter(array, headers)?))).collect()
}

fn direct_meter(
    array: &json::MeterArrayDecl,
    headers: &HeaderCatalog,
) -> Result<DirectMeter, LoadError> {
    let Some(target) = &array.result_target else {
        return Err(LoadError::malformed("a direct meter without a result target", &array.name));
    };
    let color = headers.writable_field(target, &array.name)?;
    Ok(DirectMeter { unit: meter_unit(array)?, color })
}

fn meter_unit(array: &json::MeterArrayDecl) -> Result<MeterUnit, LoadError> {
    match (array.kind.as_str(), array.rate_count) {
        ("bytes", 2) => Ok(MeterUnit::Bytes),
        ("packets", 2) => Ok(MeterUnit::Packets),
        (kind, rates) => {
            let construct = format!("meter of {rates} rates in {kind}");
            Err(LoadError::unsupported(construct, &array.name))
        }
    }
}

/// The registers.
pub(super) fn register_specs(root: &json::ProgramDocument) -> Result<Vec<RegisterSpec>, LoadError> {
    let specs: Vec<RegisterSpec> = root
        .register_arrays
        .iter()
        .map(|array| match array.bitwidth {
            bits @ 1..=128 => Ok(RegisterSpec { name: array.name.clone(), size: array.size, bits }),
            bits => {
                let construct = format!("register of {bits} bits");
                Err(LoadError::unsupported(construct, &array.name))
            }
        })
        .collect::<Result<_, _>>()?;
    check_cell_count("register", specs.iter().map(|spec| (&spec.name, spec.size)))?;
    Ok(specs)
}

fn check_cell_count<'a>(
    what: &str,
    arrays: impl Iterator<Item = (&'a String, usize)>,
) -> Result<(), LoadError> {
    let mut cells = 0_usize;
    for (name, size) in arrays {
        cells = cells.saturating_add(size);
        if cells > MAX_CELLS {
            let problem = format!("{what} arrays have more than {MAX_CELLS} cells");
            return Err(LoadError::malformed(problem, name));
        }
    }
    Ok(())
}
