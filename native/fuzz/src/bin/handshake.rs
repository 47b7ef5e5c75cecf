//! libFuzzer over [`swiftlet_fuzz::handshake`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::handshake(data));
