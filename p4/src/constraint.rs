//! Which entries a program allows: restrictions of its rows and calls, which P4Info has as text in
//! the language of [`p4_constraints`].
//!
//! [`P4Info::check_constraints`] says which one an entry violates, before it is written.

use p4_constraints::{Constraint, MatchKind, Operand, Scope};

use crate::P4Info;
use crate::entry::{ActionCall, FieldMatch, RowField, TableEntry, TableRow};
use crate::p4info::{FieldInfo, MatchField};
use crate::sdn_string::FieldValue;

/// An entry that its table or an action of it does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{object}` requires {clause}")]
pub struct ConstraintViolation {
    /// The table or action.
    pub object: String,
    /// The clause that does not hold, as in the source of the program.
    pub clause: String,
}

/// The scope of a restriction of rows.
pub(crate) fn scope_of_table(fields: &[MatchField]) -> Scope<'_> {
    let operands = fields.iter().map(|field| describe_operand(&field.info, field.kind));
    Scope { operands: operands.collect(), has_priority: true }
}

/// The scope of a restriction of calls.
pub(crate) fn scope_of_action(params: &[FieldInfo]) -> Scope<'_> {
    let operands = params.iter().map(|param| describe_operand(param, MatchKind::Exact));
    Scope { operands: operands.collect(), has_priority: false }
}

fn describe_operand(field: &FieldInfo, kind: MatchKind) -> (&str, Operand) {
    let max = field.max_number().unwrap_or(u128::MAX);
    (&field.name, Operand { id: field.id, kind, max })
}

impl P4Info {
    /// Whether the program allows an entry. A default action is no row, and only its action is
    /// restricted.
    ///
    /// # Errors
    /// A restriction of the table or of an action does not hold.
    pub fn check_constraints(&self, entry: &TableEntry) -> Result<(), ConstraintViolation> {
        if let TableRow::Match { fields, priority } = &entry.key.row
            && let Some(table) = self.table(entry.key.table)
        {
            let restriction = table.restriction.as_ref();
            require(restriction, &table.name, *priority, |operand| match_of_row(operand, fields))?;
        }
        entry.value.action.action_calls().try_for_each(|call| self.check_call(call))
    }

    /// Whether any table or action of the program has a restriction.
    pub fn has_constraints(&self) -> bool {
        self.tables().any(|table| table.restriction.is_some())
            || self.actions().any(|action| action.restriction.is_some())
    }

    fn check_call(&self, call: &ActionCall) -> Result<(), ConstraintViolation> {
        let Some(action) = self.action(call.action) else {
            return Ok(());
        };
        require(action.restriction.as_ref(), &action.name, 0, |operand| {
            let param = call.params.iter().find(|param| param.id == operand.id);
            [param.map_or(0, |param| number_of(&param.value)), 0]
        })
    }
}

fn require(
    restriction: Option<&Constraint>,
    object: &str,
    priority: u32,
    matched: impl Fn(Operand) -> [u128; 2],
) -> Result<(), ConstraintViolation> {
    let violated =
        restriction.and_then(|restriction| restriction.violated_clause(priority, matched));
    violated.map_or(Ok(()), |clause| {
        Err(ConstraintViolation { object: object.to_owned(), clause: clause.to_owned() })
    })
}

fn match_of_row(operand: Operand, fields: &[RowField]) -> [u128; 2] {
    let field = fields.iter().find(|field| field.id == operand.id);
    match field.map(|field| &field.matches) {
        Some(FieldMatch::Exact(value)) => [number_of(value), 0],
        Some(FieldMatch::Optional(value)) => [number_of(value), operand.max],
        Some(FieldMatch::Ternary { value, mask }) => [*value, *mask],
        Some(FieldMatch::Lpm { value, prefix_len }) => [*value, u128::from(*prefix_len)],
        Some(FieldMatch::Range { low, high }) => [*low, *high],
        None if operand.kind == MatchKind::Range => [0, operand.max],
        None => [0, 0],
    }
}

