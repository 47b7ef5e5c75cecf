//! libFuzzer over [`swiftlet_fuzz::grants`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::grants(data));
