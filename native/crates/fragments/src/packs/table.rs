//! The bytes of the references that a place has to one pack.
//!
//! They are sorted by digest, in blocks of [`BLOCK`]: one is found by reading an index of the blocks and one block.
//! A digest is written without what it has in common with the one before, a timestamp by how much it is above the
//! lowest one, in as many bytes as the highest one takes. Numbers are big-endian, lengths variable.
//!
//! Fault model: any bytes. What is accepted is written in one way only.

use super::{Digest, Pack};
use crate::cursor::Cursor;
use crate::version::Version;

/// Most members of a pack.
pub const MAX_MEMBERS: usize = 1 << 16;
/// References of a block.
pub const BLOCK: usize = 64;
/// Bytes before the index.
const HEAD: usize = 47;
/// Bytes of the index for each block: its first digest, where it begins, where its first member begins in the pack.
const INDEX: usize = 28;
const VERSION: u8 = 1;
const DIGEST: usize = size_of::<Digest>();

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

/// What is known before the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    pack: Pack,
    count: usize,
    lowest: u64,
    width: usize,
}

impl Head {
    fn parse(cursor: &mut Cursor<'_>) -> Option<Self> {
        let [VERSION] = cursor.bytes()? else { return None };
        let digest = cursor.bytes()?;
        let version = Version { timestamp: cursor.u64()?, generation: cursor.u64()? };
        let (count, lowest, [_, width]) = (cursor.u32()? as usize, cursor.u64()?, cursor.bytes()?);
        let fits = (1..=MAX_MEMBERS).contains(&count) && usize::from(width) <= 8;
        fits.then_some(Self { pack: Pack { version, digest }, count, lowest, width: width.into() })
    }

    fn blocks(&self) -> usize {
        self.count.div_ceil(BLOCK)
    }
}

impl Table {
    /// The table's bytes; nothing if it has no references or too many, or they are not those of a pack: sorted, one
    /// behind the other.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let count = self.references.len();
        let is_sorted = self
            .references
            .windows(2)
            .all(|pair| pair[0].digest < pair[1].digest && pair[0].end().is_some_and(|end| end <= pair[1].offset));
        if !(1..=MAX_MEMBERS).contains(&count) || !is_sorted || self.references.last()?.end().is_none() {
            return None;
        }
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
        let mut blocks = Vec::new();
        for block in self.references.chunks(BLOCK) {
            out.extend(block[0].digest);
            out.extend((blocks.len() as u32).to_be_bytes());
            out.extend(block[0].offset.to_be_bytes());
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
        }
        out.extend(blocks);
        Some(out)
    }

    /// A table from its bytes, all of them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = Head::parse(&mut Cursor(bytes))?;
        let mut references = Vec::new();
        for number in 0..head.blocks() {
            references.extend(block(bytes, &head, number)?);
        }
        let table = Self { pack: head.pack, references };
        (table.encode()?.as_slice() == bytes).then_some(table)
    }
}

/// The reference to an object in a table's bytes, which [`Table::parse`] has accepted before.
#[must_use]
pub fn find(bytes: &[u8], digest: &Digest) -> Option<Reference> {
    let head = Head::parse(&mut Cursor(bytes))?;
    let (mut low, mut high) = (0, head.blocks());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if bytes.get(HEAD + middle * INDEX..)?.get(..DIGEST)? <= &digest[..] { low = middle } else { high = middle }
    }
    block(bytes, &head, low)?.into_iter().find(|reference| reference.digest == *digest)
}

fn block(bytes: &[u8], head: &Head, number_of: usize) -> Option<Vec<Reference>> {
    let mut index = Cursor(bytes.get(HEAD + number_of * INDEX..)?);
    let (mut before, begin, mut end): (Digest, _, _) = (index.bytes()?, index.u32()? as usize, index.u64()?);
    let start = (HEAD + head.blocks() * INDEX).checked_add(begin)?;
    let mut cursor = Cursor(bytes.get(start..)?);
    let count = BLOCK.min(head.count - number_of * BLOCK);
    let mut references = Vec::with_capacity(count);
    for _ in 0..count {
        let common = usize::from(cursor.u8()?);
        for byte in before.get_mut(common..)? {
            *byte = cursor.u8()?;
        }
        let mut above = 0;
        for _ in 0..head.width {
            above = above << 8 | u64::from(cursor.u8()?);
        }
        let offset = end.checked_add(number(&mut cursor)?)?;
        let length = u32::try_from(number(&mut cursor)?).ok()?;
        references.push(Reference { digest: before, timestamp: head.lowest.checked_add(above)?, offset, length });
        end = offset.checked_add(length.into())?;
    }
    Some(references)
}
