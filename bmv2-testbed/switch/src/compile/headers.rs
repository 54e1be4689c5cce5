//! Headers and fields of a program: from names to slots.
//!
//! The first pass of loading; every other pass asks [`HeaderCatalog`] for what a name stands for. A
//! field of more than 128 bits becomes several pieces here, so that nothing behind this pass knows
//! of widths beyond that; such a field can be carried, copied and compared, not computed with.

use std::collections::BTreeMap;

use serde_json::Value;

use super::header_groups::HeaderGroups;
use super::{LoadError, json};
use crate::ids::{HeaderIndex, PhvSlot, VarbitIndex};
use crate::run::header::{FieldLayout, HeaderLayout, VarbitLayout, divide_fields};
use crate::run::phv::PhvLayout;
use crate::spec::FieldRef;

/// All header instances of a program.
#[derive(Debug, Default)]
pub(super) struct HeaderCatalog {
    by_name: BTreeMap<String, HeaderInstance>,
    /// Names by the JSON's ids.
    ids: BTreeMap<u32, String>,
    /// Other names of fields, as `header.field`.
    aliases: BTreeMap<String, (String, String)>,
    pub(super) layouts: Vec<HeaderLayout>,
    pub(super) shape: PhvLayout,
    pub(super) groups: HeaderGroups,
}

/// One header instance.
#[derive(Debug)]
pub(super) struct HeaderInstance {
    pub(super) index: HeaderIndex,
    /// Fields in order.
    pub(super) fields: Vec<FieldContent>,
    names: BTreeMap<String, usize>,
}

/// What a field is made of.
#[derive(Clone, Debug)]
pub(super) enum FieldContent {
    Plain(FieldRef),
    /// More than 128 bits: pieces, the most significant first.
    Wide(Vec<FieldRef>),
    Variable(VarbitIndex),
}

/// What a two-part name may stand for.
#[derive(Clone, Debug)]
pub(super) enum FieldReference {
    Content(FieldContent),
    /// The hidden field `$valid$`.
    Valid(HeaderIndex),
    /// Any header of this union is valid.
    ValidUnion(Vec<HeaderIndex>),
}

struct FieldType {
    name: String,
    /// None for a variable-length field.
    bits: Option<u32>,
    signed: bool,
}

struct HeaderType {
    fields: Vec<FieldType>,
    max_bytes: usize,
}

impl HeaderCatalog {
    /// Gives every field of every instance its slot.
    pub(super) fn resolve_headers(root: &json::ProgramDocument) -> Result<Self, LoadError> {
        let mut types = BTreeMap::new();
        for declared in &root.header_types {
            types.insert(declared.name.as_str(), header_type(declared)?);
        }
        let aliases = root.field_aliases.iter().cloned().collect();
        let mut headers = Self { aliases, ..Self::default() };
        for instance in &root.headers {
            let at = &instance.name;
            let fields = types.get(instance.header_type.as_str());
            let fields = fields
                .ok_or_else(|| LoadError::missing("header type", &instance.header_type, at))?;
            headers.add_instance(instance, fields)?;
        }
        headers.groups = HeaderGroups::resolve_groups(root, &headers)?;
        headers.shape.stacks = headers.groups.stack_count();
        for members in headers.groups.unions() {
            for header in members {
                let rivals = members.iter().filter(|other| *other != header);
                headers.layouts[header.0 as usize].union_peers = rivals.copied().collect();
            }
        }
        Ok(headers)
    }

    fn add_instance(
        &mut self,
        instance: &json::HeaderDecl,
        of: &HeaderType,
    ) -> Result<(), LoadError> {
        let index = HeaderIndex(self.layouts.len() as u32);
        let (fields, names) = (Vec::new(), BTreeMap::new());
        let mut header = HeaderInstance { index, fields, names };
        let mut layout = HeaderLayout::default();
        for field in &of.fields {
            header.names.insert(field.name.clone(), header.fields.len());
            header.fields.push(match field.bits {
                Some(bits) => self.add_pieces(field, bits, index, &mut layout),
                None => self.add_varbit(of, &mut layout),
            });
        }
        let offset = layout_end(&layout);
        if !instance.metadata && !offset.is_multiple_of(8) {
            let construct = format!("header of {offset} bits");
            return Err(LoadError::unsupported(construct, &instance.name));
        }
        layout.bytes = offset / 8;
        layout.parts = divide_fields(&layout.fields);
        self.layouts.push(layout);
        self.shape.metadata.push(instance.metadata);
        self.ids.insert(instance.id, instance.name.clone());
        self.by_name.insert(instance.name.clone(), header);
        Ok(())
    }

