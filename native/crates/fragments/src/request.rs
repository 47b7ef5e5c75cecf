//! What a device answers about a slot, and what has to be durable before it does.

use std::sync::Arc;

use crate::slot::{Change, MAX_FRAGMENTS, MAX_VERSIONS, Shown, Slot};
use crate::sync::{self, Todo};
use crate::version::{Accepted, Ballot, Device, Outcome, Version};

/// What a device is asked about one of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// By the proxy, with the fragment: keep it.
    Prepare {
        /// The version.
        version: Version,
        /// The devices that the proxy chose.
        chosen: Arc<[Device]>,
    },
    /// By the proxy, when q devices are prepared: commit.
    Commit(Version),
    /// By the proxy, when q devices are committed: older versions are dead.
    Settle(Version),
    /// By the proxy: there is nothing at this object from this timestamp back.
    Delete {
        /// The deletion's timestamp.
        timestamp: u64,
    },
    /// By a device, about a version whose proxy is gone: listen to no lower ballot.
    Promise {
        /// The version.
        version: Version,
        /// The devices that the proxy chose.
        chosen: Arc<[Device]>,
        /// The ballot.
        ballot: Ballot,
    },
    /// By the same device, with enough promises: accept this outcome.
    Accept {
        /// The version.
        version: Version,
        /// The devices that the proxy chose.
        chosen: Arc<[Device]>,
        /// The outcome, and the ballot.
        accepted: Accepted,
    },
    /// By the proxy that has never sent a commit, or a device that knows what became of the version.
    Decide {
        /// The version.
        version: Version,
        /// What became of it.
        outcome: Outcome,
    },
    /// By the device itself with a fragment that it has made, or by a handoff with the one it had in custody.
    Keep {
        /// The version, which is for certain.
        version: Version,
        /// The devices that its proxy chose.
        chosen: Arc<[Device]>,
    },
    /// By another place: what is shown here.
    Show,
    /// By another place, which shows this: make durable what follows from it without bytes.
    Learn(Shown),
    /// By the device at the place of a handoff's fragment, which shows this: it needs no more of it.
    HandBack(Shown),
    /// By a reader: the newest committed version, below another one if that is given.
    Newest {
        /// Only older versions.
        below: Option<Version>,
    },
    /// By a reader or a place that rebuilds its fragment: the fragment of this version.
    Fetch(Version),
}

/// What a device answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is as was asked for, and durable.
    Done,
    /// Nothing is known of the version, or its fragment is not here.
    Missing,
    /// A version at or above this one is settled, or the object deleted there, so the request no longer matters.
    Superseded(Version),
    /// A higher ballot was promised.
    Outbid(Ballot),
    /// This became of the version.
    Decided(Outcome),
    /// There is no room for another version of this object.
    Busy,
    /// No lower ballot will be listened to.
    Promised {
        /// What was accepted before.
        accepted: Option<Accepted>,
        /// Whether the fragment is here.
        fragment: bool,
    },
    /// What is shown.
    Showing(Option<Shown>),
    /// The newest committed version that was asked for, and the newest one known to be settled.
    Newest {
        /// The newest committed version.
        committed: Option<Version>,
        /// The newest one that is known to be settled, whether its fragment is here or not.
        floor: Option<Version>,
    },
    /// The fragment, whose bytes follow, and the devices that the proxy chose.
    Fragment(Arc<[Device]>),
}

/// What a device answers to a request, and what has to be durable before.
#[must_use]
pub fn answer(slot: &Slot, request: &Request) -> (Option<Change>, Answer) {
    match request {
        Request::Prepare { version, chosen } => prepare(slot, *version, chosen),
        Request::Commit(version) => commit(slot, *version),
        Request::Settle(version) => settle(slot, *version),
        Request::Delete { timestamp } => delete(slot, Version::deletion(*timestamp)),
        Request::Promise { version, chosen, ballot } => promise(slot, *version, chosen, *ballot),
        Request::Accept { version, chosen, accepted } => accept(slot, *version, chosen, *accepted),
        Request::Decide { version, outcome } => decide(slot, *version, *outcome),
        Request::Keep { version, chosen } => keep(slot, *version, chosen),
        Request::Show => (None, Answer::Showing(slot.shown())),
        Request::Learn(theirs) => learn(slot, theirs),
        Request::HandBack(theirs) => hand_back(slot, theirs),
        Request::Newest { below } => (None, Answer::Newest { committed: slot.committed(*below), floor: slot.floor() }),
        Request::Fetch(version) => (None, fetch(slot, *version)),
    }
}

/// Where a version stands to the newest settled one, if it isn't newer: requests about it have their answer.
fn past(slot: &Slot, version: Version) -> Option<Answer> {
    let floor = slot.floor().filter(|floor| *floor >= version)?;
    Some(if floor == version { Answer::Decided(Outcome::Commit) } else { Answer::Superseded(floor) })
}

fn prepare(slot: &Slot, version: Version, chosen: &Arc<[Device]>) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    match slot.get(version) {
        Some(kept) if kept.fragment => (None, Answer::Done),
        // What was promised or decided without the fragment would not be true with it.
        Some(kept) => (None, kept.decided.map_or(Answer::Outbid(kept.promised), Answer::Decided)),
        None if slot.fragments() >= MAX_FRAGMENTS || is_full(slot) => (None, Answer::Busy),
        None => (Some(Change::Prepared { version, chosen: chosen.clone() }), Answer::Done),
    }
}

fn is_full(slot: &Slot) -> bool {
    slot.kept().count() >= MAX_VERSIONS
}

