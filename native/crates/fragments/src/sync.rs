//! What a place does about what another one shows, and a handoff about what the place shows.
//!
//! Only versions that are for certain are shown, so that nothing spreads that may be aborted yet.

use std::sync::Arc;

use crate::slot::{Change, Shown, Slot};
use crate::terms::Terms;
use crate::version::{Device, Outcome, Version};

/// What a place has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing: the other one has nothing that is missing here.
    Nothing,
    /// Nothing: both show this version.
    Equal(Version),
    /// Make this durable; no bytes are moved.
    Append(Change),
    /// Make the fragment from k others, or fetch it from a handoff, and append it with the outcome.
    Rebuild {
        /// The version.
        version: Version,
        /// The devices that its proxy chose, which may have fragments of it still.
        chosen: Arc<[Device]>,
    },
}

/// What a place has to do about what another place of the same partition shows.
#[must_use]
pub fn compare(slot: &Slot, theirs: Option<&Shown>) -> Todo {
    let Some(theirs) = theirs else { return Todo::Nothing };
    let version = theirs.version;
    if slot.floor() > Some(version) {
        return Todo::Nothing;
    }
    if version.is_deletion() {
        let known = slot.floor() == Some(version);
        return if known { Todo::Equal(version) } else { Todo::Append(Change::Settled(version)) };
    }
    match slot.get(version) {
        Some(kept) if kept.is_sure() && theirs.settled && slot.floor() < Some(version) => {
            Todo::Append(Change::Settled(version))
        }
        Some(kept) if kept.is_sure() => Todo::Equal(version),
        // The bytes are here already: they are what the other one is sure of.
        Some(kept) if kept.is_readable() => Todo::Append(Change::Decided { version, outcome: Outcome::Commit }),
        _ if slot.shown().is_some_and(|shown| shown.version > version) => Todo::Nothing,
        _ => Todo::Rebuild { version, chosen: theirs.chosen.clone() },
    }
}

/// Whether older versions are dead, when the version was shown by so many other places in one round under one ring.
#[must_use]
pub fn is_settled(terms: Terms, equal: usize) -> bool {
    equal + 1 >= terms.quorum()
}

/// What a handoff may append when the device at the place of its slot shows this: the place has its newest version
/// settled, and of newer ones here it is known that they never happened.
#[must_use]
pub fn returned(slot: &Slot, shown: Option<&Shown>) -> Option<Change> {
    let version = shown.filter(|shown| shown.settled)?.version;
    let needed = slot.kept().any(|(other, kept)| other > version && kept.decided != Some(Outcome::Abort));
    let held = slot.kept().any(|(other, _)| other <= version);
    (held && !needed).then_some(Change::Returned(version))
}
