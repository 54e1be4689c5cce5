//! Meters and registers: what `Write` and `Read` do with them.

use p4rt::entity::Entity;
use p4rt::p4_data::Data;
use p4rt::update::Type as Kind;
use p4runtime_proto::v1 as p4rt;

use super::bytestring;
use super::entity::decode_key;
use super::entity_reader::{EntityReader, ReadResult, wrap_entity};
use super::entity_writer::{EntityWriter, cell_position, find_table, require_modify};
use super::error::RequestFailure;
use crate::p4runtime::p4info::{PipelineSchema, RegisterSchema, TableSchema};
use switch::MeterConfig;
use switch::MeterIndex;

impl EntityWriter<'_> {
    /// Sets the rates of one cell or of all; no rates put the meter back to green.
    pub(super) fn write_meter(
        &mut self,
        kind: Kind,
        meter: &p4rt::MeterEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "MeterEntry")?;
        refuse_counters(meter.counter_data.as_ref())?;
        let index = find_meter(self.schema, meter.meter_id)?;
        let size = self.device.meter_configs(index)?.len();
        let config = meter.config.as_ref().map(decode_rates).transpose()?;
        for cell in selected_cells(meter.index.as_ref(), size)? {
            self.device.set_meter(index, cell, config)?;
        }
        Ok(())
    }

    /// Sets the rates of an entry's meter.
    pub(super) fn write_direct_meter(
        &mut self,
        kind: Kind,
        meter: &p4rt::DirectMeterEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "DirectMeterEntry")?;
        refuse_counters(meter.counter_data.as_ref())?;
        let entry = meter.table_entry.as_ref();
        let entry =
            entry.ok_or_else(|| RequestFailure::invalid_argument("the table entry is missing"))?;
        let table = find_metered_table(self.schema, entry.table_id)?;
        if entry.is_default_action {
            return Err(RequestFailure::unimplemented("the direct meter of a default action"));
        }
        let key = decode_key(table, &entry.r#match, entry.priority)?;
        let config = meter.config.as_ref().map(decode_rates).transpose()?;
        Ok(self.device.set_direct_meter(table.index, &key, config)?)
    }

    /// Sets one cell or all.
    pub(super) fn write_register(
        &mut self,
        kind: Kind,
        register: &p4rt::RegisterEntry,
    ) -> Result<(), RequestFailure> {
        require_modify(kind, "RegisterEntry")?;
        let found = find_register(self.schema, register.register_id)?;
        let size = self.device.register_cells(found.index)?.len();
        let data = register.data.as_ref().and_then(|data| data.data.as_ref());
        let Some(Data::Bitstring(bytes)) = data else {
            return Err(RequestFailure::invalid_argument("a register takes a bitstring"));
        };
        let value = bytestring::decode_bytestring(bytes, found.bits)?;
        for cell in selected_cells(register.index.as_ref(), size)? {
            self.device.set_register(found.index, cell, value)?;
        }
        Ok(())
    }
}

