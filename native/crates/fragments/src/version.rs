//! What tells one write from another, one device from its successor, and one attempt to decide from the next.

/// A write of an object. Later ones supersede earlier ones, by timestamp; of two with one timestamp, which clocks that
/// were set back can make, the higher generation does, so that their bytes are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The object's timestamp, as everywhere.
    pub timestamp: u64,
    /// A random number that the proxy draws for each attempt to write; the highest one of a deletion.
    pub generation: u64,
}

impl Version {
    /// A deletion, which supersedes every generation at its timestamp.
    #[must_use]
    pub fn deletion(timestamp: u64) -> Self {
        Self { timestamp, generation: u64::MAX }
    }

    /// Whether it is a deletion.
    #[must_use]
    pub fn is_deletion(self) -> bool {
        self.generation == u64::MAX
    }
}

/// A device that a proxy chose for a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Its number in the ring.
    pub number: u32,
    /// Drawn when it was formatted: one that replaces it, empty, has another one and can't answer for it.
    pub incarnation: u64,
}

/// An attempt to decide about a write. The lowest one is the proxy's own, by its commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// One more than in all ballots that whoever makes it has heard of.
    pub round: u32,
    /// Random, so that no two are equal, not even of one device before and after a restart.
    pub nonce: u64,
}

impl Ballot {
    /// The ballot of the proxy.
    pub const PROXY: Self = Self { round: 0, nonce: 0 };
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It counts.
    Commit,
    /// It never happened.
    Abort,
}

/// What a device has accepted as the outcome, until a higher ballot asks for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The ballot that asked for it.
    pub ballot: Ballot,
    /// What it asked for.
    pub outcome: Outcome,
}
