//! libFuzzer over [`swiftlet_fuzz::messages`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::messages(data));
