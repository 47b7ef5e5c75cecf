//! The differences of two devices' answers to the same questions, from their bytes, without a value for each suffix
//! and object that both have.
//!
//! `docs/sync.md` has the format; `swiftlet.sync.session.compare` has the same rules for values. The session decides:
//! this module only says what is newer on which side.
//!
//! Fault model: a peer's answer may be anything. An answer that is not in order up to its last byte is None, and the
//! other implementation says what is wrong with it; every count has its limit.

pub mod batches;

use crate::answers::{MANY_ENTRIES, MAX_ENTRIES, MAX_PARTITIONS, MAX_SUFFIX_HASHES, POSTED, SUFFIX_HASHES, VERSION};
use crate::cursor::Cursor;
use crate::model::{Entry, EntryKind, SUFFIXES, Suffix, Timestamp};

/// The highest timestamp: the last moment of a day in the year 2286.
const MAX_TIMESTAMP: Timestamp = ((10_000_000_000 * 100_000) << 14) - 1;
const HASHED: usize = 18;
const POST_BYTES: usize = 16;
const ENTRY_BYTES: usize = 25;

/// A parsed answer about many partitions.
#[derive(Debug, PartialEq, Eq)]
pub struct Many<'a> {
    /// The storage policy.
    pub policy: u32,
    /// The ring version of the answering server.
    pub ring_version: u32,
    /// The part about each partition.
    pub found: Vec<Part<'a>>,
}

/// The part of an answer about one partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its number.
    pub partition: u32,
    /// Whether the answering device is a primary.
    pub primary: bool,
    /// How many suffix hashes or entries there are.
    pub count: usize,
    /// The encoded suffix hashes or entries.
    pub bytes: &'a [u8],
}

/// What a replica lacks of an object that another one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of it.
    Data = 1,
    /// The tombstone.
    Tombstone = 2,
    /// The newest POST.
    Meta = 3,
}

/// Parse an answer with suffix hashes, which must be in order; None for anything else.
#[must_use]
pub fn suffix_hashes(answer: &[u8]) -> Option<Many<'_>> {
    let mut left = MAX_SUFFIX_HASHES;
    many(answer, SUFFIX_HASHES, |cursor, count| {
        left = left.checked_sub(count)?;
        let bytes = cursor.take((count * HASHED) as u64).ok()?;
        let mut next = 0;
        for hashed in bytes.chunks_exact(HASHED) {
            let suffix = suffix_at(hashed);
            if suffix < next || suffix >= SUFFIXES {
                return None;
            }
            next = suffix + 1;
        }
        Some(bytes)
    })
}

/// Parse an answer with entries, in any order; None for anything else.
#[must_use]
pub fn listings(answer: &[u8]) -> Option<Many<'_>> {
    let mut left = MAX_ENTRIES;
    many(answer, MANY_ENTRIES, |cursor, count| {
        left = left.checked_sub(count)?;
        let before = cursor.data;
        for _ in 0..count {
            entry(cursor)?;
        }
        Some(&before[..before.len() - cursor.data.len()])
    })
}

fn many<'a>(
    answer: &'a [u8],
    kind: u8,
    mut take: impl FnMut(&mut Cursor<'a>, usize) -> Option<&'a [u8]>,
) -> Option<Many<'a>> {
    let mut cursor = Cursor { data: answer };
    if cursor.take(2).ok()? != [VERSION, kind] {
        return None;
    }
    let policy = number(&mut cursor)?;
    let ring_version = number(&mut cursor)?;
    let partitions = cursor.varint().ok().filter(|count| *count <= MAX_PARTITIONS)?;
    let mut found = Vec::with_capacity(partitions as usize);
    for _ in 0..partitions {
        let partition = number(&mut cursor)?;
        let primary = match cursor.byte().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let count = number(&mut cursor)? as usize;
        let bytes = take(&mut cursor, count)?;
        found.push(Part { partition, primary, count, bytes });
    }
    cursor.data.is_empty().then_some(Many { policy, ring_version, found })
}

fn number(cursor: &mut Cursor<'_>) -> Option<u32> {
    u32::try_from(cursor.varint().ok()?).ok()
}

fn suffix_at(hashed: &[u8]) -> Suffix {
    u16::from_be_bytes([hashed[0], hashed[1]])
}

