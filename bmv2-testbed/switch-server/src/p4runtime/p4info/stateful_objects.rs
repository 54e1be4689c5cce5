//! The objects with state of their own: meters, registers, digests and value sets.

use p4runtime_proto::config_v1 as p4info;

use super::resolution::{
    DeclaredWidth, check_same, find_index, id_and_name, insert_once, match_kind,
};
use super::{
    DigestSchema, FieldSchema, PipelineSchema, RegisterSchema, SchemaError, ValueSetSchema,
};
use switch::Program;

impl PipelineSchema {
    pub(super) fn resolve_stateful_objects(
        &mut self,
        info: &p4info::P4Info,
        program: &Program,
    ) -> Result<(), SchemaError> {
        for meter in &info.meters {
            let (id, name) = id_and_name(meter.preamble.as_ref());
            let index = find_index(&program.names.meters, "meter", &name)?;
            insert_once(&mut self.meters, id, index, "meter")?;
        }
        for register in &info.registers {
            let (id, name) = id_and_name(register.preamble.as_ref());
            let index = find_index(&program.names.registers, "register", &name)?;
            let spec = &program.registers[index.0 as usize];
            let object = format!("register {name}");
            check_same(&object, "size", i64::from(register.size), spec.size as i64)?;
            if !is_bitstring(register.type_spec.as_ref()) {
                let feature = "a type other than bit<W> or int<W>".to_owned();
                self.mark_unusable(id, SchemaError::Unsupported { object, feature })?;
                continue;
            }
            let schema = RegisterSchema { index, bits: spec.bits };
            insert_once(&mut self.registers, id, schema, "register")?;
        }
        for digest in &info.digests {
            let (id, name) = id_and_name(digest.preamble.as_ref());
            let index = match find_index(&program.names.learn_lists, "digest", &name) {
                Ok(index) => index,
                Err(missing) => {
                    self.mark_unusable(id, missing)?;
                    continue;
                }
            };
            let is_struct = !is_bitstring(digest.type_spec.as_ref());
            insert_once(&mut self.digests, id, DigestSchema { index, is_struct }, "digest")?;
        }
        for set in &info.value_sets {
            let (id, schema) = resolve_value_set(set, info, program)?;
            insert_once(&mut self.value_sets, id, schema, "value set")?;
        }
        Ok(())
    }
}

fn resolve_value_set(
    set: &p4info::ValueSet,
    info: &p4info::P4Info,
    program: &Program,
) -> Result<(u32, ValueSetSchema), SchemaError> {
    let (id, name) = id_and_name(set.preamble.as_ref());
    let object = format!("value set {name}");
    let index = find_index(&program.names.value_sets, "value set", &name)?;
    let spec = &program.value_sets[index.0 as usize];
    check_same(&object, "size", i64::from(set.size), spec.size as i64)?;
    check_same(&object, "number of match fields", set.r#match.len(), spec.bits.len())?;
    let mut fields = Vec::new();
    for (field, &bits) in set.r#match.iter().zip(&spec.bits) {
        let place = format!("{object}, match field {}", field.id);
        let declared = DeclaredWidth::new(field.bitwidth, field.type_name.as_ref(), info);
        declared.check_width(&place, bits)?;
        let kind = match_kind(&place, field)?;
        fields.push(FieldSchema { id: field.id, name: field.name.clone(), bits, kind });
    }
    Ok((id, ValueSetSchema { index, fields }))
}

fn is_bitstring(spec: Option<&p4info::P4DataTypeSpec>) -> bool {
    use p4info::p4_data_type_spec::TypeSpec;
    matches!(spec.and_then(|spec| spec.type_spec.as_ref()), Some(TypeSpec::Bitstring(_)))
}
