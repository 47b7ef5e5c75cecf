//! The partitions that two devices share, with their roots: a tree over the bits of the partitions' numbers.
//!
//! A node of the tree is a shift and a number: it has all partitions whose number, shifted right, is that number. No
//! node is stored: the hash of a node is the one over the numbers and roots of its partitions, which stand one after
//! the other, so every node can be hashed from one piece of memory. `docs/sync.md` has the messages.
//!
//! Fault model: bytes from peers may be anything. Branches that can't be parsed to their end are refused as a whole, and
//! every count has its limit.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::cursor::{Cursor, put_varint};
use crate::error::Result;
use crate::sethash;
use crate::store::Store;

/// Bytes of the hash of a branch: they only show where to look; a proof has all 16.
const SHORT: usize = 3;
/// Bytes of a partition's number and root.
const LEAF: usize = 20;
/// The most levels of bits between a node and its branches.
const MAX_BITS: u32 = 16;
/// The largest number of branches in one answer; those of one node always fit.
pub const MAX_BRANCHES: usize = 1 << MAX_BITS;
/// The largest number of nodes in one question.
pub const MAX_NODES: usize = 16_384;

/// A question about nodes: they have this shift, and their branches that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The shift of the nodes.
    pub from: u32,
    /// The shift of their branches, at most 16 less; 0 stands for single partitions.
    pub to: u32,
}

impl Step {
    /// A step, if there is one between these shifts.
    #[must_use]
    pub fn new(from: u32, to: u32) -> Option<Self> {
        (from <= 32 && to < from && from - to <= MAX_BITS).then_some(Self { from, to })
    }

    fn bits(self) -> u32 {
        self.from - self.to
    }
}

/// The partitions that two devices share by a ring, in order, with the roots that one of them has.
pub struct PairRoots {
    members: Vec<u32>,
    leaves: Vec<u8>,
    /// How far in the store's list of changes the roots are known; None before the first time.
    position: Option<u64>,
}

/// The partitions in question, and their leaves.
struct View<'a> {
    members: Cow<'a, [u32]>,
    leaves: Cow<'a, [u8]>,
}

impl PairRoots {
    /// These partitions, all of them empty; None unless they ascend.
    #[must_use]
    pub fn new(members: Vec<u32>) -> Option<Self> {
        if !members.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let empty = sethash::root(&[]).to_be_bytes();
        let leaves = members.iter().flat_map(|member| [&member.to_be_bytes()[..], &empty].concat()).collect();
        Some(Self { members, leaves, position: None })
    }

    /// The partitions, in order.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Set the root of a partition, if it is one of these.
    pub fn put(&mut self, partition: u32, root: u128) {
        if let Ok(at) = self.members.binary_search(&partition) {
            self.set(at, root);
        }
    }

    fn set(&mut self, at: usize, root: u128) {
        self.leaves[at * LEAF + 4..(at + 1) * LEAF].copy_from_slice(&root.to_be_bytes());
    }

    /// Read the roots that have changed on a device since the last time.
    pub fn refresh(&mut self, store: &Store, policy: u16) -> Result<()> {
        let empty = sethash::root(&[]);
        let (position, changed) = store.changed_roots(self.position);
        if let Some(changed) = changed {
            for (_, partition) in changed.into_iter().filter(|(of, _)| *of == policy) {
                if let Ok(at) = self.members.binary_search(&partition) {
                    self.set(at, store.root((policy, partition))?.unwrap_or(empty));
                }
            }
        } else {
            for at in 0..self.members.len() {
                self.set(at, store.root((policy, self.members[at]))?.unwrap_or(empty));
            }
        }
        self.position = Some(position);
        Ok(())
    }

