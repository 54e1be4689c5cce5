//! A C program with its own declarations drives the plugin (`harness.c`). Left out, and said so,
//! where there is no C compiler.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::process_message::{ProcessMessage, parse_message};

use super::library;

const CHUNK: u64 = 1 << 19;

fn compile(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugin/harness.c");
    let program = folder.join("harness");
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-o"];
    let compiler = Command::new("cc").args(flags).arg(&program).arg(source).arg("-ldl").output();
    let Ok(output) = compiler else {
        eprintln!("left out: no C compiler (cc)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn what_a_c_program_sends_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
    for version in ["ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6"] {
        let socket = folder.path().join(version);
        let listener = UnixListener::bind(&socket).unwrap();
        let mut process = Command::new(&program)
            .arg(library())
            .arg(version)
            .env("CRUX_AGENT_SOCKET", &socket)
            .env("CRUX_NCCL_REPORT_MS", "100")
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match parse_message(&line) {
                Ok(ProcessMessage::Communicator(traffic)) => received.push(*traffic),
                other => panic!("{line}: {other:?}"),
            }
        }
        let status = process.wait().unwrap();
        assert!(status.success(), "{version}: {status}");
        let last = received.last().expect("a message");
        assert_eq!((last.id.as_str(), last.name.as_str()), ("000000000000002a", "c"));
        assert_eq!((last.rank, last.ranks, last.host_count), (0, 2, 2));
        let calls: u64 = received.iter().flat_map(|m| &m.operations).map(|op| op.calls).sum();
        let buffers: u64 = received.iter().flat_map(|m| &m.operations).map(|op| op.bytes).sum();
        assert_eq!((calls, buffers), (50, 50 * 2_000), "{version}");
        let sent: u64 = received.iter().flat_map(|m| &m.peers).map(|peer| peer.bytes).sum();
        assert_eq!(sent, 50 * 2 * (CHUNK + 1_000), "{version}");
        // A busy machine delays calls, so that several of them may look like one iteration.
        let iteration = last.iteration.expect("it repeats");
        assert_eq!(iteration.bytes % (2.0 * (CHUNK as f64 + 1_000.0)), 0.0, "{iteration:?}");
    }
}
