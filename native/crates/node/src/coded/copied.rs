//! The newest small object that devices have told of: what it is, who has a copy of it, in which packs it is, and what has
//! come of it. No I/O.
//!
//! Fault model: whoever has told of it may not have it any more, have a newer one by now, or send other bytes. A reference
//! may lead nowhere.

use std::collections::VecDeque;
use std::ops::Range;

use swiftlet_store::from_member;
use swiftlet_store::merge::{merge_post, post_on};
use swiftlet_store::model::{Info, PostMeta};

use super::member::Referred;
use crate::message::Found;

/// Where the bytes may be had.
#[derive(Debug)]
pub(super) enum Source {
    /// A device has a copy.
    Copy(u32),
    /// A device has said that it is in a pack.
    Pack(Referred),
}

/// A small object that is looked for.
#[derive(Debug, Default)]
pub(super) struct Copied {
    timestamp: Option<u64>,
    /// What it is, with the newest metadata that were told of, as far as it lies as copies.
    info: Option<Info>,
    /// The newest metadata that were told of with references.
    posted: Option<PostMeta>,
    /// Who has it, and was not asked for its bytes.
    sources: VecDeque<u32>,
    /// Where it is in packs that were not tried, the latest pack last.
    packs: Vec<Referred>,
    /// The bytes of the range.
    bytes: Option<Vec<u8>>,
}

/// What orders the descriptions of an object: the newest metadata count.
fn order(info: &Info) -> (u64, u64, u64) {
    (info.timestamp, info.meta_timestamp, info.content_type_timestamp)
}

/// The bytes of a range that an object has.
fn within(range: &Range<u64>, info: &Info) -> Range<u64> {
    range.start.min(info.size)..range.end.min(info.size)
}

/// How many these are.
fn count(range: &Range<u64>, info: &Info) -> u64 {
    let Range { start, end } = within(range, info);
    end.saturating_sub(start)
}

impl Copied {
    /// Its time.
    pub(super) fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// A device has told of a version with this time. Returns whether that counts.
    fn counts(&mut self, timestamp: u64) -> bool {
        if Some(timestamp) > self.timestamp {
            *self = Self { timestamp: Some(timestamp), ..Self::default() };
        }
        Some(timestamp) == self.timestamp
    }

    /// A device has told of its copy, and perhaps sent the bytes of the range with their digest.
    pub(super) fn learn(&mut self, info: Info, device: u32, body: Option<(u64, Vec<u8>)>, range: &Range<u64>) {
        if !self.counts(info.timestamp) {
            return;
        }
        if !self.sources.contains(&device) {
            self.sources.push_back(device);
        }
        if let Some((sum, bytes)) = body
            && bytes.len() as u64 == count(range, &info)
            && swiftlet_hash::xxh3_64(&bytes) == sum
        {
            self.bytes = Some(bytes);
        }
        if self.info.as_ref().map(order) < Some(order(&info)) {
            self.info = Some(info);
        }
    }

    /// A device has told in which pack it is, and what was posted to it since.
    pub(super) fn refer(&mut self, referred: Referred, posted: Option<PostMeta>) {
        let timestamp = referred.reference.timestamp;
        if !self.counts(timestamp) {
            return;
        }
        if let Some(posted) = posted {
            let held = self.posted.take();
            self.posted = merge_post(timestamp, held.clone(), posted).store.or(held);
        }
        match self.packs.iter_mut().find(|one| (one.pack, one.reference) == (referred.pack, referred.reference)) {
            Some(known) => known.pack_bytes = known.pack_bytes.or(referred.pack_bytes),
            None => self.packs.push(referred),
        }
        self.packs.sort_by_key(|one| one.pack);
    }

    /// The object with the newest metadata that were told of.
    fn described(&self, info: Info) -> Info {
        let mut info = match &self.info {
            Some(known) if order(&info) < order(known) => known.clone(),
            _ => info,
        };
        if let Some(posted) = self.posted.clone() {
            post_on(&mut info, posted);
        }
        info
    }

    /// What it is, and the bytes of the range, if they are here or there are none.
    pub(super) fn whole(&mut self, range: &Range<u64>) -> Option<(Info, Vec<u8>)> {
        let info = self.info.clone()?;
        let bytes = if count(range, &info) == 0 { Some(Vec::new()) } else { self.bytes.take() };
        Some((self.described(info), bytes?))
    }

    /// Where to try next to get the bytes: copies take one question, packs may take many.
    pub(super) fn next(&mut self) -> Option<Source> {
        self.sources.pop_front().map(Source::Copy).or_else(|| self.packs.pop().map(Source::Pack))
    }

    /// Whether somebody has a copy who was not asked for it.
    pub(super) fn has_another(&self) -> bool {
        !self.sources.is_empty()
    }

    /// What a device has sent when it was asked; None if it isn't the object, nor a newer one.
    pub(super) fn check(&self, found: Found, bytes: Vec<u8>, range: &Range<u64>) -> Option<(Info, Vec<u8>)> {
        let Found { info, body_xxh3 } = found;
        let is_it = Some(info.timestamp) >= self.timestamp
            && bytes.len() as u64 == count(range, &info)
            && body_xxh3 == Some(swiftlet_hash::xxh3_64(&bytes));
        is_it.then(|| (self.described(info), bytes))
    }

    /// What was read of a pack; None if it isn't the object.
    pub(super) fn unpack(&self, digest: [u8; 16], member: &[u8], range: &Range<u64>) -> Option<(Info, Vec<u8>)> {
        let (info, body) = from_member(digest, self.timestamp?, member, None)?;
        let Range { start, end } = within(range, &info);
        let bytes = body.get(start as usize..end.max(start) as usize)?.to_vec();
        Some((self.described(info), bytes))
    }
}
