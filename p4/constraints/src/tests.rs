//! Cases of the language, and what any text does to its parser.

use proptest::prelude::*;

use super::*;

/// What a row matches of an operand; what it leaves out matches everything.
type Row = Option<(&'static str, [u128; 2])>;

/// One field of every kind of match, of 8 bits, and one of 9.
fn scope() -> Scope<'static> {
    let kinds = [
        ("e", MatchKind::Exact, 0xff),
        ("t", MatchKind::Ternary, 0xff),
        ("l", MatchKind::Lpm, 0xff),
        ("r", MatchKind::Range, 0xff),
        ("hdr.o", MatchKind::Optional, 0xff),
        ("w", MatchKind::Exact, 0x1ff),
    ];
    let operands = (0..).zip(kinds);
    let operands = operands.map(|(id, (name, kind, max))| (name, Operand { id, kind, max }));
    Scope { operands: operands.collect(), has_priority: true }
}

/// The first clause that a row of priority 7 violates, which matches a field by these numbers.
fn violated(text: &str, row: Row) -> Option<String> {
    let scope = scope();
    let constraint = Constraint::parse(text, &scope).unwrap();
    let clause = constraint.violated_clause(7, |operand| {
        let (name, _) = scope.operands[operand.id as usize];
        match (row, operand.kind) {
            (Some((field, numbers)), _) if field == name => numbers,
            (_, MatchKind::Range) => [0, operand.max],
            _ => [0, 0],
        }
    });
    clause.map(str::to_owned)
}

fn holds(text: &str, row: Row) -> bool {
    violated(text, row).is_none()
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
        ("0xff == 0d255 && 0o17 == 15 && 1_000 == 0b11_1110_1000", true),
        ("// a comment\n true /* another */ ; // and one", true),
        ("(true; true)", true),
        ("::priority == 7 && ::priority < 0x7fffffff", true),
        ("e == -1", false),
        ("ipv4('10.0.0.1') == 0x0a000001 && ipv4(\"0.0.0.1\") == 1", true),
        ("ipv6('::1') == 1 && mac('00:00:00:00:01:00') == 256", true),
    ];
    for (text, expected) in cases {
        assert_eq!(holds(text, None), expected, "{text}");
    }
}

#[test]
fn keys_of_every_kind() {
    let exact = Some(("e", [255, 0]));
    let ternary = Some(("t", [4, 6]));
    let whole = Some(("t", [4, 255]));
    let lpm = Some(("l", [0xa0, 4]));
    let range = Some(("r", [3, 5]));
    let optional = Some(("hdr.o", [9, 255]));
    let cases: [(Row, &str, bool); 22] = [
        (exact, "e == 255 && e == -1 && e > 254 && e::value != 3", true),
        (exact, "e == 256", false),
        (ternary, "t == 4", false),
        (ternary, "t::value == 4 && t::mask == 6", true),
        (ternary, "t::value < t::mask", true),
        (whole, "t == 4 && t::mask == -1 && -1 == t::mask", true),
        (whole, "t != 4", false),
        (None, "t::mask == 0 && t != 0", true),
        (None, "hdr.o == 0", false),
        (lpm, "l::prefix_length <= 4 && l::value == 0xa0", true),
        (lpm, "l == 0xa0", false),
        (None, "l::prefix_length == 0", true),
        (range, "r::low == 3 && r::high == 5 && r != 3", true),
        (None, "r::low == 0 && r::high == 255", true),
        (optional, "hdr.o == 9 && hdr.o::mask == 255", true),
        (optional, "hdr.o == 8", false),
        (None, "hdr.o::mask == 0", true),
        (optional, "hdr.o::mask != 0 -> (hdr.o == 9 || t == 1)", true),
        (None, "hdr.o::mask != 0 -> hdr.o == 9", true),
        (optional, "hdr.o::mask != 0 -> hdr.o == 1; true", false),
        (exact, "e::value == t::value || e == t::mask", false),
        (exact, "(e == 255) == true; e != 255 -> false; false -> e == 0", true),
    ];
    for (row, text, expected) in cases {
        assert_eq!(holds(text, row), expected, "{text}");
    }
}

#[test]
fn a_violated_clause_is_quoted_in_one_line() {
    let cases = [
        ("true; e != 0 ; false", "e != 0"),
        ("t  ==\n  1 // a comment\n && /* b */ e == 1; true", "t == 1 && e == 1"),
        ("true && false", "true && false"),
        ("true; !(1==1)->true; ::priority != 7", "::priority != 7"),
    ];
    for (text, clause) in cases {
        assert_eq!(violated(text, None).as_deref(), Some(clause), "{text}");
    }
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
        (
            "0x1_0000_0000_0000_0000_0000_0000_0000_0000",
            "`0x1_0000_0000_0000_0000_0000_0000_0000_0000` is no number of 128 bits, at byte 0 of \
             `0x1_0000_0000_0000_0000_0000_0000_0000_0000`",
        ),
        ("r::value == 1", "`r` has no part `value`, at byte 3 of `r::value == 1`"),
        ("e == true", "the types do not fit, at byte 9 of `e == true`"),
        ("e == ipv4('x)", "a quote is not closed, at byte 10 of `e == ipv4('x)`"),
        ("::role == 1", "nothing is called `role`, at byte 2 of `::role == 1`"),
    ];
    for (text, expected) in cases {
        let error = Constraint::parse(text, &scope()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = Constraint::parse(&too_deep, &scope()).unwrap_err();
    assert_eq!(error.problem, ConstraintProblem::TooDeep);
    let of_calls = Scope { has_priority: false, ..scope() };
    let error = Constraint::parse("::priority == 1", &of_calls).unwrap_err();
    assert_eq!(error.problem, ConstraintProblem::UnknownName("priority".to_owned()));
}

/// Words of the language in any order, which make sense more often than any characters do.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "e",
        "t",
        "l",
        "r",
        "hdr.o",
        "w",
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
        match Constraint::parse(&text, &scope()) {
            Err(error) => prop_assert!(error.position <= text.len()),
            Ok(_) => {
                // A clause that is quoted is violated by itself.
                let again = violated(&text, None).map(|clause| holds(&clause, None));
                prop_assert_ne!(again, Some(true));
            }
        }
    }

    #[test]
    fn implication_is_what_it_means(value: u8, mask: u8, other: u8) {
        let row = Some(("t", [(value & mask).into(), mask.into()]));
        let implication = format!("t::mask != 0 -> t::value == {other}");
        let expected = mask == 0 || value & mask == other;
        prop_assert_eq!(holds(&implication, row), expected);
        let disjunction = format!("t::mask == 0 || !(t::value != {other})");
        prop_assert_eq!(holds(&disjunction, row), expected);
    }
}
