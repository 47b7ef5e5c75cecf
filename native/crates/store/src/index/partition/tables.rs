//! References to packs: the tables of a partition, and the slots that point to them.
//!
//! A table is one record for many objects. It is live as long as a slot points to it, so the slots are counted, with
//! the bytes of their members: what is live of a pack, as far as this place goes.

use std::collections::HashMap;
use std::ops::Bound;

use swiftlet_fragments::packs::table::Reference;
use swiftlet_fragments::packs::{Digest, Pack};

use super::{Extra, Held, Partition, Record};
use crate::index::slot::{Member, Slot};
use crate::index::{Applied, units};
use crate::record::{Header, Kind, Place, pack_of};

/// A table with references that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldTable {
    /// The pack.
    pub pack: Pack,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// The record's number in the order of all records.
    pub sequence: u64,
    /// References that count.
    pub references: u32,
    /// Bytes of their members.
    pub bytes: u64,
}

/// The tables of a partition.
#[derive(Default)]
pub(super) struct Tables {
    held: HashMap<Place, HeldTable>,
    /// Those that have just lost their last reference: place and units.
    dead: Vec<(Place, u32)>,
}

/// What becomes of references that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// They replace copies of the same versions.
    Adopt,
    /// They are taken in place of versions that are missing.
    Learn,
    /// They replace those of the table at this place.
    Mend(Place),
}

/// Digests between two others, which are not among them.
pub(crate) type Between = (Bound<Digest>, Bound<Digest>);

impl Partition {
    /// The table at a place.
    #[must_use]
    pub(crate) fn table(&self, place: Place) -> Option<HeldTable> {
        self.tables.as_ref().and_then(|tables| tables.held.get(&place)).copied()
    }

