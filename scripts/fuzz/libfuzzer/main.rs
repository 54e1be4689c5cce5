//! libFuzzer gives bytes, the target that `FUZZ_TARGET` names takes them.

#![no_main]

use std::sync::OnceLock;

use fuzz_targets::{FuzzTarget, find_target};
use nix::sys::signal::{SigHandler, Signal, signal};

static TARGET: OnceLock<&FuzzTarget> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        // As in every Rust program; here the main function is libFuzzer's.
        let ignored = SigHandler::SigIgn;
        // SAFETY: no handler runs, and nothing else has been started yet.
        unsafe { signal(Signal::SIGPIPE, ignored) }.expect("this signal can be ignored");
    },
    |data: &[u8]| {
        let _refused = (TARGET.get_or_init(chosen_target).run)(data);
    }
);

fn chosen_target() -> &'static FuzzTarget {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    find_target(&name).expect("FUZZ_TARGET is the name of a target")
}