fn commit(slot: &Slot, version: Version) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    let Some(kept) = slot.get(version).filter(|kept| kept.fragment || kept.decided.is_some()) else {
        return (None, Answer::Missing);
    };
    if let Some(outcome) = kept.decided {
        return (None, Answer::Decided(outcome));
    }
    match kept.accepted {
        Some(Accepted { ballot: Ballot::PROXY, .. }) => (None, Answer::Done),
        _ if kept.promised > Ballot::PROXY => (None, Answer::Outbid(kept.promised)),
        _ => {
            let accepted = Accepted { ballot: Ballot::PROXY, outcome: Outcome::Commit };
            (Some(Change::Accepted { version, chosen: kept.chosen.clone(), accepted }), Answer::Done)
        }
    }
}

fn settle(slot: &Slot, version: Version) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    match slot.get(version) {
        Some(kept) if kept.decided == Some(Outcome::Abort) => (None, Answer::Decided(Outcome::Abort)),
        Some(kept) if kept.fragment => (Some(Change::Settled(version)), Answer::Done),
        // Without a fragment there is nothing to show in the place of older versions.
        Some(_) => decide(slot, version, Outcome::Commit),
        None => (None, Answer::Missing),
    }
}

fn delete(slot: &Slot, version: Version) -> (Option<Change>, Answer) {
    match slot.floor() {
        Some(floor) if floor >= version => (None, Answer::Done),
        _ => (Some(Change::Settled(version)), Answer::Done),
    }
}

fn promise(slot: &Slot, version: Version, chosen: &Arc<[Device]>, ballot: Ballot) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    let change = Some(Change::Promised { version, chosen: chosen.clone(), ballot });
    let Some(kept) = slot.get(version) else {
        let fresh = Answer::Promised { accepted: None, fragment: false };
        return if is_full(slot) { (None, Answer::Busy) } else { (change, fresh) };
    };
    if let Some(outcome) = kept.decided {
        return (None, Answer::Decided(outcome));
    }
    let promised = Answer::Promised { accepted: kept.accepted, fragment: kept.fragment };
    match kept.promised.cmp(&ballot) {
        std::cmp::Ordering::Less => (change, promised),
        std::cmp::Ordering::Equal => (None, promised),
        std::cmp::Ordering::Greater => (None, Answer::Outbid(kept.promised)),
    }
}

fn accept(slot: &Slot, version: Version, chosen: &Arc<[Device]>, accepted: Accepted) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    match slot.get(version) {
        None if is_full(slot) => return (None, Answer::Busy),
        Some(kept) => {
            if let Some(outcome) = kept.decided {
                return (None, Answer::Decided(outcome));
            }
            if kept.promised > accepted.ballot {
                return (None, Answer::Outbid(kept.promised));
            }
            if kept.accepted == Some(accepted) {
                return (None, Answer::Done);
            }
        }
        None => {}
    }
    (Some(Change::Accepted { version, chosen: chosen.clone(), accepted }), Answer::Done)
}

fn decide(slot: &Slot, version: Version, outcome: Outcome) -> (Option<Change>, Answer) {
    if let Some(answer) = past(slot, version) {
        return (None, answer);
    }
    match slot.get(version).map(|kept| kept.decided) {
        None => (None, Answer::Missing),
        Some(Some(decided)) => (None, Answer::Decided(decided)),
        Some(None) => (Some(Change::Decided { version, outcome }), Answer::Done),
    }
}

fn keep(slot: &Slot, version: Version, chosen: &Arc<[Device]>) -> (Option<Change>, Answer) {
    let kept = slot.get(version);
    if kept.is_some_and(|kept| kept.is_sure()) {
        return (None, Answer::Done);
    }
    // The settled version itself may have lost its fragment here, or may never have had one.
    if let Some(floor) = slot.floor().filter(|floor| *floor > version) {
        return (None, Answer::Superseded(floor));
    }
    match kept.and_then(|kept| kept.decided) {
        Some(Outcome::Abort) => (None, Answer::Decided(Outcome::Abort)),
        _ if kept.is_none() && is_full(slot) => (None, Answer::Busy),
        _ => (Some(Change::Rebuilt { version, chosen: chosen.clone() }), Answer::Done),
    }
}

/// *Missing* asks for the fragment; *decided* is what both show.
fn learn(slot: &Slot, theirs: &Shown) -> (Option<Change>, Answer) {
    match sync::compare(slot, Some(theirs)) {
        Todo::Append(change) => (Some(change), Answer::Done),
        Todo::Equal(_) => (None, Answer::Decided(Outcome::Commit)),
        Todo::Rebuild { .. } => (None, Answer::Missing),
        Todo::Nothing => {
            let newest = slot.floor().max(slot.shown().map(|shown| shown.version));
            (None, newest.map_or(Answer::Missing, Answer::Superseded))
        }
    }
}

/// *Missing*: nothing that is held here may be dropped because of it.
fn hand_back(slot: &Slot, theirs: &Shown) -> (Option<Change>, Answer) {
    match sync::returned(slot, Some(theirs)) {
        Some(change) => (Some(change), Answer::Done),
        None => (None, Answer::Missing),
    }
}

fn fetch(slot: &Slot, version: Version) -> Answer {
    match slot.get(version) {
        Some(kept) if kept.is_readable() => Answer::Fragment(kept.chosen.clone()),
        Some(kept) if kept.decided == Some(Outcome::Abort) => Answer::Decided(Outcome::Abort),
        _ => match slot.floor().filter(|floor| *floor > version) {
            Some(floor) => Answer::Superseded(floor),
            None => Answer::Missing,
        },
    }
}