    /// A field as one piece, or as several of at most 128 bits, put where the header ends so far.
    fn add_pieces(
        &mut self,
        field: &FieldType,
        bits: u32,
        header: HeaderIndex,
        layout: &mut HeaderLayout,
    ) -> FieldContent {
        let mut pieces = Vec::new();
        let mut left = bits;
        while left > 0 {
            // The first piece takes what whole ones leave over.
            let bits = (left - 1) % 128 + 1;
            let slot = PhvSlot(self.shape.slots as u32);
            let piece = FieldLayout { slot, offset: layout_end(layout), bits };
            match &mut layout.variable {
                Some(variable) => variable.behind.push(piece),
                None => layout.fields.push(piece),
            }
            pieces.push(FieldRef { slot, bits, signed: field.signed, header });
            self.shape.slots += 1;
            left -= bits;
        }
        match pieces.as_slice() {
            [plain] => FieldContent::Plain(*plain),
            _ => FieldContent::Wide(pieces),
        }
    }

    fn add_varbit(&mut self, of: &HeaderType, layout: &mut HeaderLayout) -> FieldContent {
        let offset = layout_end(layout);
        let varbit = VarbitIndex(self.shape.varbits as u32);
        self.shape.varbits += 1;
        let (behind, max_bytes) = (Vec::new(), of.max_bytes);
        layout.variable = Some(Box::new(VarbitLayout { varbit, offset, behind, max_bytes }));
        FieldContent::Variable(varbit)
    }

    /// Every slot of the metadata headers that are wanted, by their names.
    pub(super) fn metadata_slots(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<PhvSlot> {
        let wanted = self.by_name.iter().filter(|(name, _)| is_wanted(name));
        let indices = wanted.map(|(_, header)| header.index.0 as usize);
        let metadata = indices.filter(|header| self.shape.metadata[*header]);
        metadata.flat_map(|header| self.layouts[header].slots()).collect()
    }

    /// The header instance of this name.
    pub(super) fn find_header(&self, name: &str, at: &str) -> Result<&HeaderInstance, LoadError> {
        self.by_name.get(name).ok_or_else(|| LoadError::missing("header", name, at))
    }

    /// The number of the header instance with this id in the JSON.
    pub(super) fn header_by_id(&self, id: u32, at: &str) -> Result<HeaderIndex, LoadError> {
        let name = self.ids.get(&id);
        let name = name.ok_or_else(|| LoadError::missing("header", &id.to_string(), at))?;
        Ok(self.find_header(name, at)?.index)
    }

    /// The fields of a header, by its number.
    pub(super) fn field_contents(&self, header: HeaderIndex) -> &[FieldContent] {
        let found = self.by_name.values().find(|found| found.index == header);
        found.map_or(&[], |header| &header.fields)
    }

    /// A field by the JSON's pair of names.
    pub(super) fn resolve_field(
        &self,
        value: &Value,
        at: &str,
    ) -> Result<FieldReference, LoadError> {
        let (header, field) = field_names(value, at)?;
        if field == "$valid$" {
            return match self.groups.find_union(header) {
                Some(members) => Ok(FieldReference::ValidUnion(members.to_vec())),
                None => Ok(FieldReference::Valid(self.find_header(header, at)?.index)),
            };
        }
        self.field_content(header, field, at).map(FieldReference::Content)
    }

    /// A field that can be computed with.
    pub(super) fn writable_field(&self, value: &Value, at: &str) -> Result<FieldRef, LoadError> {
        match self.resolve_field(value, at)? {
            FieldReference::Content(content) => require_plain(&content, &value.to_string(), at),
            _ => Err(LoadError::malformed("$valid$ is written", at)),
        }
    }

    /// A field by its names, if it can be computed with.
    pub(super) fn plain_field(
        &self,
        header: &str,
        field: &str,
        at: &str,
    ) -> Result<FieldRef, LoadError> {
        require_plain(&self.field_content(header, field, at)?, &format!("{header}.{field}"), at)
    }

    fn field_content(
        &self,
        header: &str,
        field: &str,
        at: &str,
    ) -> Result<FieldContent, LoadError> {
        let (header, field) = match self.aliases.get(&format!("{header}.{field}")) {
            Some((header, field)) => (header.as_str(), field.as_str()),
            None => (header, field),
        };
        let found = self.find_header(header, at)?;
        let number = found.names.get(field);
        let number =
            number.ok_or_else(|| LoadError::missing("field", &format!("{header}.{field}"), at))?;
        Ok(found.fields[*number].clone())
    }

    /// The number of a field in its header.
    pub(super) fn field_position(&self, header: HeaderIndex, field: &str) -> Option<usize> {
        let found = self.by_name.values().find(|found| found.index == header)?;
        found.names.get(field).copied()
    }
}

/// Where the next field of a header starts, in bits, while its variable-length field is empty.
fn layout_end(layout: &HeaderLayout) -> usize {
    let behind = layout.variable.as_ref().and_then(|variable| variable.behind.last());
    let last = behind.or(layout.fields.last());
    last.map_or(0, |field| field.offset + field.bits as usize)
}

/// The field, unless it is too wide or of variable length.
pub(super) fn require_plain(
    content: &FieldContent,
    name: &str,
    at: &str,
) -> Result<FieldRef, LoadError> {
    match content {
        FieldContent::Plain(field) => Ok(*field),
        FieldContent::Wide(pieces) => {
            let bits: u32 = pieces.iter().map(|piece| piece.bits).sum();
            let construct = format!("computing with {name} of {bits} bits");
            Err(LoadError::unsupported(construct, at))
        }
        FieldContent::Variable(_) => {
            let construct = format!("computing with {name} of variable length");
            Err(LoadError::unsupported(construct, at))
        }
    }
}

/// The two names of a field.
pub(super) fn field_names<'a>(value: &'a Value, at: &str) -> Result<(&'a str, &'a str), LoadError> {
    match value.as_array().map(Vec::as_slice) {
        Some([Value::String(header), Value::String(field)]) => Ok((header, field)),
        _ => Err(LoadError::malformed(format!("{value} is not a field"), at)),
    }
}