    /// The view of all partitions but these, which ascend.
    fn without(&self, without: &[u32]) -> View<'_> {
        if without.is_empty() {
            return View { members: (&self.members).into(), leaves: (&self.leaves).into() };
        }
        let (mut members, mut leaves) = (Vec::new(), Vec::new());
        let mut start = 0;
        for partition in without {
            let found = self.members[start..].binary_search(partition);
            let end = start + found.unwrap_or_else(|at| at);
            members.extend_from_slice(&self.members[start..end]);
            leaves.extend_from_slice(&self.leaves[start * LEAF..end * LEAF]);
            start = end + usize::from(found.is_ok());
        }
        members.extend_from_slice(&self.members[start..]);
        leaves.extend_from_slice(&self.leaves[start * LEAF..]);
        View { members: members.into(), leaves: leaves.into() }
    }

    /// One hash over all partitions but these (ascending) and their roots.
    #[must_use]
    pub fn hash(&self, without: &[u32]) -> u128 {
        swiftlet_hash::xxh3_128(&self.without(without).leaves)
    }

    /// The branches of the first of these nodes, as many as an answer has room for; both lists ascend.
    #[must_use]
    pub fn branches(&self, step: Step, nodes: &[u32], without: &[u32], limit: usize) -> Vec<u8> {
        let view = self.without(without);
        let mut told = Vec::new();
        let (mut count, mut left) = (0_u64, limit.min(MAX_BRANCHES));
        for node in nodes {
            let first = view.first_from(u64::from(*node) << step.from);
            let end = view.first_from((u64::from(*node) + 1) << step.from);
            let branches = view.branches(step, first, end);
            if branches.len() > left && count > 0 {
                break;
            }
            left = left.saturating_sub(branches.len());
            count += 1;
            put_branches(&mut told, step, &branches);
        }
        let mut out = vec![step.bits() as u8];
        put_varint(&mut out, count);
        out.extend_from_slice(&told);
        out
    }
}

impl View<'_> {
    fn first_from(&self, partition: u64) -> usize {
        self.members.partition_point(|member| u64::from(*member) < partition)
    }

    /// The branches of one node, which has the partitions at these places: the place of each in the node, and its hash.
    fn branches(&self, step: Step, first: usize, end: usize) -> Vec<(u32, [u8; SHORT])> {
        let mut found = Vec::new();
        let mut start = first;
        while start < end {
            let number = self.members[start] >> step.to;
            let next = start + self.members[start..end].partition_point(|member| member >> step.to == number);
            let hash = swiftlet_hash::xxh3_128(&self.leaves[start * LEAF..next * LEAF]).to_be_bytes();
            let place = (u64::from(number) & ((1 << step.bits()) - 1)) as u32;
            found.push((place, [hash[13], hash[14], hash[15]]));
            start = next;
        }
        found
    }
}

/// How many, their places unless the node has all that are possible, and their hashes.
fn put_branches(out: &mut Vec<u8>, step: Step, branches: &[(u32, [u8; SHORT])]) {
    put_varint(out, branches.len() as u64);
    if branches.len() < 1 << step.bits() {
        let mut next = 0;
        for (place, _) in branches {
            put_varint(out, u64::from(place - next));
            next = place + 1;
        }
    }
    branches.iter().for_each(|(_, hash)| out.extend_from_slice(hash));
}

/// Branches as they come in a message: node by node.
struct Told<'a> {
    cursor: Cursor<'a>,
    bits: u32,
    nodes: u64,
    left: usize,
}

impl<'a> Told<'a> {
    fn begin(data: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor { data };
        let bits = u32::from(cursor.byte().ok()?);
        let nodes = cursor.varint().ok()?;
        (1..=MAX_BITS).contains(&bits).then_some(())?;
        (nodes <= MAX_NODES as u64).then_some(Self { cursor, bits, nodes, left: MAX_BRANCHES })
    }

    /// The next node's branches, by their places in it.
    fn node(&mut self) -> Option<Vec<(u32, &'a [u8])>> {
        let count = usize::try_from(self.cursor.varint().ok()?).ok().filter(|count| *count <= self.left)?;
        self.left -= count;
        let most = 1_u64 << self.bits;
        (count as u64 <= most).then_some(())?;
        let mut places = Vec::with_capacity(count);
        let mut next = 0_u64;
        for _ in 0..count {
            let gap = if (count as u64) < most { self.cursor.varint().ok()? } else { 0 };
            let place = next.checked_add(gap).filter(|place| *place < most)?;
            places.push(place as u32);
            next = place + 1;
        }
        let hashes = self.cursor.take((count * SHORT) as u64).ok()?;
        Some(places.into_iter().zip(hashes.chunks_exact(SHORT)).collect())
    }
}

