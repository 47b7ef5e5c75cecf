//! libFuzzer over [`swiftlet_fuzz::guests`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::guests(data));