impl EntityReader<'_> {
    pub(super) fn read_meters(self, query: &p4rt::MeterEntry) -> ReadResult {
        let ids: Vec<u32> = match query.meter_id {
            0 if query.index.is_some() => {
                return Err(RequestFailure::invalid_argument("an index needs a meter"));
            }
            0 => self.schema.meters.keys().copied().collect(),
            id => vec![id],
        };
        let mut found = Vec::new();
        for meter_id in ids {
            let index = find_meter(self.schema, meter_id)?;
            let configs: Vec<Option<MeterConfig>> = self.device.meter_configs(index)?.collect();
            for cell in selected_cells(query.index.as_ref(), configs.len())? {
                found.push(wrap_entity(Entity::MeterEntry(p4rt::MeterEntry {
                    meter_id,
                    index: Some(cell_index(cell)),
                    config: configs[cell].map(encode_rates),
                    counter_data: None,
                })));
            }
        }
        Ok(found)
    }

    pub(super) fn read_direct_meters(self, query: &p4rt::DirectMeterEntry) -> ReadResult {
        let entry = query.table_entry.as_ref();
        let entry =
            entry.ok_or_else(|| RequestFailure::invalid_argument("the table entry is missing"))?;
        let tables: Vec<&TableSchema> = match entry.table_id {
            0 => self.schema.tables.values().filter(|table| table.direct_meter).collect(),
            id => vec![find_metered_table(self.schema, id)?],
        };
        let mut found = Vec::new();
        for table in tables {
            for view in self.matching_entries(table, entry)? {
                found.push(wrap_entity(Entity::DirectMeterEntry(p4rt::DirectMeterEntry {
                    table_entry: Some(super::entity_reader::key_entry(table, view.key)),
                    config: view.meter.map(encode_rates),
                    counter_data: None,
                })));
            }
        }
        if found.is_empty() && !entry.r#match.is_empty() {
            return Err(RequestFailure::not_found("there is no such entry"));
        }
        Ok(found)
    }

    pub(super) fn read_registers(self, query: &p4rt::RegisterEntry) -> ReadResult {
        let ids: Vec<u32> = match query.register_id {
            0 if query.index.is_some() => {
                return Err(RequestFailure::invalid_argument("an index needs a register"));
            }
            0 => self.schema.registers.keys().copied().collect(),
            id => vec![id],
        };
        let mut found = Vec::new();
        for register_id in ids {
            let values =
                self.device.register_cells(find_register(self.schema, register_id)?.index)?;
            for cell in selected_cells(query.index.as_ref(), values.len())? {
                let data = Data::Bitstring(bytestring::encode_bytestring(values[cell]));
                found.push(wrap_entity(Entity::RegisterEntry(p4rt::RegisterEntry {
                    register_id,
                    index: Some(cell_index(cell)),
                    data: Some(p4rt::P4Data { data: Some(data) }),
                })));
            }
        }
        Ok(found)
    }
}

/// The rates of a meter; the excess burst belongs to another type of meter.
pub(super) fn decode_rates(config: &p4rt::MeterConfig) -> Result<MeterConfig, RequestFailure> {
    if config.eburst != 0 {
        return Err(RequestFailure::unimplemented("eburst"));
    }
    Ok(MeterConfig {
        cir: decode_rate(config.cir, "cir")?,
        cburst: decode_rate(config.cburst, "cburst")?,
        pir: decode_rate(config.pir, "pir")?,
        pburst: decode_rate(config.pburst, "pburst")?,
    })
}

fn decode_rate(value: i64, name: &str) -> Result<u64, RequestFailure> {
    u64::try_from(value)
        .map_err(|_| RequestFailure::invalid_argument(format!("{name} is negative")))
}

pub(super) fn encode_rates(config: MeterConfig) -> p4rt::MeterConfig {
    let [cir, cburst, pir, pburst] = [config.cir, config.cburst, config.pir, config.pburst]
        .map(|value| i64::try_from(value).unwrap_or(i64::MAX));
    p4rt::MeterConfig { cir, cburst, pir, pburst, eburst: 0 }
}

fn refuse_counters(data: Option<&p4rt::MeterCounterData>) -> Result<(), RequestFailure> {
    match data {
        Some(_) => Err(RequestFailure::unimplemented("MeterCounterData")),
        None => Ok(()),
    }
}

fn find_meter(schema: &PipelineSchema, id: u32) -> Result<MeterIndex, RequestFailure> {
    let found = schema.meters.get(&id).copied();
    found.ok_or_else(|| RequestFailure::invalid_argument(format!("there is no meter {id}")))
}

fn find_register(schema: &PipelineSchema, id: u32) -> Result<&RegisterSchema, RequestFailure> {
    let found = schema.registers.get(&id);
    found.ok_or_else(|| schema.unknown_id("register", id))
}

fn find_metered_table(schema: &PipelineSchema, id: u32) -> Result<&TableSchema, RequestFailure> {
    let table = find_table(schema, id)?;
    if table.direct_meter {
        return Ok(table);
    }
    Err(RequestFailure::invalid_argument(format!("table {} has no direct meter", table.name)))
}

/// The cells that an index selects: one, or all without an index.
fn selected_cells(
    index: Option<&p4rt::Index>,
    size: usize,
) -> Result<std::ops::Range<usize>, RequestFailure> {
    let Some(index) = index else {
        return Ok(0..size);
    };
    match cell_position(index)? {
        cell if cell < size => Ok(cell..cell + 1),
        cell => Err(RequestFailure::out_of_range(format!("cell {cell} is beyond the size {size}"))),
    }
}

fn cell_index(cell: usize) -> p4rt::Index {
    p4rt::Index { index: i64::try_from(cell).unwrap_or(i64::MAX) }
}
