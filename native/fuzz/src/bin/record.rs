//! libFuzzer over [`swiftlet_fuzz::record`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::record(data));
