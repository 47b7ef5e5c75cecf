//! Tables of references that a start finds damaged: blocks that are sound still count, and of the others it is known
//! between which digests their members are.
//!
//! Fault model: any bytes below a sound header. What was written before the table of an object that may have been in a
//! lost block does not count: it may be older than the reference was. Such objects are missing then, and replication
//! brings them.

use std::collections::VecDeque;
use std::ops::Bound;

use swiftlet_fragments::packs::table::{self, Reference};

use crate::device::Device;
use crate::disk::File;
use crate::error::Result;
use crate::index::{Between, Index, is_between};
use crate::model::Key;
use crate::record::{HEADER, Header, pack_of};

/// A damaged table.
pub(super) struct DamagedTable {
    /// Its header, which is sound.
    pub header: Header,
    /// References of sound blocks, with the numbers of these.
    references: Vec<(usize, Reference)>,
    /// Where the members of lost blocks are.
    lost: Vec<Between>,
}

impl DamagedTable {
    /// Read what is left of a table.
    pub(super) fn read(device: &Device, file: &dyn File, header: Header) -> Result<Self> {
        let mut bytes = Vec::new();
        let at = header.place.offset() + HEADER as u64;
        device.io("read a volume", file.append_at(&mut bytes, header.metadata_len as usize, at))?;
        let found = table::sound_blocks(&bytes).filter(|(pack, _)| *pack == pack_of(&header));
        let blocks = found.map(|(_, blocks)| blocks).unwrap_or_default();
        let lost = ranges_of_lost(&blocks);
        let sound = blocks.into_iter().enumerate().filter_map(|(number, block)| Some((number, block?)));
        let references = sound.flat_map(|(number, block)| block.into_iter().map(move |one| (number, one))).collect();
        Ok(Self { header, references, lost })
    }

    /// Whether a record with this number is of an object that may have been in a lost block, and is older than that.
    pub(super) fn has_lost(&self, key: &Key, sequence: u64) -> bool {
        let own = self.header.key;
        (key.policy, key.partition) == (own.policy, own.partition)
            && sequence <= self.header.sequence
            && self.lost.iter().any(|range| is_between(&key.digest, range))
    }

    /// Forget what a checkpoint had of such objects, unless it has seen what came after the table, from this number on.
    pub(super) fn forget_lost(&self, from: u64, index: &Index) {
        let key = self.header.key;
        if self.header.sequence >= from {
            self.lost.iter().for_each(|range| index.forget_between((key.policy, key.partition), range));
        }
    }

    /// Merge what is left.
    pub(super) fn apply(&self, index: &Index, counts: &dyn Fn(&Key, u64) -> bool) {
        let header = &self.header;
        let counts = |digest: &[u8; 16]| counts(&Key { digest: *digest, ..header.key }, header.sequence);
        index.apply_table(header, self.references.iter().copied(), counts);
    }
}

/// Between which members each run of lost blocks is.
fn ranges_of_lost(blocks: &[Option<Vec<Reference>>]) -> Vec<Between> {
    let mut lost = Vec::new();
    let mut left: VecDeque<_> = blocks.iter().collect();
    let mut before = Bound::Unbounded;
    while let Some(block) = left.pop_front() {
        if let Some(block) = block {
            before = block.last().map_or(before, |last| Bound::Excluded(last.digest));
            continue;
        }
        while left.front().is_some_and(|next| next.is_none()) {
            left.pop_front();
        }
        let next = left.front().and_then(|next| next.as_ref()?.first());
        lost.push((before, next.map_or(Bound::Unbounded, |first| Bound::Excluded(first.digest))));
    }
    lost
}
