//! Cases of the language, and what any text does to its parser.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::ForwardingPipeline;
use crate::entry::{ActionSpec, EntryKey, FieldMatch};
use crate::p4info::{ValueFormat, ValueType};
use crate::sdn_string::SdnString;

static SAI: LazyLock<&P4Info> = LazyLock::new(|| &ForwardingPipeline::embedded_sai().p4info);

/// One field of every kind of match, of 8 bits, and a string.
fn fields() -> Vec<MatchField> {
    let kinds = [
        ("e", MatchKind::Exact, ValueType::Bits(8)),
        ("t", MatchKind::Ternary, ValueType::Bits(8)),
        ("l", MatchKind::Lpm, ValueType::Bits(8)),
        ("r", MatchKind::Range, ValueType::Bits(8)),
        ("hdr.o", MatchKind::Optional, ValueType::Bits(8)),
        ("s", MatchKind::Exact, ValueType::Text),
        ("w", MatchKind::Exact, ValueType::Bits(9)),
    ];
    let field = |(id, (name, kind, value_type)): (u32, (&str, _, _))| {
        let (format, refers_to) = (ValueFormat::Number, Vec::new());
        let info = FieldInfo { id, name: name.to_owned(), value_type, format, refers_to };
        MatchField { info, kind }
    };
    (1..).zip(kinds).map(field).collect()
}

fn row(matches: FieldMatch) -> Vec<RowField> {
    let id = match matches {
        FieldMatch::Exact(_) => 1,
        FieldMatch::Ternary { .. } => 2,
        FieldMatch::Lpm { .. } => 3,
        FieldMatch::Range { .. } => 4,
        FieldMatch::Optional(_) => 5,
    };
    vec![RowField { id, matches }]
}

fn holds(text: &str, fields_of_row: &[RowField]) -> bool {
    let fields = fields();
    let constraint = Constraint::parse(text, &Scope::for_table(&fields)).unwrap();
    constraint.violated_clause(Subject { fields: fields_of_row, priority: 7 }).is_none()
}

#[test]
fn constants_and_operators() {
    let cases = [
        ("true", true),
        ("false", false),
        ("", true),
        ("true;", true),
        ("true; false", false),
        ("!false && true", true),
        ("true || false && false", true),
        ("(true || false) && false", false),
        ("false -> false", true),
        ("true -> false", false),
        ("true == !false", true),
        ("true != true", false),
        ("1 < 2", true),
        ("-1 < 1", true),
        ("-1 > -2", true),
        ("--3 == 3", true),
        ("0xff == 0d255 && 0o17 == 15", true),
        ("// a comment\n true /* another */ ; // and one", true),
        ("(true; true)", true),
        ("::priority == 7 && ::priority < 0x7fffffff", true),
        ("e == -1", false),
        ("ipv4('10.0.0.1') == 0x0a000001", true),
        ("ipv6('::1') == 1 && mac('00:00:00:00:01:00') == 256", true),
    ];
    for (text, expected) in cases {
        assert_eq!(holds(text, &[]), expected, "{text}");
    }
}

#[test]
fn keys_of_every_kind() {
    let exact = row(FieldMatch::Exact(255_u32.into()));
    let ternary = row(FieldMatch::Ternary { value: 4, mask: 6 });
    let whole = row(FieldMatch::Ternary { value: 4, mask: 255 });
    let lpm = row(FieldMatch::Lpm { value: 0xa0, prefix_len: 4 });
    let range = row(FieldMatch::Range { low: 3, high: 5 });
    let optional = row(FieldMatch::Optional(9_u32.into()));
    let cases: [(&[RowField], &str, bool); 20] = [
        (&exact, "e == 255 && e == -1 && e > 254 && e::value != 3", true),
        (&exact, "e == 256", false),
        (&ternary, "t == 4", false),
        (&ternary, "t::value == 4 && t::mask == 6", true),
        (&ternary, "t::value < t::mask", true),
        (&whole, "t == 4 && t::mask == -1", true),
        (&whole, "t != 4", false),
        (&[], "t::mask == 0 && t != 0", true),
        (&lpm, "l::prefix_length <= 4 && l::value == 0xa0", true),
        (&lpm, "l == 0xa0", false),
        (&[], "l::prefix_length == 0", true),
        (&range, "r::low == 3 && r::high == 5 && r != 3", true),
        (&[], "r::low == 0 && r::high == 255", true),
        (&optional, "hdr.o == 9 && hdr.o::mask == 255", true),
        (&optional, "hdr.o == 8", false),
        (&[], "hdr.o::mask == 0", true),
        (&optional, "hdr.o::mask != 0 -> hdr.o == 9", true),
        (&[], "hdr.o::mask != 0 -> hdr.o == 9", true),
        (&optional, "hdr.o::mask != 0 -> hdr.o == 1; true", false),
        (&exact, "e::value == t::value || e == t::mask", false),
    ];
    for (fields, text, expected) in cases {
        assert_eq!(holds(text, fields), expected, "{text}");
    }
}

#[test]
fn a_string_is_zero_if_it_is_empty() {
    let row = |text: &str| vec![RowField::exact(6, SdnString::try_from(text).unwrap())];
    for (text, expected) in [("", false), ("vrf-1", true), (&*"long".repeat(20), true)] {
        assert_eq!(holds("s != 0", &row(text)), expected, "{text}");
    }
    assert!(holds("s == 0x6162", &row("ab")));
}

