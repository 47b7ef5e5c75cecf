//! The digests of an object's bytes: MD5, which clients expect as the ETag, and xxh3, by which the
//! parts of the cluster check one another.
//!
//! MD5 is a chain: each step needs the one before, so one core does about 0.6 GB/s however it is
//! written. xxh3 is limited by memory instead. Whoever needs both therefore should read the data from
//! memory once, which is what [`Hasher`] does.
#![forbid(unsafe_code)]

mod hasher;

pub use hasher::{Digests, Hasher};
use md5::Digest as _;

/// MD5 of `data`.
#[must_use]
pub fn md5(data: &[u8]) -> [u8; 16] {
    md5::Md5::digest(data).into()
}

/// xxh3 of `data` in 64 bits, seed 0.
#[must_use]
pub fn xxh3_64(data: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(data)
}

/// xxh3 of `data` in 128 bits, seed 0; its canonical form is `to_be_bytes()`.
#[must_use]
pub fn xxh3_128(data: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(data)
}