/// As p4-constraints reads P4Runtime's bytes: a string is the number that its bytes are, so that
/// the empty string is 0. Numbers above 128 bits count as the greatest.
fn number_of(value: &FieldValue) -> u128 {
    match value {
        FieldValue::Number(number) => *number,
        FieldValue::Text(text) if text.as_str().is_empty() => 0,
        FieldValue::Text(text) => {
            crate::bytes::decode_value(text.as_str().as_bytes()).unwrap_or(u128::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForwardingPipeline;
    use crate::entry::{ActionSpec, EntryKey};
    use crate::sdn_string::SdnString;

    fn sai() -> &'static P4Info {
        &ForwardingPipeline::embedded_sai().p4info
    }

    /// A row of a table of `sai.p4` with fields of these names.
    fn sai_row(table: &str, fields: &[(&str, u128)], priority: u32) -> EntryKey {
        let table = sai().table_named(table).unwrap();
        let fields = fields.iter().map(|(name, value)| {
            let field = table.fields.iter().find(|field| field.info.name == *name).unwrap();
            match field.kind {
                MatchKind::Optional => RowField::optional(field.info.id, *value),
                _ => RowField::ternary(field.info.id, *value, field.info.max_number().unwrap())
                    .unwrap(),
            }
        });
        EntryKey::for_row(table.id, fields.collect(), priority)
    }

    fn check(key: EntryKey, action: ActionSpec, expected: Result<(), &str>) {
        let checked = sai().check_constraints(&key.with_action(action));
        assert_eq!(
            checked.map_err(|violation| violation.to_string()),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn violations_quote_the_clause() {
        let call = |name: &str| ActionCall::new(sai().action_named(name).unwrap().id, []).into();
        let pin = |fields: &[(&str, u128)]| sai_row("acl_ingress_table", fields, 1);
        check(
            pin(&[("is_ipv4", 1), ("dst_ip", 5), ("ip_protocol", 17), ("l4_dst_port", 4791)]),
            call("acl_drop"),
            Ok(()),
        );
        check(
            pin(&[("dst_ip", 5)]),
            call("acl_drop"),
            Err("`acl_ingress_table` requires dst_ip::mask != 0 -> is_ipv4 == 1"),
        );
        check(
            pin(&[("is_ipv4", 1), ("l4_dst_port", 4791)]),
            call("acl_drop"),
            Err("`acl_ingress_table` requires \
                 l4_dst_port::mask != 0 -> ip_protocol == 6 || ip_protocol == 17"),
        );
        check(
            sai_row("acl_pre_ingress_table", &[], 0x7fff_ffff),
            call("acl_drop"),
            Err("`acl_pre_ingress_table` requires ::priority < 0x7fffffff"),
        );
        let vrf = |name: &str| RowField::exact(1, SdnString::try_from(name).unwrap());
        let table = sai().table_named("vrf_table").unwrap().id;
        check(EntryKey::for_row(table, vec![vrf("v")], 0), call("no_action"), Ok(()));
        check(
            EntryKey::for_row(table, vec![vrf("")], 0),
            call("no_action"),
            Err("`vrf_table` requires vrf_id != 0"),
        );
        let interface = sai().action_named("unicast_set_port_and_src_mac").unwrap().id;
        let port = SdnString::try_from("Ethernet0").unwrap();
        let without_mac = ActionCall::new(interface, [port.into(), 0_u32.into()]);
        let table = sai().table_named("router_interface_table").unwrap().id;
        check(
            EntryKey::for_row(table, vec![vrf("r")], 0),
            without_mac.into(),
            Err("`unicast_set_port_and_src_mac` requires src_mac != 0"),
        );
    }

    #[test]
    fn rows_of_our_own_program_are_allowed() {
        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        for (entry, text) in crate::fabric::tests::samples() {
            assert_eq!(p4info.check_constraints(&entry), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_string_is_the_number_of_its_bytes_and_zero_if_it_is_empty() {
        let cases = [("", 0), ("ab", 0x6162), (&*"long".repeat(20), u128::MAX)];
        for (text, number) in cases {
            let text = SdnString::try_from(text).unwrap();
            assert_eq!(number_of(&FieldValue::Text(text)), number);
        }
    }

    #[test]
    fn a_match_has_two_numbers_also_where_a_row_leaves_it_out() {
        let operand = |kind| Operand { id: 1, kind, max: 255 };
        let cases = [
            (FieldMatch::Exact(9_u32.into()), MatchKind::Exact, [9, 0], [0, 0]),
            (FieldMatch::Optional(9_u32.into()), MatchKind::Optional, [9, 255], [0, 0]),
            (FieldMatch::Ternary { value: 4, mask: 6 }, MatchKind::Ternary, [4, 6], [0, 0]),
            (FieldMatch::Lpm { value: 0xa0, prefix_len: 4 }, MatchKind::Lpm, [0xa0, 4], [0, 0]),
            (FieldMatch::Range { low: 3, high: 5 }, MatchKind::Range, [3, 5], [0, 255]),
        ];
        for (matches, kind, given, left_out) in cases {
            assert_eq!(match_of_row(operand(kind), &[RowField { id: 1, matches }]), given);
            assert_eq!(match_of_row(operand(kind), &[]), left_out);
        }
    }
}
