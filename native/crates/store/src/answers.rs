//! Questions of sync sessions, answered from the index: bytes in, bytes out.
//!
//! `docs/sync.md` has the format; `swiftlet.sync.session` is its other implementation, which reports why something is
//! not a valid question. A replicator's round asks about thousands of partitions at a time, so no values are made for
//! each, only its bytes.
//!
//! Fault model: bytes from peers may be anything: a question that can't be parsed completely is not answered here,
//! nothing is changed, and every count has its limit. What exceeds an answer's limits is left for the next question.

use crate::cursor::{Cursor, put_varint};
use crate::error::Result;
use crate::model::{Entry, SUFFIXES, Suffix};
use crate::sethash;
use crate::store::Store;

pub(crate) const VERSION: u8 = 1;
const COMPARE: u8 = 1;
const ASK_SUFFIXES: u8 = 2;
const ASK_MANY_ENTRIES: u8 = 4;
const EQUAL: u8 = 17;
const ROOTS: u8 = 18;
pub(crate) const SUFFIX_HASHES: u8 = 19;
pub(crate) const MANY_ENTRIES: u8 = 21;
/// Flag in an entry's kind: the two timestamps of a POST follow.
pub(crate) const POSTED: u8 = 0x80;

/// The largest number of partitions in one message.
pub(crate) const MAX_PARTITIONS: u64 = 4096;
/// The largest number of suffix hashes in one answer, which has at least one whole partition.
pub(crate) const MAX_SUFFIX_HASHES: usize = 8192;
/// The largest number of entries in one answer.
pub(crate) const MAX_ENTRIES: usize = 4096;
/// The largest number of suffixes in one question about the entries of many partitions.
const MAX_WANTED: u64 = 8192;

/// An answer that lacks one thing: whether the device is a primary, for each partition in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The bytes, with 0 in place of these flags.
    pub message: Vec<u8>,
    /// Partitions, and the offset of the flag of each.
    pub flags: Vec<(u32, usize)>,
}

enum Question {
    Compare { partitions: Vec<u32>, hash: u128, leaves: bool },
    Suffixes(Vec<u32>),
    Entries(Vec<(u32, Vec<Suffix>)>),
}

/// The answer of a server whose ring has this version; None for a question that is not answered here.
pub fn answer(store: &Store, message: &[u8], ring_version: u32) -> Result<Option<Answer>> {
    let Some((policy, question)) = parse(message) else { return Ok(None) };
    let mut answer = Answer { message: vec![VERSION, EQUAL], flags: Vec::new() };
    put_varint(&mut answer.message, u64::from(policy));
    put_varint(&mut answer.message, u64::from(ring_version));
    match question {
        Question::Compare { partitions, hash, leaves } => {
            let roots = roots(store, policy, &partitions)?;
            if sethash::over(&roots) == hash {
                return Ok(Some(answer));
            }
            if leaves {
                suffixes(store, policy, &partitions, &mut answer)?;
            } else {
                answer.message[1] = ROOTS;
                put_varint(&mut answer.message, roots.len() as u64);
                roots.iter().for_each(|root| answer.message.extend_from_slice(&root.to_be_bytes()));
            }
        }
        Question::Suffixes(partitions) => suffixes(store, policy, &partitions, &mut answer)?,
        Question::Entries(wanted) => entries(store, policy, &wanted, &mut answer)?,
    }
    Ok(Some(answer))
}

fn roots(store: &Store, policy: u16, partitions: &[u32]) -> Result<Vec<u128>> {
    let empty = sethash::root(&[]);
    partitions.iter().map(|partition| Ok(store.root((policy, *partition))?.unwrap_or(empty))).collect()
}

/// Suffix hashes of as many partitions as fit into one answer, at least one.
fn suffixes(store: &Store, policy: u16, partitions: &[u32], answer: &mut Answer) -> Result<()> {
    let mut left = MAX_SUFFIX_HASHES;
    let mut found = Vec::new();
    for partition in partitions {
        let hashes = store.suffixes((policy, *partition))?;
        if hashes.len() > left {
            break;
        }
        left -= hashes.len();
        found.push((*partition, hashes));
    }
    answer.begin(SUFFIX_HASHES, found.len());
    for (partition, hashes) in &found {
        answer.partition(*partition, hashes.len());
        for (suffix, sum) in hashes {
            answer.message.extend_from_slice(&suffix.to_be_bytes());
            answer.message.extend_from_slice(&sum.to_be_bytes());
        }
    }
    Ok(())
}