    /// All tables that have references, in no order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (Place, HeldTable)> {
        self.tables.iter().flat_map(|tables| tables.held.iter().map(|(place, table)| (*place, *table)))
    }

    /// Know a table, to which slots may point from now on.
    pub(crate) fn know_table(&mut self, place: Place, pack: Pack, units: u32, sequence: u64) {
        let table = HeldTable { pack, units, sequence, references: 0, bytes: 0 };
        self.tables.get_or_insert_default().held.entry(place).or_insert(table);
    }

    /// A slot is there from now on.
    pub(super) fn count_reference(&mut self, slot: &Slot) {
        let Some(member) = slot.member() else { return };
        let table = self.tables.as_mut().and_then(|tables| tables.held.get_mut(&slot.place));
        debug_assert!(table.is_some(), "a slot points to a table that is not known");
        if let Some(table) = table {
            table.references += 1;
            table.bytes += u64::from(member.length);
        }
    }

    /// A slot is there no longer.
    pub(super) fn discount_reference(&mut self, slot: &Slot) {
        let Some(member) = slot.member() else { return };
        let Some(tables) = &mut self.tables else { return };
        let Some(table) = tables.held.get_mut(&slot.place) else { return };
        table.references -= 1;
        table.bytes -= u64::from(member.length);
        if table.references == 0 {
            tables.dead.push((slot.place, table.units));
            tables.held.remove(&slot.place);
        }
    }

    /// Tables that have lost their last reference since the last call.
    pub(crate) fn take_dead_tables(&mut self) -> Vec<(Place, u32)> {
        let dead = self.tables.as_mut().map(|tables| std::mem::take(&mut tables.dead)).unwrap_or_default();
        if self.tables.as_ref().is_some_and(|tables| tables.held.is_empty()) {
            self.tables = None;
        }
        dead
    }

    /// Whether the table at a place has references; one that has none is not known any more.
    fn is_used(&mut self, place: Place) -> bool {
        let used = self.table(place).is_some_and(|table| table.references > 0);
        if let Some(tables) = self.tables.as_mut().filter(|_| !used) {
            tables.held.remove(&place);
        }
        used
    }

    /// Whether a reference counts against what is held: it is of the newest version, and the pack is the latest one. Of
    /// two tables of a pack that have the same reference, the one that was written last counts, and of copies of a table
    /// the one that was read last.
    fn wins(&self, reference: &Reference, pack: Pack, sequence: u64) -> bool {
        let Some(held) = self.get(&reference.digest) else { return true };
        if held.slot.timestamp != reference.timestamp {
            return held.slot.timestamp < reference.timestamp;
        }
        match held.slot.kind {
            Kind::Tombstone => false,
            Kind::Table => {
                self.table(held.slot.place).is_none_or(|table| (table.pack, table.sequence) <= (pack, sequence))
            }
            _ => true,
        }
    }

    /// Merge the record of a table: those of its references, with the numbers of their blocks, that are not forgotten.
    pub(crate) fn merge_table(
        &mut self,
        header: &Header,
        references: impl Iterator<Item = (usize, Reference)>,
    ) -> Applied {
        let mut applied = Applied::default();
        let pack = pack_of(header);
        self.know_table(header.place, pack, units(header), header.sequence);
        for (block, reference) in references {
            let digest = &reference.digest;
            if self.has_fragment(digest) || !self.wins(&reference, pack, header.sequence) {
                continue;
            }
            let before = self.get(digest);
            let post = before.and_then(|held| held.extra.post).filter(|post| post.timestamp > reference.timestamp);
            let member = Member { block, length: reference.length };
            let record = Record {
                kind: Kind::Table,
                timestamp: reference.timestamp,
                place: header.place,
                units: member.as_units(),
                extra: Extra { post, ..Extra::default() },
            };
            self.set(digest, Some(&record));
            if let Some(held) = before {
                applied.freed.extend(held.freed(post.is_none()));
                applied.unlink.extend(held.large());
            }
        }
        applied.held = self.is_used(header.place);
        applied
    }

    /// Tables were copied with these references to where the new header says: those that still point to an old one point
    /// to the copy.
    pub(crate) fn relocate_table(
        &mut self,
        olds: &[Place],
        new: &Header,
        references: &[(usize, Reference)],
    ) -> Applied {
        self.know_table(new.place, pack_of(new), units(new), new.sequence);
        for (block, reference) in references {
            let pointing = |held: &Held| held.slot.kind == Kind::Table && olds.contains(&held.slot.place);
            let Some(held) = self.get(&reference.digest).filter(pointing) else { continue };
            let member = Member { block: *block, length: reference.length };
            let record = Record {
                kind: Kind::Table,
                timestamp: held.slot.timestamp,
                place: new.place,
                units: member.as_units(),
                extra: held.extra,
            };
            self.set(&reference.digest, Some(&record));
        }
        Applied { held: self.is_used(new.place), ..Applied::default() }
    }

    /// Whether a reference that is offered would be taken.
    #[must_use]
    pub(crate) fn takes(&self, reference: &Reference, pack: Pack, taking: Taking) -> bool {
        if self.has_fragment(&reference.digest) {
            return false;
        }
        let Some(Held { slot, extra, .. }) = self.get(&reference.digest) else { return taking == Taking::Learn };
        let same = slot.timestamp == reference.timestamp;
        match taking {
            Taking::Learn => slot.timestamp < reference.timestamp,
            Taking::Mend(place) => same && slot.kind == Kind::Table && slot.place == place,
            Taking::Adopt => match slot.kind {
                Kind::Table => same && self.table(slot.place).is_some_and(|table| table.pack < pack),
                // A reference has no room for when its version expires.
                Kind::Put | Kind::Large => same && extra.delete_at == 0,
                _ => false,
            },
        }
    }

    /// The objects with references in the table at a place, and the block of each.
    #[must_use]
    pub(crate) fn pointing_to(&self, place: Place) -> Vec<(Digest, usize)> {
        let pointing = self.iter().filter(|held| held.slot.place == place);
        pointing.filter_map(|held| Some((held.slot.digest(), held.slot.member()?.block))).collect()
    }

    /// Forget all objects of which the digests are in a range.
    pub(crate) fn forget_between(&mut self, range: &Between) -> Applied {
        let mut digests: Vec<Digest> = self.iter().map(|held| held.slot.digest()).collect();
        digests.retain(|digest| is_between(digest, range) && !self.has_fragment(digest));
        let mut applied = Applied::default();
        for digest in &digests {
            if let Some(held) = self.set(digest, None) {
                applied.freed.extend(held.freed(true));
                applied.unlink.extend(held.large());
            }
        }
        applied
    }

    /// Forget all objects with references in the table at a place, of which nothing can be read.
    pub(crate) fn drop_table(&mut self, place: Place) -> bool {
        let pointing = self.pointing_to(place);
        for (digest, _) in &pointing {
            self.set(digest, None);
        }
        !pointing.is_empty()
    }
}

/// Whether a digest is in a range.
#[must_use]
pub(crate) fn is_between(digest: &Digest, range: &Between) -> bool {
    std::ops::RangeBounds::contains(range, digest)
}

#[cfg(test)]
mod tests;
