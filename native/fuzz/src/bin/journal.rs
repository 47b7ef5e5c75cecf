//! libFuzzer over [`swiftlet_fuzz::journal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::journal(data));