/// Refuses a construct by its first instance.
pub(super) fn refuse_instances(
    construct: &str,
    instances: &[json::NamedObject],
) -> Result<(), LoadError> {
    match instances.first() {
        Some(first) => Err(LoadError::unsupported(construct, &first.name)),
        None => Ok(()),
    }
}

fn header_type(declared: &json::HeaderTypeDecl) -> Result<HeaderType, LoadError> {
    if declared.length_exp.as_ref().is_some_and(|expression| !expression.is_null()) {
        return Err(LoadError::unsupported("length_exp", &declared.name));
    }
    let fields = declared.fields.iter().map(|field| field_type(field, &declared.name));
    let fields: Vec<FieldType> = fields.collect::<Result<_, _>>()?;
    if fields.iter().filter(|field| field.bits.is_none()).count() > 1 {
        let problem = "more than one variable-length field";
        return Err(LoadError::malformed(problem, &declared.name));
    }
    Ok(HeaderType { fields, max_bytes: declared.max_length.unwrap_or(usize::MAX) })
}

/// The widest field that is carried, in bits; p4c itself stops at 2048.
const MAX_FIELD_BITS: u64 = 1 << 16;

fn field_type(field: &[Value], header_type: &str) -> Result<FieldType, LoadError> {
    let (name, width, signed) = match field {
        [Value::String(name), width] => (name, width, false),
        [Value::String(name), width, Value::Bool(signed)] => (name, width, *signed),
        // p4c's way to write a bool of a metadata struct.
        [Value::String(name), width, Value::Number(signed)] => {
            (name, width, signed.as_u64() == Some(1))
        }
        _ => {
            return Err(LoadError::malformed("a field is not [name, width, signed]", header_type));
        }
    };
    let at = format!("{header_type}.{name}");
    let bits = match width.as_u64() {
        Some(bits @ 1..=MAX_FIELD_BITS) => Some(bits as u32),
        Some(bits) => return Err(LoadError::unsupported(format!("field of {bits} bits"), &at)),
        None if width.as_str() == Some("*") => None,
        None => return Err(LoadError::malformed("a field without width", &at)),
    };
    Ok(FieldType { name: name.clone(), bits, signed })
}
