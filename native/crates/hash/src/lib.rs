//! The digests of an object's bytes: MD5, which clients expect as the ETag, and xxh3, by which the parts of the
//! cluster check one another.
//!
//! MD5 is a chain in which each step needs the one before, so one core does less than 1 GB/s however it is written.
//! xxh3 is limited by memory instead. Whoever needs both should therefore read the data from memory once, which
//! [`Hasher`] does.
//!
//! xxh3 comes from a crate that detects the processor's features at run time (AVX2 where it is compiled for SSE2). A
//! test compares its digests with those of another crate.

pub mod beside;
mod hasher;
mod md5;

pub use hasher::{Digests, Hasher};

/// MD5 of `data`.
#[must_use]
pub fn md5(data: &[u8]) -> [u8; 16] {
    let mut stream = md5::Md5::new();
    stream.update(data);
    stream.digest()
}

/// MD5 of each of `inputs`: of several at once in little more than the time of one, where the processor can.
#[must_use]
pub fn md5_of_each(inputs: &[&[u8]]) -> Vec<[u8; 16]> {
    md5::many::digests(inputs)
}

/// xxh3 of `data` in 64 bits, seed 0.
#[must_use]
pub fn xxh3_64(data: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(data)
}

/// xxh3 of `data` in 128 bits, seed 0; its canonical form is `to_be_bytes()`.
#[must_use]
pub fn xxh3_128(data: &[u8]) -> u128 {
    twox_hash::XxHash3_128::oneshot(data)
}
