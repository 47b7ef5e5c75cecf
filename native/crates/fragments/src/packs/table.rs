//! The bytes of the references that a place has to one pack.
//!
//! They are sorted by digest, in blocks of [`BLOCK`]: who knows the block of one reads its entry in an index, and it.
//! A digest is written without what it has in common with the one before, a timestamp by how much it is above the
//! lowest one, in as many bytes as the highest one takes. Numbers are big-endian, lengths variable.
//!
//! Each block has a digest of its own, over all that is needed to read it. So a block is proved without the others,
//! and of a damaged table those that are sound still count.
//!
//! Fault model: any bytes. What is accepted is written in one way only.

use std::ops::Range;

use swiftlet_hash::{Digests, Hasher};

use super::{Digest, Pack};
use crate::cursor::Cursor;
use crate::version::Version;

/// Most members of a pack.
pub const MAX_MEMBERS: usize = 1 << 16;
/// Most bytes of a member of a pack: with the number of its block they fit into 32 bits of an index.
pub const MAX_MEMBER_BYTES: u32 = (1 << 22) - 1;
/// References of a block.
pub const BLOCK: usize = 64;
/// Bytes before the index of blocks.
pub const HEAD: usize = 47;
/// Bytes of the index for each block: its first digest, where it begins and how long it is, where its first member
/// begins in the pack, and the block's digest.
const ENTRY: usize = 38;
const CHECK: usize = ENTRY - 8;
const VERSION: u8 = 1;

/// Where an object is in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The object.
    pub digest: Digest,
    /// Its version.
    pub timestamp: u64,
    /// Where its bytes begin in the pack.
    pub offset: u64,
    /// How many they are.
    pub length: u32,
}

impl Reference {
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length.into())
    }
}

/// The references that a place has to one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The pack.
    pub pack: Pack,
    /// Sorted by digest, as members are in the pack.
    pub references: Vec<Reference>,
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(cursor: &mut Cursor<'_>) -> Option<u64> {
    let mut found = 0;
    for shift in (0..64).step_by(7) {
        let byte = cursor.u8()?;
        found |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(found);
        }
    }
    None
}

/// Bytes that a number takes.
fn width_of(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(8)
}

fn in_common(one: &Digest, other: &Digest) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// What a table says before its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    raw: [u8; HEAD],
    pack: Pack,
    count: usize,
    lowest: u64,
    width: usize,
}

/// A block of a table, by its part of the index: where it is, and what its bytes have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    raw: [u8; ENTRY],
    number: usize,
    first: Digest,
    begin: usize,
    length: usize,
    offset: u64,
}

impl Head {
    /// A head from the first bytes of a table.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw: &[u8; HEAD] = bytes.first_chunk()?;
        let mut cursor = Cursor(raw);
        let [VERSION] = cursor.bytes()? else { return None };
        let digest = cursor.bytes()?;
        let version = Version { timestamp: cursor.u64()?, generation: cursor.u64()? };
        let (count, lowest, [_, width]) = (cursor.u32()? as usize, cursor.u64()?, cursor.bytes()?);
        let fits = (1..=MAX_MEMBERS).contains(&count) && usize::from(width) <= 8;
        fits.then_some(Self { raw: *raw, pack: Pack { version, digest }, count, lowest, width: width.into() })
    }

    /// The pack.
    #[must_use]
    pub fn pack(&self) -> Pack {
        self.pack
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.count.div_ceil(BLOCK)
    }

    /// Where a block's entry is in the table; nothing if there is no such block.
    #[must_use]
    pub fn entry_at(&self, number: usize) -> Option<Range<usize>> {
        let start = HEAD + number.checked_mul(ENTRY)?;
        (number < self.blocks()).then_some(start..start + ENTRY)
    }

    /// A block's entry from its bytes; only the block proves it.
    #[must_use]
    pub fn entry(&self, number: usize, raw: &[u8]) -> Option<Entry> {
        let raw: &[u8; ENTRY] = raw.try_into().ok()?;
        let mut cursor = Cursor(raw);
        let (first, begin, [high, low], offset) = (cursor.bytes()?, cursor.u32()?, cursor.bytes()?, cursor.u64()?);
        let (begin, length) = (begin as usize, usize::from(u16::from_be_bytes([high, low])));
        (number < self.blocks()).then_some(Entry { raw: *raw, number, first, begin, length, offset })
    }

    /// Where a block's references are in the table.
    #[must_use]
    pub fn block_at(&self, entry: &Entry) -> Range<usize> {
        let start = HEAD + self.blocks() * ENTRY + entry.begin;
        start..start + entry.length
    }

    fn check(&self, entry: &Entry, bytes: &[u8]) -> [u8; 8] {
        let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
        for part in [&self.raw[..], &(entry.number as u32).to_be_bytes(), &entry.raw[..CHECK], bytes] {
            hasher.update(part);
        }
        hasher.xxh3_64().unwrap_or_default().to_be_bytes()
    }

    /// The references of a block; nothing if any of head, entry and bytes is damaged.
    #[must_use]
    pub fn block(&self, entry: &Entry, bytes: &[u8]) -> Option<Vec<Reference>> {
        if bytes.len() != entry.length || entry.raw[CHECK..] != self.check(entry, bytes) {
            return None;
        }
        let (mut before, mut end, mut cursor) = (entry.first, entry.offset, Cursor(bytes));
        let count = BLOCK.min(self.count - entry.number * BLOCK);
        let mut references = Vec::with_capacity(count);
        for _ in 0..count {
            let common = usize::from(cursor.u8()?);
            for byte in before.get_mut(common..)? {
                *byte = cursor.u8()?;
            }
            let mut above = 0;
            for _ in 0..self.width {
                above = above << 8 | u64::from(cursor.u8()?);
            }
            let offset = end.checked_add(number(&mut cursor)?)?;
            let length = u32::try_from(number(&mut cursor)?).ok()?;
            references.push(Reference { digest: before, timestamp: self.lowest.checked_add(above)?, offset, length });
            end = offset.checked_add(length.into())?;
        }
        cursor.0.is_empty().then_some(references)
    }

    /// The references of a block of a whole table's bytes.
    fn block_of(&self, table: &[u8], number: usize) -> Option<Vec<Reference>> {
        let entry = self.entry(number, table.get(self.entry_at(number)?)?)?;
        self.block(&entry, table.get(self.block_at(&entry))?)
    }
}

