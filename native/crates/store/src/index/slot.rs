//! What the index holds of nearly every object, in as few bytes as possible.

use swiftlet_fragments::packs::table::{BLOCK, MAX_MEMBER_BYTES, MAX_MEMBERS};

use crate::model::{EntryKind, Suffix, Timestamp};
use crate::record::{ALIGN, Kind, Place};

/// What is held of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) order: [u64; 2],
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Where its record is; of a reference, where the table is.
    pub place: Place,
    /// The record's size in units of `ALIGN`; of a reference a [`Member`].
    pub units: u32,
    /// Put, Large, Tombstone, Table for a reference, or the kind of the fragment that is shown.
    pub kind: Kind,
    pub(super) extra: bool,
}

impl Slot {
    /// An empty slot.
    pub(super) const NONE: Self =
        Self { order: [0; 2], timestamp: 0, place: Place(0), units: 0, kind: Kind::Put, extra: false };

    /// The name's digest.
    #[must_use]
    pub(crate) fn digest(&self) -> [u8; 16] {
        self.order().rotate_left(12).to_be_bytes()
    }

    pub(super) fn order(&self) -> u128 {
        joined(self.order)
    }

    pub(super) fn suffix(&self) -> Suffix {
        (self.order[0] >> 52) as Suffix
    }

    /// None for a fragment, which has no entry.
    pub(super) fn entry_kind(&self) -> Option<EntryKind> {
        match self.kind {
            Kind::Tombstone => Some(EntryKind::Tombstone),
            kind if kind.is_fragment() => None,
            _ => Some(EntryKind::Data),
        }
    }

    /// Bytes of the record.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.units) * ALIGN
    }

    /// The object's own record, with its size in units; none for a reference.
    #[must_use]
    pub(crate) fn own_record(&self) -> Option<(Place, u32)> {
        (self.kind != Kind::Table).then_some((self.place, self.units))
    }

    /// What a reference says of a member of a pack; none for anything else.
    #[must_use]
    pub(crate) fn member(&self) -> Option<Member> {
        let (block, length) = ((self.units >> LENGTH_BITS) as usize, self.units & MAX_MEMBER_BYTES);
        (self.kind == Kind::Table).then_some(Member { block, length })
    }
}

/// A number for the block above one for the length.
const LENGTH_BITS: u32 = MAX_MEMBER_BYTES.count_ones();
const _: () = assert!(MAX_MEMBERS / BLOCK <= 1 << (u32::BITS - LENGTH_BITS));

/// A reference to a member of a pack, beside the place of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The block of the table that has it.
    pub block: usize,
    /// Bytes of the member in the pack.
    pub length: u32,
}

impl Member {
    /// Both in the place of a record's size.
    #[must_use]
    pub(super) fn as_units(self) -> u32 {
        (self.block as u32) << LENGTH_BITS | self.length
    }
}

/// A number from its upper half and its lower half.
pub(super) fn joined(halves: [u64; 2]) -> u128 {
    (u128::from(halves[0]) << 64) | u128::from(halves[1])
}
