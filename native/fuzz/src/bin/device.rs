//! libFuzzer over [`swiftlet_fuzz::device`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::device(data));
