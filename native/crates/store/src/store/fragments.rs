//! Fragments of objects with erasure coding: what the device answers about them, and what it serves.
//!
//! `docs/design/2026-11-26-fragments.md` has the protocol and the records. What is decided is decided by
//! `swiftlet_fragments`, on a slot that is made of what is durable; the rooms here make it durable, and find it again:
//! `versions` what is held of a fragment, `deciding` what a batch does about a request, `read` and `writer` the bytes,
//! `unsound` what is damaged.
//!
//! Fault model: that of the store. The process may end at any instruction, with or without the power; any bit on the
//! device may flip; the disk may be full, and may fail. An answer is given when what it says is durable, and nothing is
//! answered from what is not. A fragment is served cell by cell, each compared with its digest. A damaged fragment is
//! put aside and is missing from then on, but what is known of its version stays known; a damaged decision is written
//! anew from memory. If a start finds a decision damaged that was an answer to a ballot, it is not known any more what
//! was promised, and the device promises nothing more about this version. What a start can't find at all, since the
//! header is damaged as well, is counted.

use std::sync::Arc;

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::request::{Answer, Request, answer};
use swiftlet_fragments::slot::{Shown, Slot};
use swiftlet_fragments::sync::{self, Todo};
use swiftlet_fragments::{Device, Version};

use super::Store;
use crate::aggregate::MAX_AGGREGATE;
use crate::commit;
use crate::error::{Error, Result};
use crate::index::WholeObject;
use crate::model::{Key, PostMeta, Timestamp};
use crate::queue::{Asked, Told};
use crate::read::fragments::{self as reading, Fetched, Newest};
use crate::versions::Versions;
use crate::writer::{FragmentWriter, Shape};

/// A version of which nobody here knows what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The fragment.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// The devices that its proxy chose; none if that is not known here any more.
    pub chosen: Arc<[Device]>,
}

/// Partitions of a store for each partition of a ring with erasure coding: one for each place, and the last one for
/// copies of small objects.
pub const PARTITIONS: u32 = 32;
/// Which of these has the copies.
pub const COPIES: u32 = PARTITIONS - 1;
/// Objects of which [`Store::kept_as`] reads one, at most.
const MOST_LOOKED_AT: usize = 1024;

/// How objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAs {
    /// As they are.
    Whole,
    /// As fragments.
    Coded {
        /// How many fragments with data and parity there are.
        scheme: Scheme,
        /// Bytes of a cell.
        cell_bytes: usize,
    },
}

/// A version because of which older ones are still kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The version, and where its fragment is.
    pub of: Undecided,
    /// Whether it is known here that it counts.
    pub certain: bool,
}