/// How many nodes' branches these are; None for bytes that `branches` does not return.
#[must_use]
pub fn count(data: &[u8]) -> Option<u64> {
    let mut told = Told::begin(data)?;
    for _ in 0..told.nodes {
        told.node()?;
    }
    told.cursor.data.is_empty().then_some(told.nodes)
}

/// Compare the branches that two devices have of the first of these nodes. Returns of how many nodes both have told
/// them, and the numbers of those branches that are not the same, in order; None for what does not answer the question.
#[must_use]
pub fn differing(mine: &[u8], theirs: &[u8], step: Step, nodes: &[u32]) -> Option<(usize, Vec<u32>)> {
    let (mut mine, mut theirs) = (Told::begin(mine)?, Told::begin(theirs)?);
    let same_step = mine.bits == step.bits() && theirs.bits == step.bits();
    let known = mine.nodes.max(theirs.nodes) <= nodes.len() as u64;
    (same_step && known).then_some(())?;
    let compared = mine.nodes.min(theirs.nodes) as usize;
    let mut found = Vec::new();
    for node in &nodes[..compared] {
        let (here, there) = (mine.node()?, theirs.node()?);
        let number = |place: u32| u32::try_from(u64::from(*node) << step.bits() | u64::from(place)).ok();
        let (mut here, mut there) = (here.into_iter().peekable(), there.into_iter().peekable());
        loop {
            let (place, same) = match (here.peek(), there.peek()) {
                (None, None) => break,
                (Some((place, _)), None) => (*place, Ordering::Less),
                (None, Some((place, _))) => (*place, Ordering::Greater),
                (Some((one, _)), Some((other, _))) => (*one.min(other), one.cmp(other)),
            };
            let one = if same.is_le() { here.next() } else { None };
            let other = if same.is_ge() { there.next() } else { None };
            if one != other {
                found.push(number(place)?);
            }
        }
    }
    Some((compared, found))
}

/// One hash over the numbers of partitions, which shows that two sides mean the same ones.
#[must_use]
pub fn members_hash(partitions: &[u32]) -> u128 {
    let packed: Vec<u8> = partitions.iter().flat_map(|partition| partition.to_be_bytes()).collect();
    swiftlet_hash::xxh3_128(&packed)
}

/// A table of a ring: the device of each partition's replica with one number.
pub type Row<'a> = &'a [u8];

/// The partitions of a ring, given as rows of 16-bit numbers of devices, that two of its devices compare with each
/// other: those of which both are holders, or with `clockwise` those of which the answerer is the next holder behind
/// the asker in the order of replicas, the last one followed by the first, without the `skipped` ones.
#[must_use]
pub fn shared(rows: &[Row<'_>], asker: u16, answerer: u16, skipped: &[u16], clockwise: bool) -> Vec<u32> {
    let of = |row: &Row<'_>, partition: usize| {
        row.get(partition * 2..partition * 2 + 2).map(|raw| u16::from_ne_bytes([raw[0], raw[1]]))
    };
    let partitions = rows.iter().map(|row| row.len() / 2).max().unwrap_or(0);
    let mut holders = Vec::with_capacity(rows.len());
    let is_shared = |partition: &usize| {
        holders.clear();
        for holder in rows.iter().filter_map(|row| of(row, *partition)) {
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        let Some(place) = holders.iter().position(|holder| *holder == asker) else { return false };
        if !clockwise {
            return asker != answerer && holders.contains(&answerer);
        }
        let mut behind = holders[place + 1..].iter().chain(&holders[..place]);
        behind.find(|holder| !skipped.contains(holder)) == Some(&answerer)
    };
    (0..partitions).filter(is_shared).map(|partition| partition as u32).collect()
}

#[cfg(test)]
mod tests;
