//! The objects with state of their own: meters, registers, digests and value sets.

use p4runtime_proto::config_v1 as p4info;

use super::resolve::{find, insert_once, match_kind, named, same};
use super::{DigestSchema, FieldSchema, RegisterSchema, Schema, SchemaError, ValueSetSchema};
use crate::program::Program;

impl Schema {
    pub(super) fn resolve_state(
        &mut self,
        info: &p4info::P4Info,
        program: &Program,
    ) -> Result<(), SchemaError> {
        for meter in &info.meters {
            let (id, name) = named(meter.preamble.as_ref());
            let index = find(&program.names.meters, "meter", &name)?;
            insert_once(&mut self.meters, id, index, "meter")?;
        }
        for register in &info.registers {
            let (id, name) = named(register.preamble.as_ref());
            let index = find(&program.names.registers, "register", &name)?;
            let spec = &program.registers[index.0 as usize];
            let object = format!("register {name}");
            same(&object, "size", i64::from(register.size), spec.size as i64)?;
            if !is_bits(register.type_spec.as_ref()) {
                let feature = "a type other than bit<W> or int<W>".to_owned();
                return Err(SchemaError::Unsupported { object, feature });
            }
            let schema = RegisterSchema {
                index,
                bits: spec.bits,
            };
            insert_once(&mut self.registers, id, schema, "register")?;
        }
        for digest in &info.digests {
            let (id, name) = named(digest.preamble.as_ref());
            let index = find(&program.names.learn_lists, "digest", &name)?;
            let is_struct = !is_bits(digest.type_spec.as_ref());
            insert_once(
                &mut self.digests,
                id,
                DigestSchema { index, is_struct },
                "digest",
            )?;
        }
        for set in &info.value_sets {
            let (id, schema) = value_set(set, program)?;
            insert_once(&mut self.value_sets, id, schema, "value set")?;
        }
        Ok(())
    }
}

fn value_set(
    set: &p4info::ValueSet,
    program: &Program,
) -> Result<(u32, ValueSetSchema), SchemaError> {
    let (id, name) = named(set.preamble.as_ref());
    let object = format!("value set {name}");
    let index = find(&program.names.value_sets, "value set", &name)?;
    let spec = &program.value_sets[index.0 as usize];
    same(&object, "size", i64::from(set.size), spec.size as i64)?;
    same(
        &object,
        "number of match fields",
        set.r#match.len(),
        spec.bits.len(),
    )?;
    let field = |(field, bits): (&p4info::MatchField, &u32)| {
        let place = format!("{object}, match field {}", field.id);
        same(
            &place,
            "bitwidth",
            i64::from(field.bitwidth),
            i64::from(*bits),
        )?;
        let (id, name) = (field.id, field.name.clone());
        Ok(FieldSchema {
            id,
            name,
            bits: *bits,
            kind: match_kind(&place, field)?,
        })
    };
    let fields = set.r#match.iter().zip(&spec.bits).map(field);
    Ok((
        id,
        ValueSetSchema {
            index,
            fields: fields.collect::<Result<_, _>>()?,
        },
    ))
}

fn is_bits(spec: Option<&p4info::P4DataTypeSpec>) -> bool {
    use p4info::p4_data_type_spec::TypeSpec;
    matches!(
        spec.and_then(|spec| spec.type_spec.as_ref()),
        Some(TypeSpec::Bitstring(_))
    )
}
