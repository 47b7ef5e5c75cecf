//! The body of a PUT that is too long for the connection's own memory: it is received into the transport's memory, from
//! which it is sent to all devices. Its xxh3 is computed while it comes.
//!
//! Fault model: memory may be short: then others receive the body, as they do when it takes too long.

use std::time::{Duration, Instant};

use swiftlet_hash::{Digests, Hasher, md5, xxh3_64, xxh3_128};
use swiftlet_transport::{Buffer, Chunk, Pool};

/// How long a body may hold memory before it is complete.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

enum Memory {
    Filling(Buffer),
    Full(Chunk),
}

/// A long body, or its beginning.
pub(crate) struct Body {
    /// Bytes of the head before it.
    pub(crate) head: usize,
    memory: Memory,
    /// Of the bytes that have come. Their MD5 is computed when it is complete, with that of others.
    hasher: Hasher,
    begun: Instant,
}

impl Body {
    /// Memory for the body of so many bytes behind a head of `head` bytes; None if there is none now.
    pub(crate) fn begin(pool: &Pool, head: usize, bytes: usize, now: Instant) -> Option<Self> {
        let memory = Memory::Filling(pool.spare(bytes)?);
        Some(Self { head, memory, hasher: Hasher::new(Digests { md5: false, xxh3: true }), begun: now })
    }

    /// Whether it has taken too long.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        matches!(self.memory, Memory::Filling(_)) && now.saturating_duration_since(self.begun) > PATIENCE
    }

    /// All of it, once it is complete.
    pub(crate) fn whole(&self) -> Option<&Chunk> {
        if let Memory::Full(chunk) = &self.memory { Some(chunk) } else { None }
    }

    /// Where its next bytes belong.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let filled = self.hasher.size() as usize;
        if let Memory::Filling(buffer) = &mut self.memory { &mut buffer.as_mut_slice()[filled..] } else { &mut [] }
    }

    /// So many more bytes are where they belong.
    pub(crate) fn filled(self, bytes: usize) -> Self {
        let Self { head, memory, mut hasher, begun } = self;
        let Memory::Filling(mut buffer) = memory else { return Self { head, memory, hasher, begun } };
        let (from, length) = (hasher.size() as usize, buffer.len());
        hasher.update(&buffer.as_mut_slice()[from..from + bytes]);
        let is_full = from + bytes == length;
        let memory = if is_full { Memory::Full(buffer.freeze(length)) } else { Memory::Filling(buffer) };
        Self { head, memory, hasher, begun }
    }

    /// How many bytes have come.
    #[cfg(test)]
    pub(crate) fn come_bytes(&self) -> u64 {
        self.hasher.size()
    }

    /// The bytes that have come.
    pub(crate) fn come(&mut self) -> &[u8] {
        let filled = self.hasher.size() as usize;
        match &mut self.memory {
            Memory::Filling(buffer) => &buffer.as_mut_slice()[..filled],
            Memory::Full(chunk) => chunk,
        }
    }
}

/// A complete body: a short one as it was read, or a long one.
pub(crate) struct Content<'a> {
    bytes: &'a [u8],
    long: Option<&'a Body>,
    md5: Option<[u8; 16]>,
}

impl<'a> Content<'a> {
    /// The body behind a head of `head` bytes, of `bytes` in all; None if it is not complete. `md5` is its MD5, if
    /// somebody has computed it.
    pub(crate) fn of(
        read: &'a [u8],
        long: Option<&'a Body>,
        (head, bytes): (usize, usize),
        md5: Option<[u8; 16]>,
    ) -> Option<Self> {
        let bytes = match long {
            Some(long) => &long.whole()?[..],
            None => read.get(head..head + bytes)?,
        };
        Some(Self { bytes, long, md5 })
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many of them are among those that were read with the head.
    pub(crate) fn read_bytes(&self) -> usize {
        if self.long.is_some() { 0 } else { self.bytes.len() }
    }

    pub(crate) fn md5(&self) -> [u8; 16] {
        self.md5.unwrap_or_else(|| md5(self.bytes))
    }

    pub(crate) fn xxh3_64(&self) -> u64 {
        self.long.and_then(|long| long.hasher.xxh3_64()).unwrap_or_else(|| xxh3_64(self.bytes))
    }

    pub(crate) fn xxh3_128(&self) -> u128 {
        self.long.and_then(|long| long.hasher.xxh3_128()).unwrap_or_else(|| xxh3_128(self.bytes))
    }

    /// The bytes, to be sent: of a long body without a copy.
    pub(crate) fn chunk(&self) -> Chunk {
        self.long.and_then(Body::whole).cloned().unwrap_or_else(|| Chunk::from(self.bytes.to_vec()))
    }
}
