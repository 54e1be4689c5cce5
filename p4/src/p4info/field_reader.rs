//! From a field of P4Info's text to its type, format and references. The decision: the name of a
//! type matters only where the type is a translated string, which has no width of its own.

use std::collections::BTreeSet;

use p4runtime_proto::config_v1 as p4config;

use super::{FieldInfo, P4InfoError, ValueFormat, ValueType};

/// A match field, parameter or field of a packet header, as P4Info has them.
pub(super) struct RawField<'a> {
    pub(super) id: u32,
    pub(super) name: &'a str,
    pub(super) width: i32,
    pub(super) type_name: Option<&'a p4config::P4NamedType>,
    pub(super) annotations: &'a [String],
}

/// Reads fields, whose types may be strings.
pub(super) struct FieldReader<'a> {
    string_types: BTreeSet<&'a str>,
}

impl<'a> FieldReader<'a> {
    /// The reader of the fields of this program.
    pub(super) fn new(message: &'a p4config::P4Info) -> Self {
        use p4config::p4_new_type_spec::Representation::TranslatedType;
        use p4config::p4_new_type_translation::SdnType::SdnString;
        let types = message.type_info.iter().flat_map(|types| &types.new_types);
        let strings = types.filter(|(_, new_type)| match &new_type.representation {
            Some(TranslatedType(translated)) => matches!(translated.sdn_type, Some(SdnString(_))),
            _ => false,
        });
        Self { string_types: strings.map(|(name, _)| name.as_str()).collect() }
    }

    /// The field.
    ///
    /// # Errors
    /// It is neither a string nor a number of 1 to 128 bits.
    pub(super) fn read_field(&self, raw: &RawField<'_>) -> Result<FieldInfo, P4InfoError> {
        let RawField { id, name, annotations, .. } = *raw;
        Ok(FieldInfo {
            id,
            name: name.to_owned(),
            value_type: self.read_type(raw)?,
            format: annotation_arguments(annotations, "format")
                .next()
                .map_or(ValueFormat::Number, parse_format),
            refers_to: annotation_arguments(annotations, "refers_to").map(referred_table).collect(),
        })
    }

    fn read_type(&self, raw: &RawField<'_>) -> Result<ValueType, P4InfoError> {
        if raw.type_name.is_some_and(|named| self.string_types.contains(named.name.as_str())) {
            return Ok(ValueType::Text);
        }
        let width = u32::try_from(raw.width).ok().filter(|width| (1..=128).contains(width));
        width.map(ValueType::Bits).ok_or_else(|| P4InfoError::Width(raw.name.to_owned()))
    }
}

/// What stands between the parentheses of every annotation with this name.
pub(super) fn annotation_arguments<'a>(
    annotations: &'a [String],
    name: &str,
) -> impl Iterator<Item = &'a str> {
    annotations.iter().filter_map(move |note| {
        let rest = note.strip_prefix('@')?.strip_prefix(name)?;
        rest.trim().strip_prefix('(')?.strip_suffix(')')
    })
}

fn parse_format(argument: &str) -> ValueFormat {
    match argument.trim() {
        "MAC_ADDRESS" => ValueFormat::Mac,
        "IPV4_ADDRESS" => ValueFormat::Ipv4,
        "IPV6_ADDRESS" => ValueFormat::Ipv6,
        _ => ValueFormat::Number,
    }
}

/// `@refers_to(table, field)`: the order of writes needs only the table.
fn referred_table(arguments: &str) -> String {
    let table = arguments.split(',').next().unwrap_or_default();
    table.trim().to_owned()
}
