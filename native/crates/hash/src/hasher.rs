//! Digests of a stream that arrives in pieces of any size.

use std::hash::Hasher as _;

use twox_hash::xxhash3_64::Hasher as Xxh3;

use crate::md5::Md5;

/// How much is given to one digest before the other gets the same bytes. Half of a common 32 KiB
/// first-level cache: the second digest finds its bytes there.
const SLICE_BYTES: usize = 16 * 1024;

/// Which digests a [`Hasher`] keeps; one that is not asked for costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Keep MD5.
    pub md5: bool,
    /// Keep xxh3 in 64 bits.
    pub xxh3: bool,
}

impl Digests {
    /// MD5 and xxh3.
    pub const ALL: Self = Self { md5: true, xxh3: true };
}

/// MD5 and xxh3 of a stream, in one pass over it.
///
/// Reading a digest does not end the stream: more may follow, and a clone goes its own way.
#[derive(Clone)]
pub struct Hasher {
    md5: Option<Md5>,
    xxh3: Option<Box<Xxh3>>,
    size: u64,
}

impl Hasher {
    /// A hasher that has seen nothing yet.
    #[must_use]
    pub fn new(digests: Digests) -> Self {
        Self { md5: digests.md5.then(Md5::new), xxh3: digests.xxh3.then(|| Box::new(Xxh3::new())), size: 0 }
    }

    /// Take in the next bytes of the stream.
    pub fn update(&mut self, data: &[u8]) {
        self.size += data.len() as u64;
        match (&mut self.md5, &mut self.xxh3) {
            (Some(md5), Some(xxh3)) => {
                for slice in data.chunks(SLICE_BYTES) {
                    md5.update(slice);
                    xxh3.write(slice);
                }
            }
            (Some(md5), None) => md5.update(data),
            (None, Some(xxh3)) => xxh3.write(data),
            (None, None) => {}
        }
    }

    /// How many bytes have been taken in.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// MD5 of the bytes so far, if it is kept.
    #[must_use]
    pub fn md5(&self) -> Option<[u8; 16]> {
        self.md5.as_ref().map(Md5::digest)
    }

    /// xxh3 of the bytes so far in 64 bits, if it is kept.
    #[must_use]
    pub fn xxh3_64(&self) -> Option<u64> {
        self.xxh3.as_ref().map(|xxh3| xxh3.finish())
    }
}

#[cfg(test)]
mod tests;
