//! What a device keeps of one fragment of an object: its versions, and what became of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::version::{Accepted, Ballot, Device, Outcome, Version};

/// Versions with a fragment that a slot keeps. One more is refused until something became of one of them.
pub const MAX_FRAGMENTS: usize = 4;
/// Versions that a slot remembers in all: those with a fragment, and those that it has promised or decided something
/// about.
pub const MAX_VERSIONS: usize = 64;

/// A version on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The devices that the proxy chose, in the order of the fragments.
    pub chosen: Arc<[Device]>,
    /// Whether the fragment is here: not if it never came, was discarded, or is damaged.
    pub fragment: bool,
    /// No lower ballot is listened to.
    pub promised: Ballot,
    /// The outcome that was accepted last.
    pub accepted: Option<Accepted>,
    /// The outcome for ever, once it is known.
    pub decided: Option<Outcome>,
}

impl Kept {
    fn new(chosen: Arc<[Device]>) -> Self {
        Self { chosen, fragment: false, promised: Ballot::PROXY, accepted: None, decided: None }
    }

    /// Whether its fragment may be read: somebody has seen it committed, or knows nothing better.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.fragment && self.decided != Some(Outcome::Abort)
    }

    /// Whether this device has it committed, by what it knows now.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        let accepted = self.accepted.map(|accepted| accepted.outcome);
        self.fragment && self.decided.or(accepted) == Some(Outcome::Commit)
    }

    /// Whether it is for certain.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.fragment && self.decided == Some(Outcome::Commit)
    }
}

/// What becomes durable in one piece. A device appends it, and answers afterwards; [`Slot::apply`] in the same order
/// makes the slot anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A fragment has come.
    Prepared {
        /// Of this version.
        version: Version,
        /// The devices that the proxy chose.
        chosen: Arc<[Device]>,
    },
    /// No lower ballot will be listened to.
    Promised {
        /// About this version.
        version: Version,
        /// The devices that the proxy chose, for a device that knows nothing of the version.
        chosen: Arc<[Device]>,
        /// The ballot.
        ballot: Ballot,
    },
    /// An outcome was accepted.
    Accepted {
        /// Of this version.
        version: Version,
        /// With the devices that the proxy chose.
        chosen: Arc<[Device]>,
        /// The outcome, and the ballot that asked for it.
        accepted: Accepted,
    },
    /// An outcome is known. The fragment of a version that was aborted is gone.
    Decided {
        /// Of this version.
        version: Version,
        /// What became of it.
        outcome: Outcome,
    },
    /// The fragment of a version that is for certain was made from others, or came from a handoff.
    Rebuilt {
        /// The version.
        version: Version,
        /// The devices that its proxy chose.
        chosen: Arc<[Device]>,
    },
    /// All older versions are dead, and this one is for certain, or a deletion.
    Settled(Version),
    /// The place shows this version settled, so that nothing up to it is needed of a handoff.
    Returned(Version),
    /// The fragment of this version is damaged.
    Damaged(Version),
}

impl Change {
    /// The version that it is about.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Prepared { version, .. }
            | Self::Promised { version, .. }
            | Self::Accepted { version, .. }
            | Self::Decided { version, .. }
            | Self::Rebuilt { version, .. }
            | Self::Settled(version)
            | Self::Returned(version)
            | Self::Damaged(version) => *version,
        }
    }
}

/// A version that a slot shows to other places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The newest version that is for certain, with a fragment here, or a deletion.
    pub version: Version,
    /// Whether older ones are dead everywhere.
    pub settled: bool,
    /// The devices that its proxy chose; none of a deletion.
    pub chosen: Arc<[Device]>,
}

/// What a device keeps of one fragment of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    kept: BTreeMap<Version, Kept>,
    floor: Option<Version>,
}

impl Slot {
    /// Take a change in.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Prepared { version, chosen } => self.at(*version, chosen).fragment = true,
            Change::Promised { version, chosen, ballot } => {
                let kept = self.at(*version, chosen);
                kept.promised = kept.promised.max(*ballot);
            }
            Change::Accepted { version, chosen, accepted } => {
                let kept = self.at(*version, chosen);
                kept.promised = kept.promised.max(accepted.ballot);
                kept.accepted = Some(*accepted);
            }
            Change::Decided { version, outcome } => {
                if let Some(kept) = self.kept.get_mut(version) {
                    kept.decided = Some(*outcome);
                    kept.fragment &= *outcome == Outcome::Commit;
                }
            }
            Change::Rebuilt { version, chosen } => {
                let kept = self.at(*version, chosen);
                (kept.fragment, kept.decided) = (true, Some(Outcome::Commit));
            }
            Change::Settled(version) => {
                if let Some(kept) = self.kept.get_mut(version) {
                    kept.decided = Some(Outcome::Commit);
                }
                self.kept.retain(|other, _| other >= version);
                self.floor = self.floor.max(Some(*version));
            }
            Change::Returned(version) => {
                self.kept.retain(|other, _| other > version);
                self.floor = self.floor.max(Some(*version));
            }
            Change::Damaged(version) => {
                if let Some(kept) = self.kept.get_mut(version) {
                    kept.fragment = false;
                }
            }
        }
    }

    fn at(&mut self, version: Version, chosen: &Arc<[Device]>) -> &mut Kept {
        self.kept.entry(version).or_insert_with(|| Kept::new(chosen.clone()))
    }

    /// The newest version that is known to be settled, or the deletion; everything older is dead.
    #[must_use]
    pub fn floor(&self) -> Option<Version> {
        self.floor
    }

    /// A version that is kept.
    #[must_use]
    pub fn get(&self, version: Version) -> Option<&Kept> {
        self.kept.get(&version)
    }

    /// All versions that are kept, the oldest one first.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = (Version, &Kept)> {
        self.kept.iter().map(|(version, kept)| (*version, kept))
    }

    /// Versions of which nobody here knows what became of them.
    pub fn undecided(&self) -> impl Iterator<Item = (Version, &Kept)> {
        self.kept().filter(|(_, kept)| kept.decided.is_none())
    }

    /// How many fragments are kept.
    #[must_use]
    pub fn fragments(&self) -> usize {
        self.kept.values().filter(|kept| kept.fragment).count()
    }

    /// The newest committed version below another one, or the deletion: what a reader is told.
    #[must_use]
    pub fn committed(&self, below: Option<Version>) -> Option<Version> {
        let wanted = |version: &Version| below.is_none_or(|below| *version < below);
        let newest = self.kept().rev().find(|(version, kept)| wanted(version) && kept.is_committed());
        newest.map(|(version, _)| version).max(self.deletion().filter(wanted))
    }

    /// What other places are shown: the newest version that is for certain, or the deletion. Set hashes are made of it.
    #[must_use]
    pub fn shown(&self) -> Option<Shown> {
        let newest = self.kept().rev().find(|(_, kept)| kept.is_sure()).map(|(version, kept)| Shown {
            version,
            settled: self.floor == Some(version),
            chosen: kept.chosen.clone(),
        });
        match self.deletion() {
            Some(version) if newest.as_ref().is_none_or(|newest| newest.version < version) => {
                Some(Shown { version, settled: true, chosen: Arc::new([]) })
            }
            _ => newest,
        }
    }

    fn deletion(&self) -> Option<Version> {
        self.floor.filter(|floor| floor.is_deletion())
    }
}
