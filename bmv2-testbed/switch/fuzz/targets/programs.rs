//! libFuzzer gives bytes, [`switch_fuzz::programs`] takes them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switch_fuzz::programs(data));
