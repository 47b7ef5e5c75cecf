//! libFuzzer over [`swiftlet_fuzz::objects`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| swiftlet_fuzz::objects(data));
