//! Headers and fields of a program: from names to slots.
//!
//! The first pass of loading; every other pass asks [`Headers`] for what a name stands for.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{HeaderIndex, LoadError, json};
use crate::parser::{FieldLayout, HeaderLayout};
use crate::phv::{Field, Slot};

/// Metadata that says how a packet fared in a queue: here the queue comes after egress.
const QUEUE_METADATA: [&str; 3] = ["enq_qdepth", "deq_timedelta", "deq_qdepth"];

/// All header instances of a program.
#[derive(Debug, Default)]
pub(super) struct Headers {
    by_name: BTreeMap<String, Header>,
    /// For each header, whether it is metadata.
    pub(super) metadata: Vec<bool>,
    /// How many fields there are.
    pub(super) slots: usize,
}

#[derive(Debug)]
pub(super) struct Header {
    pub(super) layout: HeaderLayout,
    /// Fields in order.
    pub(super) fields: Vec<Field>,
    names: BTreeMap<String, usize>,
}

/// What a two-part name may stand for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    Field(Field),
    /// The hidden field `$valid$`.
    Valid(HeaderIndex),
}

struct FieldType {
    name: String,
    bits: u32,
    signed: bool,
}

impl Headers {
    /// Gives every field of every instance its slot.
    pub(super) fn resolve(root: &json::Root) -> Result<Self, LoadError> {
        refuse_any("header stack", &root.header_stacks)?;
        refuse_any("header union", &root.header_unions)?;
        refuse_any("header union stack", &root.header_union_stacks)?;
        let mut types = BTreeMap::new();
        for declared in &root.header_types {
            let fields = declared
                .fields
                .iter()
                .map(|field| field_type(field, &declared.name));
            types.insert(
                declared.name.as_str(),
                fields.collect::<Result<Vec<_>, _>>()?,
            );
        }
        let mut headers = Self::default();
        for instance in &root.headers {
            let at = &instance.name;
            let fields = types.get(instance.header_type.as_str());
            let fields = fields
                .ok_or_else(|| LoadError::missing("header type", &instance.header_type, at))?;
            headers.add(instance, fields)?;
        }
        Ok(headers)
    }

    fn add(&mut self, instance: &json::Header, types: &[FieldType]) -> Result<(), LoadError> {
        let index = HeaderIndex(self.metadata.len() as u32);
        let mut header = Header {
            layout: HeaderLayout {
                header: index,
                bytes: 0,
                fields: Vec::new(),
            },
            fields: Vec::new(),
            names: BTreeMap::new(),
        };
        let mut offset = 0;
        for FieldType { name, bits, signed } in types {
            let slot = Slot(self.slots as u32);
            let (bits, signed) = (*bits, *signed);
            header.names.insert(name.clone(), header.fields.len());
            header.fields.push(Field {
                slot,
                bits,
                signed,
                header: index,
            });
            header
                .layout
                .fields
                .push(FieldLayout { slot, offset, bits });
            self.slots += 1;
            offset += bits as usize;
        }
        if !instance.metadata && offset % 8 != 0 {
            let construct = format!("header of {offset} bits");
            return Err(LoadError::unsupported(construct, &instance.name));
        }
        header.layout.bytes = offset / 8;
        self.metadata.push(instance.metadata);
        self.by_name.insert(instance.name.clone(), header);
        Ok(())
    }

    /// The header instance of this name.
    pub(super) fn header(&self, name: &str, at: &str) -> Result<&Header, LoadError> {
        self.by_name
            .get(name)
            .ok_or_else(|| LoadError::missing("header", name, at))
    }

    /// A field by the JSON's pair of names.
    pub(super) fn reference(&self, value: &Value, at: &str) -> Result<Reference, LoadError> {
        let pair = value.as_array().map(Vec::as_slice);
        let Some([Value::String(header), Value::String(field)]) = pair else {
            return Err(LoadError::malformed(format!("{value} is not a field"), at));
        };
        match field.as_str() {
            "$valid$" => Ok(Reference::Valid(self.header(header, at)?.layout.header)),
            _ => self.field(header, field, at).map(Reference::Field),
        }
    }

    /// A field that can be written.
    pub(super) fn target(&self, value: &Value, at: &str) -> Result<Field, LoadError> {
        match self.reference(value, at)? {
            Reference::Field(field) => Ok(field),
            Reference::Valid(_) => Err(LoadError::malformed("$valid$ is written", at)),
        }
    }

    /// A field by its names.
    pub(super) fn field(&self, header: &str, field: &str, at: &str) -> Result<Field, LoadError> {
        if header == "standard_metadata" && QUEUE_METADATA.contains(&field) {
            return Err(LoadError::unsupported(
                format!("standard_metadata.{field}"),
                at,
            ));
        }
        let found = self.header(header, at)?;
        let number = found.names.get(field);
        let number =
            number.ok_or_else(|| LoadError::missing("field", &format!("{header}.{field}"), at))?;
        Ok(found.fields[*number])
    }
}

/// Refuses a construct by its first instance.
pub(super) fn refuse_any(construct: &str, instances: &[json::Named]) -> Result<(), LoadError> {
    match instances.first() {
        Some(first) => Err(LoadError::unsupported(construct, &first.name)),
        None => Ok(()),
    }
}

fn field_type(field: &[Value], header_type: &str) -> Result<FieldType, LoadError> {
    let (name, width, signed) = match field {
        [Value::String(name), width] => (name, width, false),
        [Value::String(name), width, Value::Bool(signed)] => (name, width, *signed),
        _ => {
            return Err(LoadError::malformed(
                "a field is not [name, width, signed]",
                header_type,
            ));
        }
    };
    let at = format!("{header_type}.{name}");
    match width.as_u64() {
        Some(bits @ 1..=128) => Ok(FieldType {
            name: name.clone(),
            bits: bits as u32,
            signed,
        }),
        Some(bits) => Err(LoadError::unsupported(format!("field of {bits} bits"), &at)),
        None => Err(LoadError::unsupported("variable-length field", &at)),
    }
}
