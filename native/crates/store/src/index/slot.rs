//! What the index holds of nearly every object, in as few bytes as possible.

use crate::model::{EntryKind, Suffix, Timestamp};
use crate::record::{ALIGN, Kind, Place};

/// What is held of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) order: [u64; 2],
    /// Of data or tombstone.
    pub timestamp: Timestamp,
    /// Where its record is.
    pub place: Place,
    /// The record's size in units of `ALIGN`.
    pub units: u32,
    /// Put, Large, Tombstone, or the kind of the fragment that is shown.
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
}

/// A number from its upper half and its lower half.
pub(super) fn joined(halves: [u64; 2]) -> u128 {
    (u128::from(halves[0]) << 64) | u128::from(halves[1])
}
