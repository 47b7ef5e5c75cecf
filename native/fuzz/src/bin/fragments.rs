//! libFuzzer over [`swiftlet_fuzz::fragments`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::fragments(data));
