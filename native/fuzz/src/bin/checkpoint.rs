//! libFuzzer over [`swiftlet_fuzz::checkpoint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::checkpoint(data));
