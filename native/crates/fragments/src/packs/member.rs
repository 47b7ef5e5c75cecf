//! The bytes of an object in a pack. They say themselves which version they are, and prove it.
//!
//! Fault model: any bytes. Numbers are big-endian.

use swiftlet_hash::xxh3_64;

use super::Digest;
use crate::cursor::Cursor;

/// Bytes before a member's metadata.
pub const HEAD: usize = 40;
const CHECK: usize = HEAD - 8;

/// An object in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'a> {
    /// The object.
    pub digest: Digest,
    /// Its version.
    pub timestamp: u64,
    /// As in the record of a whole object.
    pub metadata: &'a [u8],
    /// The object's bytes.
    pub body: &'a [u8],
}

/// Bytes of a member in a pack.
#[must_use]
pub fn length(metadata: usize, body: usize) -> usize {
    HEAD + metadata + body
}

impl<'a> Packed<'a> {
    /// Append the member's bytes to those of a pack.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(self.digest);
        out.extend(self.timestamp.to_be_bytes());
        out.extend((self.metadata.len() as u32).to_be_bytes());
        out.extend((self.body.len() as u32).to_be_bytes());
        out.extend([0; 8]);
        out.extend(self.metadata);
        out.extend(self.body);
        let check = digest_of(&out[start..]);
        out[start + CHECK..start + HEAD].copy_from_slice(&check.to_be_bytes());
    }

    /// A member from the range of the pack to which a reference leads; nothing if it is another one, or damaged.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let (digest, timestamp) = (cursor.bytes()?, cursor.u64()?);
        let (metadata, body) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let check = cursor.u64()?;
        let rest = bytes.get(HEAD..)?;
        if rest.len() != metadata.checked_add(body)? || digest_of(bytes) != check {
            return None;
        }
        let (metadata, body) = rest.split_at(metadata);
        Some(Self { digest, timestamp, metadata, body })
    }
}

/// What the bytes of a member say of its version's time.
#[must_use]
pub fn timestamp_of(member: &[u8]) -> Option<u64> {
    let mut cursor = Cursor(member);
    let _digest: Digest = cursor.bytes()?;
    cursor.u64()
}

/// The check that the bytes of a member have: of two that have the same one, all bytes are the same.
#[must_use]
pub fn check_of(member: &[u8]) -> Option<u64> {
    Cursor(member.get(CHECK..HEAD)?).u64()
}

/// How many bytes the member has that begins here; None before that is known.
#[must_use]
pub fn length_of(begin: &[u8]) -> Option<usize> {
    let mut cursor = Cursor(begin.get(24..32)?);
    let (metadata, body) = (cursor.u32()?, cursor.u32()?);
    HEAD.checked_add(metadata as usize)?.checked_add(body as usize)
}

/// Over everything but the digest itself.
fn digest_of(bytes: &[u8]) -> u64 {
    let ends = [xxh3_64(&bytes[..CHECK]).to_be_bytes(), xxh3_64(&bytes[HEAD..]).to_be_bytes()];
    xxh3_64(&ends.concat())
}
