//! libFuzzer over [`swiftlet_fuzz::erasure`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::erasure(data));
