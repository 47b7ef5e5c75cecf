//! The differences of two answers about many partitions, for all partitions at once: the next question's suffixes, and
//! the objects that have to move, as bytes.
//!
//! The rules are the same as those of `swiftlet.sync.session.many_partitions`, which works by value.

use super::{Entry, Many, Need, differing, in_order, listings, newer, suffix_hashes};
use crate::answers::{ascending, put_ascending};
use crate::cursor::{Cursor, put_varint};
use crate::model::{EntryKind, SUFFIXES, Suffix};

/// Suffixes that differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differing {
    /// Partitions in which no suffix differs.
    pub same: Vec<u32>,
    /// The others.
    pub partitions: Vec<u32>,
    /// How many suffixes differ in each.
    pub counts: Vec<u32>,
    /// Where each partition's suffixes end in `suffixes`.
    pub ends: Vec<usize>,
    /// For each partition the count and the suffixes, as in a question about entries.
    pub suffixes: Vec<u8>,
}

/// Which objects are left where they are.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Newer ones, in seconds, may still be on their way from their writer,
    pub since_s: f64,
    /// if they are older than this.
    pub until_s: f64,
    /// Older tombstones may have been forgotten.
    pub forgotten_s: f64,
}

/// Bytes of one object that has to move.
pub const PUSH_BYTES: usize = 46;
/// Flag in a need: they have nothing of the object.
const FRESH: u8 = 0x80;
const TICKS_PER_SECOND: f64 = 100_000.0;
const NONCE_BITS: u32 = 14;

fn pairs<'a, 'b>(mine: &'b Many<'a>, theirs: &'b Many<'a>) -> Option<Vec<(&'b super::Part<'a>, &'b super::Part<'a>)>> {
    let both: Vec<_> = mine.found.iter().zip(&theirs.found).collect();
    both.iter().all(|(here, there)| here.partition == there.partition).then_some(both)
}

/// Which suffixes differ in the partitions of both answers; None when one is malformed, or they are about other
/// partitions.
#[must_use]
pub fn suffixes(mine: &[u8], theirs: &[u8], both: bool) -> Option<Differing> {
    let (mine, theirs) = (suffix_hashes(mine)?, suffix_hashes(theirs)?);
    let mut found = Differing::default();
    for (here, there) in pairs(&mine, &theirs)? {
        if here.bytes == there.bytes {
            found.same.push(here.partition);
            continue;
        }
        let suffixes = differing(here.bytes, there.bytes, both);
        put_ascending(&mut found.suffixes, suffixes.iter().copied().map(i64::from))?;
        found.partitions.push(here.partition);
        found.counts.push(suffixes.len() as u32);
        found.ends.push(found.suffixes.len());
    }
    Some(found)
}

/// Whether an answer is about the first of these partitions, with its entries in order and only of the suffixes asked
/// for, which are encoded as by `suffixes`.
#[must_use]
pub fn fits(answer: &[u8], partitions: &[u32], asked: &[u8]) -> bool {
    let Some(many) = listings(answer) else { return false };
    let mut asked = Cursor { data: asked };
    let mut fits = |part: &super::Part<'_>, partition: &u32| {
        let wanted = ascending(&mut asked, u64::from(SUFFIXES), u64::from(SUFFIXES) - 1)?;
        let wanted: Vec<Suffix> = wanted.into_iter().map(|suffix| suffix as Suffix).collect();
        Some(part.partition == *partition && in_order(part.bytes, &wanted))
    };
    many.found.len() <= partitions.len()
        && many.found.iter().zip(partitions).all(|(part, partition)| fits(part, partition).unwrap_or(false))
}

/// What they lack now of mine, in the partitions of both answers; None when one is malformed or out of order, or they
/// are about other partitions.
///
/// Each object: partition 4, need 1 (0x80: they have nothing of it), then its entry: kind 1, digest 16, three
/// timestamps.
#[must_use]
pub fn lacked(mine: &[u8], theirs: &[u8], moment: Moment) -> Option<Vec<u8>> {
    let (mine, theirs) = (listings(mine)?, listings(theirs)?);
    let mut found = Vec::new();
    for (here, there) in pairs(&mine, &theirs)? {
        for (entry, need, fresh) in newer(here.bytes, there.bytes)? {
            if is_due(&entry, fresh, moment) {
                put_push(&mut found, here.partition, &entry, need, fresh);
            }
        }
    }
    Some(found)
}

fn seconds(timestamp: u64) -> f64 {
    (timestamp >> NONCE_BITS) as f64 / TICKS_PER_SECOND
}

fn is_due(entry: &Entry, fresh: bool, moment: Moment) -> bool {
    let forgotten = fresh && entry.kind == EntryKind::Tombstone && seconds(entry.timestamp) < moment.forgotten_s;
    let newest = seconds(entry.timestamp.max(entry.meta_timestamp).max(entry.content_type_timestamp));
    let waits = moment.since_s < newest && newest < moment.until_s;
    !forgotten && !waits
}

fn put_push(out: &mut Vec<u8>, partition: u32, entry: &Entry, need: Need, fresh: bool) {
    out.extend_from_slice(&partition.to_be_bytes());
    out.push(need as u8 | if fresh { FRESH } else { 0 });
    out.push(entry.kind as u8);
    out.extend_from_slice(&entry.digest);
    for timestamp in [entry.timestamp, entry.meta_timestamp, entry.content_type_timestamp] {
        out.extend_from_slice(&timestamp.to_be_bytes());
    }
}