fn entry(cursor: &mut Cursor<'_>) -> Option<Entry> {
    let raw = cursor.take(ENTRY_BYTES as u64).ok()?;
    let (digest, rest) = raw.split_at(16);
    let (meta, content_type) = if rest[0] & POSTED == 0 {
        (0, 0)
    } else {
        let (meta, content_type) = cursor.take(POST_BYTES as u64).ok()?.split_at(8);
        (u64::from_be_bytes(meta.try_into().ok()?), u64::from_be_bytes(content_type.try_into().ok()?))
    };
    let kind = match rest[0] & !POSTED {
        1 => EntryKind::Data,
        2 => EntryKind::Tombstone,
        _ => return None,
    };
    let found = Entry {
        digest: digest.try_into().ok()?,
        kind,
        timestamp: u64::from_be_bytes(rest[1..].try_into().ok()?),
        meta_timestamp: meta,
        content_type_timestamp: content_type,
    };
    (found.timestamp.max(meta).max(content_type) <= MAX_TIMESTAMP).then_some(found)
}

/// Suffixes, ascending, that I hold with another hash than they; with `both` also those that only they hold.
///
/// Both arguments are from `suffix_hashes`.
#[must_use]
pub fn differing(mine: &[u8], theirs: &[u8], both: bool) -> Vec<Suffix> {
    let mut found = Vec::new();
    let mut there = theirs.chunks_exact(HASHED).peekable();
    for here in mine.chunks_exact(HASHED) {
        let suffix = suffix_at(here);
        while let Some(other) = there.next_if(|other| suffix_at(other) < suffix) {
            if both {
                found.push(suffix_at(other));
            }
        }
        if there.next_if(|other| suffix_at(other) == suffix) != Some(here) {
            found.push(suffix);
        }
    }
    if both {
        found.extend(there.map(suffix_at));
    }
    found
}

fn order_of(digest: &[u8; 16]) -> u128 {
    u128::from_be_bytes(*digest).rotate_right(12)
}

/// The entries in bytes from `listings`, one after the other.
pub fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry> {
    std::iter::from_fn(move || {
        let mut cursor = Cursor { data: bytes };
        let found = entry(&mut cursor)?;
        bytes = cursor.data;
        Some(found)
    })
}

/// Whether entries are ordered by (suffix, digest), and all in these suffixes (ascending).
#[must_use]
pub fn in_order(bytes: &[u8], suffixes: &[Suffix]) -> bool {
    let mut asked = suffixes.iter().copied().peekable();
    let mut last = None;
    entries(bytes).all(|entry| {
        let order = order_of(&entry.digest);
        let suffix = (order >> 116) as Suffix;
        while asked.next_if(|wanted| *wanted < suffix).is_some() {}
        let after = last.replace(order).is_none_or(|before| before < order);
        after && asked.peek() == Some(&suffix)
    })
}

/// What they lack of mine, in order, and whether they have nothing of the object at all; None when either is not
/// ordered by (suffix, digest).
#[must_use]
pub fn newer(mine: &[u8], theirs: &[u8]) -> Option<Vec<(Entry, Need, bool)>> {
    let mut found = Vec::new();
    let mut there = entries(theirs).peekable();
    let (mut last_here, mut last_there) = (None, None);
    for here in entries(mine) {
        let order = order_of(&here.digest);
        if last_here.replace(order).is_some_and(|before| before >= order) {
            return None;
        }
        let mut other = None;
        while let Some(next) = there.next_if(|next| order_of(&next.digest) <= order) {
            let place = order_of(&next.digest);
            if last_there.replace(place).is_some_and(|before| before >= place) {
                return None;
            }
            other = (place == order).then_some(next);
        }
        if let Some(need) = need_of(&here, other.as_ref()) {
            found.push((here, need, other.is_none()));
        }
    }
    for next in there {
        let place = order_of(&next.digest);
        if last_there.replace(place).is_some_and(|before| before >= place) {
            return None;
        }
    }
    Some(found)
}

/// What a replica that holds `theirs` lacks of `mine`.
fn need_of(mine: &Entry, theirs: Option<&Entry>) -> Option<Need> {
    // A deletion counts where data have the same timestamp: who moves a version to another policy deletes it with its own.
    let rank = |entry: &Entry| (entry.timestamp, entry.kind == EntryKind::Tombstone);
    let Some(theirs) = theirs.filter(|theirs| rank(theirs) >= rank(mine)) else {
        return Some(if mine.kind == EntryKind::Tombstone { Need::Tombstone } else { Need::Data });
    };
    if mine.kind == EntryKind::Tombstone || theirs.kind == EntryKind::Tombstone {
        return None;
    }
    // A POST counts on top of newer data too, if it is newer than those.
    let newer_meta = mine.meta_timestamp > theirs.meta_timestamp.max(theirs.timestamp);
    let newer_type = mine.content_type_timestamp > theirs.content_type_timestamp.max(theirs.timestamp);
    (newer_meta || newer_type).then_some(Need::Meta)
}

#[cfg(test)]
mod tests;