/// Entries of as many partitions as fit completely, perhaps of none.
fn entries(store: &Store, policy: u16, wanted: &[(u32, Vec<Suffix>)], answer: &mut Answer) -> Result<()> {
    let mut left = MAX_ENTRIES;
    let mut found = Vec::new();
    for (partition, suffixes) in wanted {
        let Some(listed) = store.entries_of((policy, *partition), suffixes, left)? else { break };
        left -= listed.len();
        found.push((*partition, listed));
    }
    answer.begin(MANY_ENTRIES, found.len());
    for (partition, listed) in &found {
        answer.partition(*partition, listed.len());
        listed.iter().for_each(|entry| put_entry(&mut answer.message, entry));
    }
    Ok(())
}

impl Answer {
    fn begin(&mut self, kind: u8, partitions: usize) {
        self.message[1] = kind;
        put_varint(&mut self.message, partitions as u64);
    }

    fn partition(&mut self, partition: u32, count: usize) {
        put_varint(&mut self.message, u64::from(partition));
        self.flags.push((partition, self.message.len()));
        self.message.push(0);
        put_varint(&mut self.message, count as u64);
    }
}

pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    let posted = entry.meta_timestamp != 0 || entry.content_type_timestamp != 0;
    out.extend_from_slice(&entry.digest);
    out.push(entry.kind as u8 | if posted { POSTED } else { 0 });
    out.extend_from_slice(&entry.timestamp.to_be_bytes());
    if posted {
        out.extend_from_slice(&entry.meta_timestamp.to_be_bytes());
        out.extend_from_slice(&entry.content_type_timestamp.to_be_bytes());
    }
}

fn parse(message: &[u8]) -> Option<(u16, Question)> {
    let mut cursor = Cursor { data: message };
    if cursor.byte().ok()? != VERSION {
        return None;
    }
    let kind = cursor.byte().ok()?;
    let policy = cursor.policy().ok()?;
    u32::try_from(cursor.varint().ok()?).ok()?;
    let question = match kind {
        COMPARE => {
            let flags = cursor.byte().ok()?;
            let hash = u128::from_be_bytes(cursor.take(16).ok()?.try_into().ok()?);
            let partitions = partitions(&mut cursor)?;
            (flags <= 1).then_some(Question::Compare { partitions, hash, leaves: flags == 1 })?
        }
        ASK_SUFFIXES => Question::Suffixes(partitions(&mut cursor)?),
        ASK_MANY_ENTRIES => {
            let mut left = MAX_WANTED;
            let mut wanted = Vec::new();
            for partition in partitions(&mut cursor)? {
                let suffixes = ascending(&mut cursor, left.min(u64::from(SUFFIXES)), u64::from(SUFFIXES) - 1)?;
                left -= suffixes.len() as u64;
                wanted.push((partition, suffixes.into_iter().map(|suffix| suffix as Suffix).collect()));
            }
            Question::Entries(wanted)
        }
        _ => return None,
    };
    cursor.data.is_empty().then_some((policy, question))
}

fn partitions(cursor: &mut Cursor<'_>) -> Option<Vec<u32>> {
    ascending(cursor, MAX_PARTITIONS, u64::from(u32::MAX))
}

/// Decodes a count, then each number as its distance from the one before less one.
pub(crate) fn ascending(cursor: &mut Cursor<'_>, limit: u64, highest: u64) -> Option<Vec<u32>> {
    let count = cursor.varint().ok().filter(|count| *count <= limit)?;
    let mut numbers = Vec::with_capacity(count as usize);
    let mut next = 0_u64;
    for _ in 0..count {
        let number = next.checked_add(cursor.varint().ok()?).filter(|number| *number <= highest)?;
        numbers.push(number as u32);
        next = number + 1;
    }
    Some(numbers)
}

/// The inverse of `ascending`; None for numbers that do not ascend, or are negative.
#[must_use]
pub fn ascending_bytes(numbers: impl IntoIterator<Item = i64, IntoIter: ExactSizeIterator>) -> Option<Vec<u8>> {
    let numbers = numbers.into_iter();
    let mut out = Vec::with_capacity(numbers.len() + 10);
    put_ascending(&mut out, numbers)?;
    Some(out)
}

/// Like `ascending_bytes`, appended to `out`.
pub(crate) fn put_ascending(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = i64>) -> Option<()> {
    put_varint(out, numbers.len() as u64);
    let mut next = 0_i64;
    for number in numbers {
        put_varint(out, u64::try_from(number.checked_sub(next)?).ok()?);
        next = number.checked_add(1)?;
    }
    Some(())
}

#[cfg(test)]
mod tests;
