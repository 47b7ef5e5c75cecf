//! How many devices it takes.

use swiftlet_erasure::Scheme;

/// The numbers that a scheme asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Data fragments: as many are enough to read (k).
    pub(crate) data: usize,
    /// All fragments, and places (k+m).
    pub(crate) places: usize,
    /// Devices that a write needs in each of its steps (q).
    pub(crate) quorum: usize,
}

impl Terms {
    /// The numbers of a scheme. A quorum is k+1 devices at least, so that one more may be lost right after an
    /// acknowledgement, and more than half, so that two of them have a device in common.
    #[must_use]
    pub fn of(scheme: Scheme) -> Self {
        let (data, places) = (scheme.data(), scheme.cells());
        Self { data, places, quorum: (data + 1).max(places / 2 + 1) }
    }

    /// Fragments that are enough to read (k).
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// All fragments of an object, one for each place (k+m).
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// Devices that have to prepare, and to commit, before a client is told 201 (q).
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum
    }

    /// Devices that decide about a write whose proxy is gone: more than half, so that two decisions, and a decision
    /// and a quorum of a proxy, have a device in common.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.places / 2 + 1
    }

    /// So many devices that have not committed prove that q have not, and never will have when they promised it.
    #[must_use]
    pub fn refusals(&self) -> usize {
        self.places + 1 - self.quorum
    }

    /// So many places without an object prove that fewer than k have it, so that it was never acknowledged, or more
    /// devices were lost than may be.
    #[must_use]
    pub fn absences(&self) -> usize {
        self.places + 1 - self.data
    }
}
