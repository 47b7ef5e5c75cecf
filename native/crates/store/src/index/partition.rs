//! One partition's part of the index: sorted leaves of slots, the suffixes' set hashes, and what few objects have.
//!
//! Slots are sorted by suffix, then digest, in leaves of bounded size, with a directory of their first keys: a lookup
//! is two interpolation searches, an insertion moves at most half a leaf, and the slots of a suffix are contiguous.
//! This holds for any distribution of digests; an even one is the fastest. Most objects are a slot and nothing else;
//! POSTs, expiries and large files are kept separately, and so are fragments with all of their versions: those that
//! other places are shown have a slot as well.

mod fragments;
mod tables;

use std::collections::{BTreeMap, HashMap};

use self::fragments::Fragments;
pub(crate) use self::fragments::WholeObject;
use self::tables::Tables;
pub(crate) use self::tables::{Between, HeldTable, Taking, is_between};
use super::room::{LEAF, Slots};
use super::search::search;
use super::slot::{Slot, joined};
use crate::merge::State;
use crate::model::{Entry, EntryKind, Suffix, Timestamp};
use crate::post::Post;
use crate::record::{Kind, Place};
use crate::sethash;

/// The number of slots to which a leaf is filled when slots come in order.
const FILLED: usize = 48;

/// Data that only few objects have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Number of the file with the data, 0 for none.
    pub large: u64,
    /// When the data expire, in seconds since 1970, 0 never.
    pub delete_at: u64,
    /// The POST on top.
    pub post: Option<Post>,
}

/// All that the index knows of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Data or tombstone.
    pub slot: Slot,
    /// Data that only few objects have.
    pub extra: Extra,
    /// Of a fragment, else 0.
    pub generation: u64,
}

impl Held {
    /// The timestamps that decide merges.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        State {
            newest: self.slot.entry_kind().map(|kind| (kind, self.slot.timestamp)),
            post: self.extra.post.map(|post| (post.timestamp, post.content_type_timestamp)),
        }
    }

    /// When the object expires; 0 never.
    #[must_use]
    pub(crate) fn delete_at(&self) -> u64 {
        if self.slot.kind == Kind::Tombstone {
            return 0;
        }
        self.extra.post.map_or(self.extra.delete_at, |post| post.delete_at)
    }

    /// Records that die with it: its own, and the POST if it goes as well. A table lives on without it.
    pub(super) fn freed(&self, post_goes: bool) -> Vec<(Place, u32)> {
        let post = self.extra.post.filter(|_| post_goes).map(|post| (post.place, post.units));
        [self.slot.own_record(), post].into_iter().flatten().collect()
    }

    /// Number of the file with its data, if there is one.
    pub(super) fn large(&self) -> Option<u64> {
        Some(self.extra.large).filter(|large| *large != 0)
    }

    /// What other devices are shown of it; of a fragment the newest version that is for certain, without its generation.
    fn entry(&self) -> Entry {
        self.state().entry(self.slot.digest()).unwrap_or_else(|| self.entry_of_fragment())
    }

    fn entry_of_fragment(&self) -> Entry {
        let (digest, kind, timestamp) = (self.slot.digest(), EntryKind::Data, self.slot.timestamp);
        let as_data = State { newest: Some((kind, timestamp)), ..self.state() };
        let bare = Entry { digest, kind, timestamp, meta_timestamp: 0, content_type_timestamp: 0 };
        as_data.entry(digest).unwrap_or(bare)
    }

    /// What it adds to its suffix's set hash.
    fn term(&self) -> u128 {
        match self.state().entry(self.slot.digest()) {
            Some(entry) => sethash::term(&entry),
            None => sethash::fragment_term(&self.entry_of_fragment(), self.generation),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    total: [u64; 2],
    count: u32,
}

impl Sum {
    fn total(&self) -> u128 {
        joined(self.total)
    }

    fn set(&mut self, total: u128) {
        self.total = [(total >> 64) as u64, total as u64];
    }
}

/// Some consecutive slots, never none. Fields that the directory needs are next to each other.
struct Leaf {
    first: [u64; 2],
    slots: Slots,
}

impl Leaf {
    fn of(slots: Slots) -> Self {
        Self { first: slots[0].order, slots }
    }

    fn first(&self) -> u128 {
        joined(self.first)
    }
}

/// One partition.
#[derive(Default)]
pub(crate) struct Partition {
    leaves: Vec<Leaf>,
    sums: BTreeMap<Suffix, Sum>,
    extras: HashMap<[u8; 16], Extra>,
    fragments: Option<Box<Fragments>>,
    tables: Option<Box<Tables>>,
    count: usize,
    root: Option<u128>,
}

/// A change of one object's entry in the index: what to hold from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Put, Large, Tombstone, Table for a reference, or a fragment's.
    pub kind: Kind,
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// Data that only few objects have.
    pub extra: Extra,
}

