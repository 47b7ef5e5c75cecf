//! libFuzzer over [`swiftlet_fuzz::rows`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::rows(data));