#[test]
fn errors_have_positions() {
    let too_deep = "(".repeat(70);
    let cases = [
        ("e ==", "expected a value, at byte 4 of `e ==`"),
        ("e == x", "nothing is called `x`, at byte 5 of `e == x`"),
        ("e::mask == 0", "`e` has no part `mask`, at byte 3 of `e::mask == 0`"),
        ("e", "the types do not fit, at byte 1 of `e`"),
        ("e == w", "the types do not fit, at byte 6 of `e == w`"),
        ("t < 3", "the types do not fit, at byte 5 of `t < 3`"),
        ("true < false", "the types do not fit, at byte 12 of `true < false`"),
        ("-e == 0", "the types do not fit, at byte 3 of `-e == 0`"),
        ("1 == 1 == 1", "brackets are needed here, at byte 10 of `1 == 1 == 1`"),
        ("true -> true -> true", "brackets are needed here, at byte 13 of `true -> true -> true`"),
        ("true true", "expected ;, at byte 5 of `true true`"),
        ("(true", "expected ), at byte 5 of `(true`"),
        ("e = 1", "unexpected character '=', at byte 2 of `e = 1`"),
        ("e == 0xg", "`0xg` is no number of 128 bits, at byte 5 of `e == 0xg`"),
        ("e == ipv4('x')", "`x` is no such address, at byte 10 of `e == ipv4('x')`"),
        ("e == ipv4('x)", "a quote is not closed, at byte 10 of `e == ipv4('x)`"),
        ("::role == 1", "nothing is called `role`, at byte 2 of `::role == 1`"),
    ];
    let fields = fields();
    for (text, expected) in cases {
        let error = Constraint::parse(text, &Scope::for_table(&fields)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = Constraint::parse(&too_deep, &Scope::for_table(&fields)).unwrap_err();
    assert_eq!(error.problem, ConstraintProblem::TooDeep);
}

/// A row of a table of `sai.p4` with fields of these names.
fn sai_row(table: &str, fields: &[(&str, u128)], priority: u32) -> EntryKey {
    let table = SAI.table_named(table).unwrap();
    let fields = fields.iter().map(|(name, value)| {
        let field = table.fields.iter().find(|field| field.info.name == *name).unwrap();
        match field.kind {
            MatchKind::Optional => RowField::optional(field.info.id, *value),
            _ => {
                RowField::ternary(field.info.id, *value, field.info.max_number().unwrap()).unwrap()
            }
        }
    });
    EntryKey::for_row(table.id, fields.collect(), priority)
}

fn check(key: EntryKey, action: ActionSpec, expected: Result<(), &str>) {
    let checked = SAI.check_constraints(&key.with_action(action));
    assert_eq!(checked.map_err(|violation| violation.to_string()), expected.map_err(str::to_owned));
}

#[test]
fn violations_quote_the_clause() {
    let call = |name: &str| ActionCall::new(SAI.action_named(name).unwrap().id, []).into();
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
    let table = SAI.table_named("vrf_table").unwrap().id;
    check(EntryKey::for_row(table, vec![vrf("v")], 0), call("no_action"), Ok(()));
    check(
        EntryKey::for_row(table, vec![vrf("")], 0),
        call("no_action"),
        Err("`vrf_table` requires vrf_id != 0"),
    );
    let interface = SAI.action_named("unicast_set_port_and_src_mac").unwrap().id;
    let port = SdnString::try_from("Ethernet0").unwrap();
    let without_mac = ActionCall::new(interface, [port.into(), 0_u32.into()]);
    let table = SAI.table_named("router_interface_table").unwrap().id;
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

/// Words of the language in any order, which make sense more often than any characters do.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "e",
        "t",
        "l",
        "r",
        "hdr.o",
        "s",
        "::",
        "mask",
        "value",
        "low",
        "prefix_length",
        "::priority",
        "true",
        "false",
        "0",
        "1",
        "0xff",
        "==",
        "!=",
        "<",
        ">=",
        "&&",
        "||",
        "->",
        ";",
        "!",
        "-",
        "(",
        ")",
        "ipv4",
        "'10.0.0.1'",
        "//",
        "\n",
        "/*",
        "*/",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in prop_oneof![words(), any::<String>()]) {
        let fields = fields();
        match Constraint::parse(&text, &Scope::for_table(&fields)) {
            Err(error) => prop_assert!(error.position <= text.len()),
            Ok(constraint) => {
                let subject = Subject { fields: &[], priority: 1 };
                let violated = constraint.violated_clause(subject);
                // A clause that is quoted is violated by itself.
                let again = violated.map(|clause| holds_of(clause, subject));
                prop_assert_ne!(again, Some(true));
            }
        }
    }

    #[test]
    fn implication_is_what_it_means(value: u8, mask: u8, other: u8) {
        let fields = row(FieldMatch::Ternary { value: (value & mask).into(), mask: mask.into() });
        let implication = format!("t::mask != 0 -> t::value == {other}");
        let expected = mask == 0 || value & mask == other;
        prop_assert_eq!(holds(&implication, &fields), expected);
        let disjunction = format!("t::mask == 0 || !(t::value != {other})");
        prop_assert_eq!(holds(&disjunction, &fields), expected);
    }
}

fn holds_of(text: &str, subject: Subject<'_>) -> bool {
    let fields = fields();
    let constraint = Constraint::parse(text, &Scope::for_table(&fields)).unwrap();
    constraint.violated_clause(subject).is_none()
}
