//! Plays STF cases: `cargo run -p switch --example stf -- PROGRAM.json CASE.stf ...`, or with one
//! folder instead, every case in it whose program lies beside it.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use switch::Program;
use switch::testing::stf::StfCase;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args().skip(1).map(PathBuf::from).collect();
    let pairs: Vec<(PathBuf, PathBuf)> = match arguments.as_slice() {
        [folder] if folder.is_dir() => cases_in(folder)?,
        [program, cases @ ..] => cases.iter().map(|case| (program.clone(), case.clone())).collect(),
        [] => return Err("stf PROGRAM.json CASE.stf ... | stf FOLDER".into()),
    };
    match play_all(&pairs, &mut io::stdout()) {
        // Whoever read the results has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        played => Ok(played?),
    }
}

fn play_all(pairs: &[(PathBuf, PathBuf)], results: &mut impl Write) -> io::Result<()> {
    let mut passed = 0;
    for (program, case) in pairs {
        match play(program, case) {
            Ok(()) => passed += 1,
            Err(error) => writeln!(results, "{}: {}", case.display(), chain(&*error))?,
        }
    }
    writeln!(results, "{passed} of {} cases pass", pairs.len())
}

fn cases_in(folder: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Box<dyn Error>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let case = entry?.path();
        let program = case.with_extension("json");
        if case.extension().is_some_and(|kind| kind == "stf") && program.exists() {
            cases.push((program, case));
        }
    }
    cases.sort();
    Ok(cases)
}

fn play(program: &Path, case: &Path) -> Result<(), Box<dyn Error>> {
    let program = Arc::new(Program::from_json(&fs::read(program)?)?);
    Ok(StfCase::parse(&fs::read_to_string(case)?)?.run_on(&program)?)
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
