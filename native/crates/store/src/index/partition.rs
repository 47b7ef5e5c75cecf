//! One partition's part of the index: sorted leaves of slots, the suffixes' set hashes, and what few objects have.
//!
//! Slots are sorted by suffix, then digest, in leaves of bounded size behind a directory of their first keys: a lookup
//! is two binary searches, an insertion moves half a leaf at most, and a suffix lies in one stretch. It needs no
//! even distribution of digests to stay so. Most objects are a slot and nothing else; POSTs, expiries and large
//! files are kept aside.

use std::collections::{BTreeMap, HashMap};

use crate::merge::State;
use crate::model::{Entry, EntryKind, Suffix, Timestamp};
use crate::record::{ALIGN, Kind, Place};
use crate::sethash;

/// Slots in a leaf before it is split.
const LEAF: usize = 64;
/// To how many slots a leaf is filled when slots come in order.
const FILLED: usize = 48;

/// What is held of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    order: [u64; 2],
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// Put, Large or Tombstone.
    pub kind: Kind,
    extra: bool,
}

impl Slot {
    /// The name's digest.
    #[must_use]
    pub(crate) fn digest(&self) -> [u8; 16] {
        self.order().rotate_left(12).to_be_bytes()
    }

    fn order(&self) -> u128 {
        (u128::from(self.order[0]) << 64) | u128::from(self.order[1])
    }

    fn suffix(&self) -> Suffix {
        (self.order[0] >> 52) as Suffix
    }

    fn entry_kind(&self) -> EntryKind {
        if self.kind == Kind::Tombstone { EntryKind::Tombstone } else { EntryKind::Data }
    }

    /// Bytes of the record.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.units) * ALIGN
    }
}

/// A POST on top of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Post {
    /// Newer than the object's.
    pub timestamp: Timestamp,
    /// 0 when it sets none.
    pub content_type_timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// Seconds since 1970, 0 never.
    pub delete_at: u64,
}

/// What few objects have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Number of the file with the data, 0 for none.
    pub large: u64,
    /// Of the data, in seconds since 1970, 0 never.
    pub delete_at: u64,
    /// The POST on top.
    pub post: Option<Post>,
}

/// All that the index knows of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Data or tombstone.
    pub slot: Slot,
    /// What few have.
    pub extra: Extra,
}

impl Held {
    /// The timestamps that count.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        State {
            newest: Some((self.slot.entry_kind(), self.slot.timestamp)),
            post: self.extra.post.map(|post| (post.timestamp, post.content_type_timestamp)),
        }
    }

    /// When the object counts as gone; 0 never.
    #[must_use]
    pub(crate) fn delete_at(&self) -> u64 {
        if self.slot.kind == Kind::Tombstone {
            return 0;
        }
        self.extra.post.map_or(self.extra.delete_at, |post| post.delete_at)
    }

    fn entry(&self) -> Entry {
        let state = self.state();
        let digest = self.slot.digest();
        match state.entry(digest) {
            Some(entry) => entry,
            // A slot always has a kind and a timestamp.
            None => unreachable!("a slot without an entry"),
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
        (u128::from(self.total[0]) << 64) | u128::from(self.total[1])
    }

    fn set(&mut self, total: u128) {
        self.total = [(total >> 64) as u64, total as u64];
    }
}

/// One partition.
#[derive(Default)]
pub(crate) struct Partition {
    firsts: Vec<u128>,
    leaves: Vec<Vec<Slot>>,
    sums: BTreeMap<Suffix, Sum>,
    extras: HashMap<[u8; 16], Extra>,
    count: usize,
    root: Option<u128>,
}

/// A change of one object's place in the index: what to hold from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Put, Large or Tombstone.
    pub kind: Kind,
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// What few have.
    pub extra: Extra,
}

fn order_of(digest: &[u8; 16]) -> u128 {
    u128::from_be_bytes(*digest).rotate_right(12)
}