fn parts(push: &[u8]) -> (u64, u8, &[u8]) {
    (u64::from(u32::from_be_bytes([push[0], push[1], push[2], push[3]])), push[4] & !FRESH, &push[6..])
}

/// The question for copies of the objects in `lacked` that are not tombstones.
#[must_use]
pub fn wanted(policy: u16, pushes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, u64::from(policy));
    for push in pushes.chunks_exact(PUSH_BYTES) {
        let (partition, need, entry) = parts(push);
        if need != Need::Tombstone as u8 {
            out.push(need);
            put_varint(&mut out, partition);
            out.extend_from_slice(&entry[..16]);
        }
    }
    out
}

/// Copies of the tombstones in `lacked`, one after the other.
#[must_use]
pub fn tombstones(pushes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for push in pushes.chunks_exact(PUSH_BYTES) {
        let (partition, need, entry) = parts(push);
        if need == Need::Tombstone as u8 {
            out.push(need);
            put_varint(&mut out, partition);
            out.extend_from_slice(&entry[..24]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{MANY_ENTRIES, SUFFIX_HASHES, VERSION, put_entry};

    fn hashed(parts: &[(u8, &[(Suffix, u8)])]) -> Vec<u8> {
        let mut out = vec![VERSION, SUFFIX_HASHES, 0, 1, parts.len() as u8];
        for (partition, hashes) in parts {
            out.extend_from_slice(&[*partition, 1, hashes.len() as u8]);
            for (suffix, value) in *hashes {
                out.extend_from_slice(&suffix.to_be_bytes());
                out.extend_from_slice(&[*value; 16]);
            }
        }
        out
    }

    fn entry(number: u8, kind: EntryKind, second: u64) -> Entry {
        let mut digest = [number; 16];
        digest[14] = 0;
        let timestamp = (second * 100_000) << NONCE_BITS;
        Entry { digest, kind, timestamp, meta_timestamp: 0, content_type_timestamp: 0 }
    }

    fn listed(parts: &[(u8, &[Entry])]) -> Vec<u8> {
        let mut out = vec![VERSION, MANY_ENTRIES, 0, 1, parts.len() as u8];
        for (partition, entries) in parts {
            out.extend_from_slice(&[*partition, 1, entries.len() as u8]);
            entries.iter().for_each(|entry| put_entry(&mut out, entry));
        }
        out
    }

    #[test]
    fn suffixes_of_many_partitions_are_the_next_question() {
        let mine = hashed(&[(3, &[(1, 1), (300, 1)]), (5, &[(7, 7)]), (9, &[])]);
        let theirs = hashed(&[(3, &[(1, 1), (4, 1)]), (5, &[(7, 7)])]);
        let found = suffixes(&mine, &theirs, true).expect("whole answers");
        assert_eq!((&found.same[..], &found.partitions[..], &found.counts[..]), (&[5][..], &[3][..], &[2][..]));
        assert_eq!(found.suffixes, [2, 4, 0xa7, 2]);
        assert_eq!(found.ends, [4]);
        assert_eq!(suffixes(&mine, &theirs, false).expect("whole answers").counts, [1]);
        assert_eq!(suffixes(&mine, &hashed(&[(4, &[])]), true), None);
        assert_eq!(suffixes(&mine, b"garbage", true), None);
    }

    #[test]
    fn entries_that_were_not_asked_for_fit_nowhere() {
        let answer = listed(&[(3, &[entry(2, EntryKind::Data, 5)])]);
        assert!(fits(&answer, &[3, 4], &[1, 2, 1, 7]));
        assert!(!fits(&answer, &[4], &[1, 2]));
        assert!(!fits(&answer, &[], &[]));
        assert!(!fits(&answer, &[3], &[1, 1]));
        assert!(!fits(&answer, &[3], &[]));
    }

    #[test]
    fn what_is_lacked_and_due_becomes_questions_and_tombstones() {
        use EntryKind::{Data, Tombstone};
        let mine = listed(&[
            (3, &[entry(1, Data, 50), entry(2, Tombstone, 50), entry(4, Data, 95)]),
            (4, &[entry(5, Tombstone, 10), entry(6, Tombstone, 50)]),
        ]);
        let theirs = listed(&[(3, &[entry(2, Data, 40)]), (4, &[])]);
        let moment = Moment { since_s: 90.0, until_s: 160.0, forgotten_s: 20.0 };
        let found = lacked(&mine, &theirs, moment).expect("whole answers");
        let numbers: Vec<_> = found.chunks_exact(PUSH_BYTES).map(|push| (push[3], push[4], push[6])).collect();
        assert_eq!(numbers, [(3, 0x81, 1), (3, 2, 2), (4, 0x82, 6)]);
        assert_eq!(wanted(0, &found)[..4], [0, 1, 3, 1]);
        assert_eq!(wanted(0, &found).len(), 1 + 18);
        assert_eq!(tombstones(&found).len(), 2 * 26);
        assert_eq!(lacked(&mine, &mine, moment), Some(Vec::new()));
        assert_eq!(lacked(&theirs, &listed(&[(4, &[])]), moment), None);
    }
}