impl Store {
    /// What tells this device from one that is put in its place, empty: that one must not answer for it.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        swiftlet_hash::xxh3_64(&self.inner.device.id)
    }

    /// Begin a fragment that comes in cell by cell. A full disk is refused before the first byte if its size is known.
    pub fn create_fragment(&self, key: Key, shape: Shape) -> Result<FragmentWriter> {
        if shape.cell_bytes == 0 {
            return Err(Error::Format("a fragment's cells have at least one byte".into()));
        }
        self.inner.device.check()?;
        self.inner.device.check_room(shape.size.unwrap_or(0))?;
        let usual = || self.aggregate_below(key.policy);
        let limit = shape.aggregate_below.map_or_else(usual, |limit| limit.min(MAX_AGGREGATE));
        Ok(FragmentWriter::new(Arc::clone(&self.inner), key, shape, limit))
    }

    /// How the objects of a policy are kept here, by the first that can be read of at most [`MOST_LOOKED_AT`] objects;
    /// None if there is none.
    pub fn kept_as(&self, policy: u16) -> Result<Option<KeptAs>> {
        for (key, is_whole) in self.inner.index.first_of(policy, MOST_LOOKED_AT) {
            if is_whole && key.partition % PARTITIONS == COPIES {
                continue; // it may be a small object of either kind of policy
            }
            if is_whole {
                return Ok(Some(KeptAs::Whole));
            }
            // One that is damaged says nothing; the auditor finds it.
            let Ok(Newest { fragment: Some(fragment), .. }) = self.newest_fragment(&key, None) else { continue };
            let Block { geometry, cell_bytes, .. } = fragment.info().block;
            return Ok(Some(KeptAs::Coded { scheme: geometry.scheme(), cell_bytes }));
        }
        Ok(None)
    }

    fn fragments_slot(&self, key: &Key) -> Result<Slot> {
        self.inner.device.check()?;
        Ok(self.inner.index.versions(key).map_err(WholeObject::into_error)?.slot())
    }

    /// Ask the device about a fragment; `told` is called with its answer when what it says is durable. Fragments
    /// themselves come with a [`FragmentWriter`].
    pub fn submit_about_fragment(&self, key: Key, request: Request, told: Told) {
        match request {
            Request::Show | Request::Newest { .. } | Request::Fetch(_) => {
                let slot = self.fragments_slot(&key);
                told(slot.map(|slot| answer(&slot, &request).1));
            }
            Request::Prepare { .. } | Request::Keep { .. } => {
                told(Err(Error::Format("a fragment is kept by a request without its bytes".into())));
            }
            request => self.inner.queue.push_asked(key, Asked::Request(request), told),
        }
    }

    /// Like `submit_about_fragment`, and wait for the answer.
    pub fn about_fragment(&self, key: Key, request: Request) -> Result<Answer> {
        commit::wait(&self.inner, |told| self.submit_about_fragment(key, request, told))
    }

    /// Whether a fragment of any version is here.
    #[must_use]
    pub fn has_fragment(&self, key: &Key) -> bool {
        let any = |versions: &Versions| versions.kept.iter().any(|kept| kept.bytes.is_some());
        self.inner.index.look_at_fragment(key, any).unwrap_or(false)
    }

    /// `submit_coded_post` without an update, and wait for the answer.
    pub fn coded_post(&self, key: Key, of: Timestamp, meta: PostMeta) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_coded_post(key, of, meta, 0, done))
    }

    /// The newest POST to a coded object that is held, whether it counts for a version that is here or not.
    pub fn posted(&self, key: &Key) -> Result<Option<PostMeta>> {
        Ok(reading::newest(&self.inner, key, None)?.post)
    }

    /// The newest committed version below another one, with its fragment, for reading.
    pub fn newest_fragment(&self, key: &Key, below: Option<Version>) -> Result<Newest> {
        reading::newest(&self.inner, key, below)
    }

    /// The fragment of a version, for reading, if it is here and may be read.
    pub fn fragment(&self, key: &Key, version: Version) -> Result<Fetched> {
        reading::fragment(&self.inner, key, version)
    }

    /// What other places are shown of a fragment.
    pub fn shown_fragment(&self, key: &Key) -> Result<Option<Shown>> {
        Ok(self.fragments_slot(key)?.shown())
    }

    /// What this place has to do about what another one shows.
    pub fn compare_fragment(&self, key: &Key, theirs: &Shown) -> Result<Todo> {
        Ok(sync::compare(&self.fragments_slot(key)?, Some(theirs)))
    }

    /// Make durable what follows from what another place shows, as far as no bytes have to be moved for it; returns
    /// whether anything changed.
    pub fn learn_of_fragment(&self, key: Key, theirs: Shown) -> Result<bool> {
        Ok(self.about_fragment(key, Request::Learn(theirs))? == Answer::Done)
    }

    /// Drop a handoff's fragment of which the device at its place shows this, if it may be dropped; returns whether it
    /// was.
    pub fn hand_back_fragment(&self, key: Key, theirs: Shown) -> Result<bool> {
        Ok(self.about_fragment(key, Request::HandBack(theirs))? == Answer::Done)
    }

    /// Versions of a policy that are not settled, in the order of partitions and digests, from the first one behind these
    /// on; and whether there are others behind them. Once there are `limit`, only the rest of their fragment follows.
    #[must_use]
    pub fn unsettled_fragments(
        &self,
        policy: u16,
        after: Option<(u32, [u8; 16])>,
        limit: usize,
    ) -> (Vec<Unsettled>, bool) {
        let (mut told, mut more) = (Vec::new(), false);
        self.inner.index.for_each_unsettled(policy, after, |key, versions| {
            more = told.len() >= limit;
            if !more {
                told.extend(unsettled(*key, versions));
            }
            !more
        });
        (told, more)
    }

    /// Versions of which nobody here knows what became of them, at most so many.
    #[must_use]
    pub fn undecided_fragments(&self, limit: usize) -> Vec<Undecided> {
        let mut found = Vec::new();
        self.inner.index.for_each_fragment(|key, versions| {
            let undecided = versions.kept.iter().filter(|kept| versions.decided(kept).is_none());
            let undecided =
                undecided.map(|kept| Undecided { key: *key, version: kept.version, chosen: kept.chosen.clone() });
            found.extend(undecided.take(limit - found.len().min(limit)));
        });
        found
    }
}

/// The versions of one fragment that are not settled: those that are undecided, and the one that is shown.
fn unsettled(key: Key, versions: &Versions) -> impl Iterator<Item = Unsettled> {
    let floor = versions.floor.map(|floor| floor.version);
    let shown = versions.shown().map(|(version, _)| version).filter(|version| Some(*version) > floor);
    versions.kept.iter().filter_map(move |kept| {
        let certain = shown == Some(kept.version);
        let of = || Undecided { key, version: kept.version, chosen: kept.chosen.clone() };
        (certain || versions.decided(kept).is_none()).then(|| Unsettled { of: of(), certain })
    })
}
