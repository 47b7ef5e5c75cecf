//! Bytes of an object that are in memory in several parts.

use std::ops::Range;

use swiftlet_hash::{Digests, Hasher, xxh3_64};
use swiftlet_transport::Chunk;

/// xxh3-64 of what the parts are together.
#[must_use]
pub fn xxh3_of(parts: &[Chunk]) -> u64 {
    if let [part] = parts {
        return xxh3_64(part);
    }
    let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
    parts.iter().for_each(|part| hasher.update(part));
    hasher.xxh3_64().unwrap_or_else(|| xxh3_64(&[]))
}

/// The bytes of a range of what the parts are together; what lies behind their end is left out.
#[must_use]
pub fn within(parts: Vec<Chunk>, range: &Range<u64>) -> Vec<Chunk> {
    let mut at = 0;
    let inside = |part: Chunk| {
        let from = at;
        at += part.len() as u64;
        let (first, end) = (range.start.clamp(from, at) - from, range.end.clamp(from, at) - from);
        (first < end).then(|| part.part(first as usize..end as usize))
    };
    parts.into_iter().filter_map(inside).collect()
}