/// The blocks of a table of which anything may be damaged: the references of each that is sound. None if not even the
/// number of them is known.
#[must_use]
pub fn sound_blocks(bytes: &[u8]) -> Option<(Pack, Vec<Option<Vec<Reference>>>)> {
    let head = Head::parse(bytes)?;
    let blocks: Vec<_> = (0..head.blocks()).map(|number| head.block_of(bytes, number)).collect();
    // A head that no block proves says nothing.
    blocks.iter().any(Option::is_some).then_some((head.pack, blocks))
}

impl Table {
    fn is_sound(&self) -> bool {
        let pairs = self.references.windows(2);
        let mut pairs = pairs.map(|pair| (pair[0], pair[1]));
        let follows = |(one, next): (Reference, Reference)| {
            one.digest < next.digest && one.end().is_some_and(|end| end <= next.offset)
        };
        let fits = |reference: &Reference| reference.length <= MAX_MEMBER_BYTES && reference.end().is_some();
        let count = self.references.len();
        (1..=MAX_MEMBERS).contains(&count) && self.references.iter().all(fits) && pairs.all(follows)
    }

    /// The table's bytes; nothing if it has no references or too many, or they are not those of a pack: sorted, one
    /// behind the other, and each not too long.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        if !self.is_sound() {
            return None;
        }
        let count = self.references.len();
        let lowest = self.references.iter().map(|reference| reference.timestamp).min()?;
        let highest = self.references.iter().map(|reference| reference.timestamp).max()?;
        let width = width_of(highest - lowest);
        let mut out = vec![VERSION];
        out.extend(self.pack.digest);
        out.extend(self.pack.version.timestamp.to_be_bytes());
        out.extend(self.pack.version.generation.to_be_bytes());
        out.extend((count as u32).to_be_bytes());
        out.extend(lowest.to_be_bytes());
        out.extend([0, width as u8]);
        debug_assert_eq!(out.len(), HEAD);
        let head = Head::parse(&out)?;
        let mut blocks = Vec::new();
        for (number, block) in self.references.chunks(BLOCK).enumerate() {
            let start = blocks.len();
            let (mut before, mut end) = (block[0].digest, block[0].offset);
            for reference in block {
                let common = in_common(&before, &reference.digest);
                blocks.push(common as u8);
                blocks.extend(&reference.digest[common..]);
                blocks.extend(&(reference.timestamp - lowest).to_be_bytes()[8 - width..]);
                put_number(&mut blocks, reference.offset - end);
                put_number(&mut blocks, reference.length.into());
                (before, end) = (reference.digest, reference.offset + u64::from(reference.length));
            }
            let mut entry = block[0].digest.to_vec();
            entry.extend((start as u32).to_be_bytes());
            entry.extend(((blocks.len() - start) as u16).to_be_bytes());
            entry.extend(block[0].offset.to_be_bytes());
            entry.extend([0; ENTRY - CHECK]);
            let check = head.check(&head.entry(number, &entry)?, &blocks[start..]);
            entry[CHECK..].copy_from_slice(&check);
            out.extend(entry);
        }
        out.extend(blocks);
        Some(out)
    }

    /// A table from its bytes, all of them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = Head::parse(bytes)?;
        let mut references = Vec::new();
        for number in 0..head.blocks() {
            references.extend(head.block_of(bytes, number)?);
        }
        let table = Self { pack: head.pack, references };
        (table.encode()?.as_slice() == bytes).then_some(table)
    }
}