impl Partition {
    /// Objects and tombstones.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn leaf_of(&self, order: u128) -> usize {
        self.firsts.partition_point(|first| *first <= order).saturating_sub(1)
    }

    fn position(&self, order: u128) -> Option<(usize, std::result::Result<usize, usize>)> {
        let leaf = self.leaf_of(order);
        Some((leaf, self.leaves.get(leaf)?.binary_search_by(|slot| slot.order().cmp(&order))))
    }

    /// What is held of an object.
    #[must_use]
    pub(crate) fn get(&self, digest: &[u8; 16]) -> Option<Held> {
        let (leaf, at) = self.position(order_of(digest))?;
        Some(self.held(self.leaves[leaf][at.ok()?]))
    }

    fn held(&self, slot: Slot) -> Held {
        let extra =
            if slot.extra { self.extras.get(&slot.digest()).copied().unwrap_or_default() } else { Extra::default() };
        Held { slot, extra }
    }

    /// Hold this of an object instead of what was held, which is returned. None forgets it.
    pub(crate) fn set(&mut self, digest: &[u8; 16], record: Option<&Record>) -> Option<Held> {
        let order = order_of(digest);
        let position = self.position(order);
        let before = position.and_then(|(leaf, at)| Some(self.held(self.leaves[leaf][at.ok()?])));
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
            Held { slot, extra: record.extra }
        });
        match (position, after) {
            (Some((leaf, Ok(at))), Some(held)) => self.leaves[leaf][at] = held.slot,
            (Some((leaf, Ok(at))), None) => self.take(leaf, at),
            (Some((leaf, Err(at))), Some(held)) => self.insert(leaf, at, held.slot),
            (None, Some(held)) => self.push(held.slot),
            _ => {}
        }
        self.resum(before.as_ref(), after.as_ref());
        before
    }

    fn take(&mut self, leaf: usize, at: usize) {
        self.count -= 1;
        self.leaves[leaf].remove(at);
        if let Some(first) = self.leaves[leaf].first() {
            self.firsts[leaf] = first.order();
        } else {
            self.leaves.remove(leaf);
            self.firsts.remove(leaf);
        }
    }

    fn insert(&mut self, mut leaf: usize, mut at: usize, slot: Slot) {
        self.count += 1;
        if self.leaves[leaf].len() == LEAF {
            let mut right = Vec::with_capacity(LEAF);
            right.extend(self.leaves[leaf].drain(LEAF / 2..));
            self.firsts.insert(leaf + 1, right[0].order());
            self.leaves.insert(leaf + 1, right);
            if at > LEAF / 2 {
                leaf += 1;
                at -= LEAF / 2;
            }
        }
        self.leaves[leaf].insert(at, slot);
        self.firsts[leaf] = self.leaves[leaf][0].order();
    }

    /// Add a slot behind all others.
    fn push(&mut self, slot: Slot) {
        self.count += 1;
        match self.leaves.last_mut() {
            Some(leaf) if leaf.len() < FILLED => leaf.push(slot),
            _ => {
                self.firsts.push(slot.order());
                self.leaves.push(vec![slot]);
            }
        }
    }

    /// Add an object behind all others, when a partition is loaded; false if it is not behind them.
    #[must_use]
    pub(crate) fn append(&mut self, digest: &[u8; 16], record: &Record) -> bool {
        let order = order_of(digest);
        if self.leaves.last().and_then(|leaf| leaf.last()).is_some_and(|last| last.order() >= order) {
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
        self.resum(None, Some(&Held { slot, extra: Extra::default() }));
        true
    }

    /// Give an object that is held already what few have; false if it is not held.
    #[must_use]
    pub(crate) fn attach(&mut self, digest: &[u8; 16], extra: Extra) -> bool {
        let Some(held) = self.get(digest) else { return false };
        let Slot { kind, timestamp, place, units, .. } = held.slot;
        self.set(digest, Some(&Record { kind, timestamp, place, units, extra }));
        true
    }

    /// Make room for so many more.
    pub(crate) fn reserve(&mut self, slots: usize) {
        self.firsts.reserve_exact(slots.div_ceil(FILLED));
        self.leaves.reserve_exact(slots.div_ceil(FILLED));
    }

    fn resum(&mut self, before: Option<&Held>, after: Option<&Held>) {
        let (old, new) = (before.map(Held::entry), after.map(Held::entry));
        if old == new {
            return;
        }
        let Some(suffix) = after.or(before).map(|held| held.slot.suffix()) else { return };
        self.root = None;
        let sum = self.sums.entry(suffix).or_default();
        let mut total = sum.total();
        if let Some(entry) = old {
            total = total.wrapping_sub(sethash::term(&entry));
            sum.count -= 1;
        }
        if let Some(entry) = new {
            total = total.wrapping_add(sethash::term(&entry));
            sum.count += 1;
        }
        sum.set(total);
        if sum.count == 0 {
            self.sums.remove(&suffix);
        }
    }

    /// Set hashes of all suffixes with anything in them, by suffix.
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

    /// What is held in a suffix, by digest.
    #[must_use]
    pub(crate) fn in_suffix(&self, suffix: Suffix) -> Vec<Held> {
        let start = u128::from(suffix) << 116;
        let mut found = Vec::new();
        for leaf in &self.leaves[self.leaf_of(start).min(self.leaves.len())..] {
            for slot in leaf.iter().filter(|slot| slot.order() >= start) {
                if slot.suffix() != suffix {
                    return found;
                }
                found.push(self.held(*slot));
            }
        }
        found
    }

    /// Everything, by suffix, then digest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.leaves.iter().flatten().map(|slot| self.held(*slot))
    }

    /// Entry of what is held.
    #[must_use]
    pub(crate) fn entry_of(held: &Held) -> Entry {
        held.entry()
    }

    /// Whether the set hashes are what the slots make; the first suffix where not.
    #[must_use]
    pub(crate) fn check(&self) -> Option<Suffix> {
        let mut counted: HashMap<Suffix, u128> = HashMap::new();
        for held in self.iter() {
            let total = counted.entry(held.slot.suffix()).or_default();
            *total = total.wrapping_add(sethash::term(&held.entry()));
        }
        let wrong = self.sums.iter().find(|(suffix, sum)| counted.remove(suffix) != Some(sum.total()));
        wrong.map(|(suffix, _)| *suffix).or_else(|| counted.keys().next().copied())
    }
}

#[cfg(test)]
mod tests;