fn order_of(digest: &[u8; 16]) -> u128 {
    u128::from_be_bytes(*digest).rotate_right(12)
}

impl Partition {
    /// Objects and tombstones, and fragments that other places are shown.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is held.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.fragments.is_none()
    }

    fn leaf_of(&self, order: u128) -> usize {
        search(&self.leaves, order, 0, u64::MAX, Leaf::first).unwrap_or_else(|at| at.saturating_sub(1))
    }

    fn position(&self, order: u128) -> Option<(usize, std::result::Result<usize, usize>)> {
        let leaf = self.leaf_of(order);
        let found = self.leaves.get(leaf)?;
        let upper = self.leaves.get(leaf + 1).map_or(u64::MAX, |next| next.first[0]);
        Some((leaf, search(&found.slots, order, found.first[0], upper, Slot::order)))
    }

    /// What is held of an object.
    #[must_use]
    pub(crate) fn get(&self, digest: &[u8; 16]) -> Option<Held> {
        let (leaf, at) = self.position(order_of(digest))?;
        Some(self.held(self.leaves[leaf].slots[at.ok()?]))
    }

    fn held(&self, slot: Slot) -> Held {
        let extra =
            if slot.extra { self.extras.get(&slot.digest()).copied().unwrap_or_default() } else { Extra::default() };
        let generation = if slot.kind.is_fragment() { self.generation_of(&slot.digest()) } else { 0 };
        Held { slot, extra, generation }
    }

    /// Replace what is held of an object, and return the former. None forgets it.
    pub(crate) fn set(&mut self, digest: &[u8; 16], record: Option<&Record>) -> Option<Held> {
        let (before, after) = self.replace(digest, record);
        self.resum(before.as_ref(), after.as_ref());
        before
    }

    /// Replace a slot; what is held before and after.
    fn replace(&mut self, digest: &[u8; 16], record: Option<&Record>) -> (Option<Held>, Option<Held>) {
        let order = order_of(digest);
        let position = self.position(order);
        let before = position.and_then(|(leaf, at)| Some(self.held(self.leaves[leaf].slots[at.ok()?])));
        if before.is_some_and(|held| held.slot.extra) {
            self.extras.remove(digest);
        }
        let after = record.map(|record| {
            let extra = record.extra != Extra::default();
            if extra {
                self.extras.insert(*digest, record.extra);
            }
            let slot = Slot {
                order: [(order >> 64) as u64, order as u64],
                timestamp: record.timestamp,
                place: record.place,
                units: record.units,
                kind: record.kind,
                extra,
            };
            Held { extra: record.extra, ..self.held(slot) }
        });
        // In this order, so that a table never dies that is pointed to again.
        after.iter().for_each(|held| self.count_reference(&held.slot));
        before.iter().for_each(|held| self.discount_reference(&held.slot));
        match (position, after) {
            (Some((leaf, Ok(at))), Some(held)) => self.leaves[leaf].slots[at] = held.slot,
            (Some((leaf, Ok(at))), None) => self.take(leaf, at),
            (Some((leaf, Err(at))), Some(held)) => self.insert(leaf, at, held.slot),
            (None, Some(held)) => self.push(held.slot),
            _ => {}
        }
        (before, after)
    }

    fn take(&mut self, leaf: usize, at: usize) {
        self.count -= 1;
        let found = &mut self.leaves[leaf];
        found.slots.remove(at);
        match found.slots.first() {
            Some(first) => found.first = first.order,
            None => drop(self.leaves.remove(leaf)),
        }
    }

    fn insert(&mut self, mut leaf: usize, mut at: usize, slot: Slot) {
        self.count += 1;
        if self.leaves[leaf].slots.len() == LEAF {
            let right = self.leaves[leaf].slots.split_off(LEAF / 2);
            self.leaves.insert(leaf + 1, Leaf::of(right));
            if at > LEAF / 2 {
                leaf += 1;
                at -= LEAF / 2;
            }
        }
        let found = &mut self.leaves[leaf];
        found.slots.insert(at, slot);
        found.first = found.slots[0].order;
    }

    /// Add a slot after all others.
    fn push(&mut self, slot: Slot) {
        self.count += 1;
        match self.leaves.last_mut() {
            Some(leaf) if leaf.slots.len() < FILLED => leaf.slots.insert(leaf.slots.len(), slot),
            _ => self.leaves.push(Leaf::of(Slots::one(slot))),
        }
    }

    /// Add an object after all others, when a partition is loaded; false if it does not sort after them.
    #[must_use]
    pub(crate) fn append(&mut self, digest: &[u8; 16], record: &Record) -> bool {
        let order = order_of(digest);
        if self.leaves.last().and_then(|leaf| leaf.slots.last()).is_some_and(|last| last.order() >= order) {
            return false;
        }
        let slot = Slot {
            order: [(order >> 64) as u64, order as u64],
            timestamp: record.timestamp,
            place: record.place,
            units: record.units,
            kind: record.kind,
            extra: false,
        };
        self.push(slot);
        self.count_reference(&slot);
        self.root = None;
        let (suffix, term) = (slot.suffix(), self.held(slot).term());
        let sum = match self.sums.last_entry() {
            Some(last) if *last.key() == suffix => last.into_mut(),
            _ => self.sums.entry(suffix).or_default(),
        };
        sum.set(sum.total().wrapping_add(term));
        sum.count += 1;
        true
    }

    /// Add an extra to an object that is already held; false if it is not held.
    #[must_use]
    pub(crate) fn attach(&mut self, digest: &[u8; 16], extra: Extra) -> bool {
        let Some(held) = self.get(digest) else { return false };
        let Slot { kind, timestamp, place, units, .. } = held.slot;
        self.set(digest, Some(&Record { kind, timestamp, place, units, extra }));
        true
    }

    /// Make room for so many more.
    pub(crate) fn reserve(&mut self, slots: usize) {
        self.leaves.reserve_exact(slots.div_ceil(FILLED));
    }

    fn resum(&mut self, before: Option<&Held>, after: Option<&Held>) {
        let (old, new) = (before.map(Held::term), after.map(Held::term));
        if old == new {
            return;
        }
        let Some(suffix) = after.or(before).map(|held| held.slot.suffix()) else { return };
        self.root = None;
        let sum = self.sums.entry(suffix).or_default();
        let mut total = sum.total();
        if let Some(term) = old {
            total = total.wrapping_sub(term);
            sum.count -= 1;
        }
        if let Some(term) = new {
            total = total.wrapping_add(term);
            sum.count += 1;
        }
        sum.set(total);
        if sum.count == 0 {
            self.sums.remove(&suffix);
        }
    }

    /// Set hashes of all suffixes that are not empty, by suffix.
    #[must_use]
    pub(crate) fn suffixes(&self) -> Vec<(Suffix, u128)> {
        self.sums.iter().map(|(suffix, sum)| (*suffix, sum.total())).collect()
    }

    /// One hash over the partition.
    #[must_use]
    pub(crate) fn root(&mut self) -> u128 {
        if let Some(root) = self.root {
            return root;
        }
        let root = sethash::root(&self.suffixes());
        self.root = Some(root);
        root
    }

    /// Whether the root was computed since the last change.
    #[must_use]
    pub(crate) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// What is held in a suffix, by digest.
    #[must_use]
    pub(crate) fn in_suffix(&self, suffix: Suffix) -> Vec<Held> {
        let start = u128::from(suffix) << 116;
        let mut found = Vec::new();
        for leaf in &self.leaves[self.leaf_of(start).min(self.leaves.len())..] {
            for slot in leaf.slots.iter().filter(|slot| slot.order() >= start) {
                if slot.suffix() != suffix {
                    return found;
                }
                found.push(self.held(*slot));
            }
        }
        found
    }

    /// What is held in these suffixes, unless it is more than `limit`.
    pub(crate) fn listed(&self, suffixes: &[Suffix], limit: usize) -> Option<Vec<Entry>> {
        let mut found = Vec::new();
        for suffix in suffixes {
            found.extend(self.in_suffix(*suffix).iter().map(Held::entry));
            if found.len() > limit {
                return None;
            }
        }
        Some(found)
    }

    /// Everything, by suffix, then digest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.leaves.iter().flat_map(|leaf| leaf.slots.iter()).map(|slot| self.held(*slot))
    }

    /// The entry of what is held.
    #[must_use]
    pub(crate) fn entry_of(held: &Held) -> Entry {
        held.entry()
    }

    /// Compare the set hashes with the slots, and what is known of fragments with their versions; returns the first
    /// suffix that differs.
    #[must_use]
    pub(crate) fn check(&self) -> Option<Suffix> {
        let mut counted: HashMap<Suffix, u128> = HashMap::new();
        for held in self.iter() {
            let total = counted.entry(held.slot.suffix()).or_default();
            *total = total.wrapping_add(held.term());
        }
        let wrong = self.sums.iter().find(|(suffix, sum)| counted.remove(suffix) != Some(sum.total()));
        wrong.map(|(suffix, _)| *suffix).or_else(|| counted.keys().next().copied()).or_else(|| self.wrongly_settled())
    }
}

#[cfg(test)]
mod tests;
