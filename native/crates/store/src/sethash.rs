//! Set hashes: 16 bytes that are equal exactly when two suffixes hold the same entries.
//!
//! The sum modulo 2^128 of one term per entry, so that a write costs one subtraction and one addition and the order
//! of writes leaves no trace.

use crate::model::{Entry, Suffix};

/// In place of an entry's kind in the term of a fragment.
const FRAGMENT: u8 = 3;

/// The term of one entry: xxh3-128 of digest, kind and the three timestamps.
#[must_use]
pub fn term(entry: &Entry) -> u128 {
    let mut packed = [0; 41];
    packed[..16].copy_from_slice(&entry.digest);
    packed[16] = entry.kind as u8;
    packed[17..25].copy_from_slice(&entry.timestamp.to_be_bytes());
    packed[25..33].copy_from_slice(&entry.meta_timestamp.to_be_bytes());
    packed[33..].copy_from_slice(&entry.content_type_timestamp.to_be_bytes());
    swiftlet_hash::xxh3_128(&packed)
}

/// The term of a fragment's version that is for certain, with its metadata: the same at all places. It has the
/// generation besides, so that two writes with one timestamp are told apart.
#[must_use]
pub fn fragment_term(entry: &Entry, generation: u64) -> u128 {
    let mut packed = [0; 49];
    packed[..16].copy_from_slice(&entry.digest);
    packed[16] = FRAGMENT;
    packed[17..25].copy_from_slice(&entry.timestamp.to_be_bytes());
    packed[25..33].copy_from_slice(&entry.meta_timestamp.to_be_bytes());
    packed[33..41].copy_from_slice(&entry.content_type_timestamp.to_be_bytes());
    packed[41..].copy_from_slice(&generation.to_be_bytes());
    swiftlet_hash::xxh3_128(&packed)
}

/// One hash over a partition: xxh3-128 of its suffixes in hexadecimal and their set hashes, by suffix.
#[must_use]
pub fn root(suffixes: &[(Suffix, u128)]) -> u128 {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut packed = Vec::with_capacity(suffixes.len() * 19);
    for (suffix, sum) in suffixes {
        packed.extend([8, 4, 0].map(|shift| DIGITS[usize::from(suffix >> shift & 0xf)]));
        packed.extend_from_slice(&sum.to_be_bytes());
    }
    swiftlet_hash::xxh3_128(&packed)
}

/// One hash over roots in the order of their partitions; for a single one the root itself.
#[must_use]
pub fn over(roots: &[u128]) -> u128 {
    if let [root] = roots {
        return *root;
    }
    let packed: Vec<u8> = roots.iter().flat_map(|root| root.to_be_bytes()).collect();
    swiftlet_hash::xxh3_128(&packed)
}
