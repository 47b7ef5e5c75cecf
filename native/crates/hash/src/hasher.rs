//! Digests of a stream that arrives in pieces of any size.

use twox_hash::xxhash3_128::Hasher as Xxh3;

use crate::md5::{self, Md5};
use crate::xxh3_64;

/// How much is given to one digest before the other one gets the same bytes. Half of a common 32 KiB first-level
/// cache: the second digest finds its bytes there.
const SLICE_BYTES: usize = 16 * 1024;
/// Up to this size xxh3 in 64 bits is computed by a method of its own; above it, it is the low half of xxh3 in 128
/// bits.
const SHORT_BYTES: usize = 240;

/// Which digests a [`Hasher`] computes; the others cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Compute MD5.
    pub md5: bool,
    /// Compute xxh3, in 64 and in 128 bits.
    pub xxh3: bool,
}

impl Digests {
    /// MD5 and xxh3.
    pub const ALL: Self = Self { md5: true, xxh3: true };
}

/// MD5 and xxh3 of a stream, in one pass over it.
///
/// Reading a digest does not end the stream: more may follow, and a clone continues independently.
#[derive(Clone)]
pub struct Hasher {
    md5: Option<Md5>,
    xxh3: Option<Box<BothXxh3>>,
    size: u64,
}

impl Hasher {
    /// A hasher without any bytes.
    #[must_use]
    pub fn new(digests: Digests) -> Self {
        Self { md5: digests.md5.then(Md5::new), xxh3: digests.xxh3.then(|| Box::new(BothXxh3::new())), size: 0 }
    }

    /// Digest the next bytes of the stream.
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

    /// Digest the next bytes of each of several streams, MD5 side by side: in little more than the time of one, where
    /// the processor can.
    pub fn update_each(hashers: &mut [&mut Self], inputs: &[&[u8]]) {
        let longest = inputs.iter().map(|input| input.len()).max().unwrap_or_default();
        for start in (0..longest).step_by(SLICE_BYTES) {
            let slices: Vec<&[u8]> = inputs
                .iter()
                .map(|input| &input[start.min(input.len())..(start + SLICE_BYTES).min(input.len())])
                .collect();
            let (mut streams, mut of_streams) = (Vec::new(), Vec::new());
            for (hasher, slice) in hashers.iter_mut().zip(&slices) {
                if let Some(md5) = &mut hasher.md5 {
                    streams.push(md5);
                    of_streams.push(*slice);
                }
            }
            md5::many::update(&mut streams, &of_streams);
            for (hasher, slice) in hashers.iter_mut().zip(slices) {
                hasher.size += slice.len() as u64;
                if let Some(xxh3) = &mut hasher.xxh3 {
                    xxh3.write(slice);
                }
            }
        }
    }

    /// How many bytes were digested.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// MD5 of the bytes so far, if it is computed.
    #[must_use]
    pub fn md5(&self) -> Option<[u8; 16]> {
        self.md5.as_ref().map(Md5::digest)
    }

    /// xxh3 of the bytes so far in 64 bits, if it is computed.
    #[must_use]
    pub fn xxh3_64(&self) -> Option<u64> {
        self.xxh3.as_ref().map(|xxh3| xxh3.in_64_bits())
    }

    /// xxh3 of the bytes so far in 128 bits, if it is computed.
    #[must_use]
    pub fn xxh3_128(&self) -> Option<u128> {
        self.xxh3.as_ref().map(|xxh3| xxh3.stream.finish_128())
    }
}

/// xxh3 in both widths from one pass over a stream.
#[derive(Clone)]
struct BothXxh3 {
    stream: Xxh3,
    /// The stream's first bytes, at most one more than `SHORT_BYTES`.
    head: [u8; SHORT_BYTES + 1],
    held: usize,
}

impl BothXxh3 {
    fn new() -> Self {
        Self { stream: Xxh3::new(), head: [0; SHORT_BYTES + 1], held: 0 }
    }

    fn write(&mut self, data: &[u8]) {
        let more = data.len().min(self.head.len() - self.held);
        self.head[self.held..self.held + more].copy_from_slice(&data[..more]);
        self.held += more;
        self.stream.write(data);
    }

    fn in_64_bits(&self) -> u64 {
        if self.held <= SHORT_BYTES { xxh3_64(&self.head[..self.held]) } else { self.stream.finish_128() as u64 }
    }
}

#[cfg(test)]
mod tests;
