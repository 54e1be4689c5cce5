//! The STF cases of `tests/programs`, each on the program of its name.

use std::sync::Arc;

use switch::Program;
use switch::testing::stf::StfCase;

fn check(json: &[u8], case: &str) {
    let program = Arc::new(Program::from_json(json).expect("the program loads"));
    let played = StfCase::parse(case).expect("the case is read").run_on(&program);
    if let Err(error) = played {
        panic!("{error}");
    }
}

#[test]
fn objects_with_state() {
    check(include_bytes!("programs/state.json"), include_str!("programs/state.stf"));
}

#[test]
fn headers_of_every_shape() {
    check(include_bytes!("programs/shapes.json"), include_str!("programs/shapes.stf"));
}

#[test]
fn fabric_p4_passes_the_tests_of_p4testgen() {
    let json = include_bytes!("../../../p4/fabric.json");
    let cases = include_str!("programs/fabric.stf").split("# case ").skip(1);
    let mut played = 0;
    for case in cases {
        let (number, statements) = case.split_once('\n').expect("a number, then statements");
        eprintln!("case {number}");
        check(json, statements);
        played += 1;
    }
    assert_eq!(played, 75);
}

#[test]
fn a_case_that_does_not_hold_fails() {
    let program = Program::from_json(include_bytes!("programs/shapes.json")).unwrap();
    let case = StfCase::parse("packet 1 00 00 00 00\nexpect 2 00 00 00 65 $").unwrap();
    let error = case.run_on(&Arc::new(program)).unwrap_err().to_string();
    assert_eq!(error, "port 2: packet 0 is 00000064");
}
