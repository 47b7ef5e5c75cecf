//! libFuzzer over [`swiftlet_fuzz::branches`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::branches(data));
