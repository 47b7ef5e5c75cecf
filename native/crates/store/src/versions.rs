//! What the index holds of the versions of one fragment: what became of each, and where the records are that say so.
//!
//! Records merge in any order and any number of times, as everywhere in the index; what they come to is the
//! [`Slot`](swiftlet_fragments::slot::Slot) that the changes make in their order. Nearly all of it is a maximum: of
//! settled versions, of ballots, of what was decided for ever. Only whether a fragment that was returned or found
//! damaged has come again is told by sequence numbers. A record that no maximum needs any more is dead, and compaction
//! leaves it out.
//!
//! A POST is of no version: it counts for each that is older, as the metadata of whole objects do. So what was posted
//! on top of a version that turns out to be aborted counts for the one before it.

mod packs;

pub(crate) use self::packs::OfPack;

use std::sync::Arc;

use swiftlet_fragments::slot::{Change, Slot};
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version};

use crate::model::Timestamp;
use crate::post::Post;
use crate::record::{ALIGN, Header, Kind, Place, State, is_promise};

/// How much a timestamp grows in a second.
const TIMESTAMPS_PER_S: u64 = 100_000 << 14;

/// Where a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its place.
    pub place: Place,
    /// Its size in units of `ALIGN`.
    pub units: u32,
    /// When it was written, in seconds since 1970; 0 if it is no decision.
    pub at_s: u32,
    /// Its number in the order of all records.
    pub sequence: u64,
}

impl Spot {
    /// The place of a record.
    #[must_use]
    pub(crate) fn of(header: &Header) -> Self {
        let units = (header.record_len() / ALIGN) as u32;
        let at_s = if header.kind == Kind::Decision { header.delete_at as u32 } else { 0 };
        Self { place: header.place, units, at_s, sequence: header.sequence }
    }
}

/// A fragment's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// Where it is.
    pub spot: Spot,
    /// Number of the file with the data, 0 for none.
    pub large: u64,
    /// When the object expires, in seconds since 1970, 0 never.
    pub delete_at: u64,
    /// What the record says of the version.
    pub state: State,
}

/// What decisions say of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Fragments that came before this record are damaged.
    pub damaged: Option<((), Spot)>,
    /// No lower ballot is listened to.
    pub promised: Option<(Ballot, Spot)>,
    /// The outcome that was accepted last.
    pub accepted: Option<(Accepted, Spot)>,
    /// The outcome for ever.
    pub decided: Option<(Outcome, Spot)>,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Which one.
    pub version: Version,
    /// The devices that the proxy chose, in the order of the fragments; none if no record says so any more.
    pub chosen: Arc<[Device]>,
    /// The fragment, if it is here.
    pub bytes: Option<Bytes>,
    /// None once a settled version needs nothing else.
    pub said: Option<Box<Said>>,
}

/// The newest settled version, or the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Which one.
    pub version: Version,
    /// The record that says so; none if the fragment's own does.
    pub spot: Option<Spot>,
    /// Fragments of this version with lower sequence numbers were handed back, or damaged.
    pub returned: u64,
}

/// All that is held of one fragment of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    /// Everything older is dead.
    pub floor: Option<Floor>,
    /// By version.
    pub kept: Vec<Kept>,
    /// The newest POST, newer than the floor.
    pub post: Option<Post>,
}

/// Replace a record by one that says at least as much: of equal ones the later one, and of copies the one read last.
fn put<T: Copy, K: Ord>(held: &mut Option<(T, Spot)>, new: (T, Spot), key: impl Fn(T) -> K) {
    let order = |(said, spot): (T, Spot)| (key(said), spot.sequence);
    if held.is_none_or(|old| order(old) <= order(new)) {
        *held = Some(new);
    }
}

impl Kept {
    fn said(&mut self) -> &mut Said {
        self.said.get_or_insert_default()
    }

    /// The outcome, if it is known; the floor's is in no record of its own.
    #[must_use]
    pub(crate) fn decided(&self) -> Option<Outcome> {
        let certain = self.bytes.is_some_and(|bytes| bytes.state >= State::Certain);
        let said = self.said.as_ref().and_then(|said| said.decided).map(|decided| decided.0);
        said.or(certain.then_some(Outcome::Commit))
    }

    /// Forget what is known better by now.
    fn normalize(&mut self) {
        let decided = self.decided();
        let Some(said) = &mut self.said else { return };
        if decided == Some(Outcome::Abort)
            || self.bytes.map(|bytes| bytes.spot.sequence) < said.damaged.map(|damaged| damaged.1.sequence)
        {
            self.bytes = None;
        } else if self.bytes.is_some() {
            said.damaged = None;
        }
        if decided.is_some() {
            (said.promised, said.accepted) = (None, None);
        }
        if said.accepted.map(|(accepted, _)| accepted.ballot) >= said.promised.map(|promised| promised.0) {
            said.promised = None;
        }
        if **said == Said::default() {
            self.said = None;
        }
    }
}

fn sequence(spot: Spot) -> u64 {
    spot.sequence
}

impl Versions {
    /// A deletion and nothing else.
    #[must_use]
    pub(crate) fn of_deletion(timestamp: u64, spot: Spot) -> Self {
        let floor = Floor { version: Version::deletion(timestamp), spot: Some(spot), returned: 0 };
        Self { floor: Some(floor), kept: Vec::new(), post: None }
    }

    /// The deletion, if there is nothing else.
    #[must_use]
    pub(crate) fn only_deletion(&self) -> Option<Floor> {
        self.floor.filter(|floor| self.kept.is_empty() && self.post.is_none() && floor.version.is_deletion())
    }

    /// Whether all that is held is memory of what became of versions, and a POST, of which the last one is older than
    /// this.
    #[must_use]
    pub(crate) fn is_memory_before(&self, before: Timestamp) -> bool {
        let old = |spot: Spot| u64::from(spot.at_s) < before / TIMESTAMPS_PER_S;
        let deleted = self.floor.is_some_and(|floor| floor.version.is_deletion() && floor.version.timestamp >= before);
        let posted = self.post.is_some_and(|post| post.timestamp >= before);
        !deleted && !posted && self.kept.iter().all(|kept| kept.bytes.is_none()) && self.spots().all(old)
    }

    /// Whether merging could have led to this, and more than a deletion is held.
    #[must_use]
    pub(crate) fn is_sound(&self) -> bool {
        let mut normal = self.clone();
        normal.normalize();
        let ascends = self.kept.is_sorted_by(|one, next| one.version < next.version);
        ascends && normal == *self && !self.is_empty() && self.only_deletion().is_none()
    }

    /// Whether nothing is held.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.floor.is_none() && self.kept.is_empty() && self.post.is_none()
    }

    /// A version that is kept.
    #[must_use]
    pub(crate) fn get(&self, version: Version) -> Option<&Kept> {
        let at = self.kept.binary_search_by_key(&version, |kept| kept.version).ok()?;
        Some(&self.kept[at])
    }

    /// The outcome of a version that is kept, if it is known.
    #[must_use]
    pub(crate) fn decided(&self, kept: &Kept) -> Option<Outcome> {
        let settled = self.floor.is_some_and(|floor| floor.version == kept.version);
        if settled { Some(Outcome::Commit) } else { kept.decided() }
    }

    fn at(&mut self, version: Version, chosen: &Arc<[Device]>) -> &mut Kept {
        let at = match self.kept.binary_search_by_key(&version, |kept| kept.version) {
            Ok(at) => at,
            Err(at) => {
                self.kept.insert(at, Kept { version, chosen: Arc::new([]), bytes: None, said: None });
                at
            }
        };
        let kept = &mut self.kept[at];
        if kept.chosen.is_empty() {
            kept.chosen = Arc::clone(chosen);
        }
        kept
    }

    /// Take a record in: the change that it makes, and its header.
    pub(crate) fn merge(&mut self, change: &Change, header: &Header) {
        let (version, spot) = (change.version(), Spot::of(header));
        let none: Arc<[Device]> = Arc::new([]);
        match change {
            Change::Settled(_) => self.raise(Floor { version, spot: Some(spot), returned: 0 }),
            Change::Returned(_) => self.raise(Floor { version, spot: Some(spot), returned: spot.sequence }),
            _ if self.floor.is_some_and(|floor| floor.version > version) => return,
            Change::Prepared { chosen, .. } | Change::Rebuilt { chosen, .. } => {
                let state = State::of(header.says).unwrap_or_default();
                let bytes = Bytes { spot, large: header.large, delete_at: header.delete_at, state };
                let kept = self.at(version, chosen);
                let key = |bytes: &Bytes| (bytes.spot.sequence, bytes.state);
                if kept.bytes.is_none_or(|held| key(&held) <= key(&bytes)) {
                    kept.bytes = Some(bytes);
                }
                if state == State::Settled {
                    self.raise(Floor { version, spot: None, returned: 0 });
                }
            }
            Change::Promised { chosen, ballot, .. } => {
                put(&mut self.at(version, chosen).said().promised, (*ballot, spot), |ballot| ballot);
            }
            Change::Accepted { chosen, accepted, .. } => {
                put(&mut self.at(version, chosen).said().accepted, (*accepted, spot), |accepted| accepted.ballot);
            }
            Change::Decided { outcome, .. } => {
                put(&mut self.at(version, &none).said().decided, (*outcome, spot), |_| ());
            }
            Change::Damaged(_) => put(&mut self.at(version, &none).said().damaged, ((), spot), |()| ()),
        }
        self.normalize();
    }

    /// Take the record of a POST in; returns whether it is held now.
    pub(crate) fn merge_post(&mut self, header: &Header) -> bool {
        let order = |post: &Post| (post.timestamp, post.content_type_timestamp);
        let post = Post {
            timestamp: header.timestamp,
            content_type_timestamp: header.content_type_timestamp,
            place: header.place,
            units: (header.record_len() / ALIGN) as u32,
            delete_at: header.delete_at,
        };
        if self.post.is_none_or(|held| order(&held) <= order(&post)) {
            self.post = Some(post);
        }
        self.normalize();
        self.post.is_some_and(|held| held.place == post.place)
    }

    /// The POST if it counts for a version of this time.
    #[must_use]
    pub(crate) fn post_on(&self, timestamp: Timestamp) -> Option<Post> {
        self.post.filter(|post| post.timestamp > timestamp)
    }

    fn raise(&mut self, new: Floor) {
        match &mut self.floor {
            Some(floor) if floor.version > new.version => {}
            Some(floor) if floor.version == new.version => {
                if new.spot.map(sequence) >= floor.spot.map(sequence) {
                    floor.spot = new.spot;
                }
                floor.returned = floor.returned.max(new.returned);
            }
            floor => *floor = Some(new),
        }
    }

    fn normalize(&mut self) {
        self.kept.iter_mut().for_each(Kept::normalize);
        if let Some(floor) = &mut self.floor {
            self.post = self.post.filter(|post| post.timestamp > floor.version.timestamp);
            self.kept.retain(|kept| kept.version >= floor.version);
            if let Some(kept) = self.kept.first_mut().filter(|kept| kept.version == floor.version) {
                // Of what was said of it, only that earlier fragments don't count is needed still.
                let damaged = kept.said.take().and_then(|said| said.damaged);
                floor.returned = floor.returned.max(damaged.map_or(0, |damaged| damaged.1.sequence));
                kept.bytes = kept.bytes.filter(|bytes| bytes.spot.sequence > floor.returned);
                if kept.bytes.is_some_and(|bytes| bytes.state == State::Settled) {
                    floor.spot = None;
                }
            }
        }
        self.kept.retain(|kept| kept.bytes.is_some() || kept.said.is_some());
    }

    /// What decisions are made on.
    #[must_use]
    pub(crate) fn slot(&self) -> Slot {
        let mut slot = Slot::default();
        self.floor.iter().for_each(|floor| slot.apply(&Change::Settled(floor.version)));
        for kept in &self.kept {
            let (version, chosen) = (kept.version, kept.chosen.clone());
            let said = kept.said.as_deref().copied().unwrap_or_default();
            slot.apply(&match kept.bytes {
                Some(_) => Change::Prepared { version, chosen: chosen.clone() },
                None => Change::Promised { version, chosen: chosen.clone(), ballot: Ballot::PROXY },
            });
            if let Some((ballot, _)) = said.promised {
                slot.apply(&Change::Promised { version, chosen: chosen.clone(), ballot });
            }
            if let Some((accepted, _)) = said.accepted {
                slot.apply(&Change::Accepted { version, chosen, accepted });
            }
            if let Some(outcome) = self.decided(kept) {
                slot.apply(&Change::Decided { version, outcome });
            }
        }
        slot
    }

    /// The newest version that is for certain, with its fragment; None if a deletion is newer.
    #[must_use]
    pub(crate) fn shown(&self) -> Option<(Version, Bytes)> {
        let deletion = self.floor.map(|floor| floor.version).filter(|version| version.is_deletion());
        let sure = |kept: &&Kept| self.decided(kept) == Some(Outcome::Commit);
        let newest = self.kept.iter().rev().filter(sure).find_map(|kept| Some((kept.version, kept.bytes?)));
        newest.filter(|(version, _)| deletion.is_none_or(|deletion| deletion < *version))
    }

    /// Whether everything is decided, and what is shown has made all older versions dead.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        let floor = self.floor.map(|floor| floor.version);
        self.kept.iter().all(|kept| self.decided(kept).is_some())
            && self.shown().is_none_or(|(version, _)| Some(version) <= floor)
    }

    /// Whether later records say all that a damaged answer to a ballot can have said: ballots only grow.
    #[must_use]
    pub(crate) fn knows_better(&self, version: Version, damaged: &Header) -> bool {
        let Some(said) = self.get(version).and_then(|kept| kept.said.as_deref()) else { return false };
        let later = |spot: Spot| spot.sequence > damaged.sequence;
        // What was accepted is known from what was accepted later, and not from a later promise.
        said.accepted.is_some_and(|(_, spot)| later(spot))
            || (is_promise(damaged) && said.promised.is_some_and(|(_, spot)| later(spot)))
    }

    /// Where the live records are.
    pub(crate) fn spots(&self) -> impl Iterator<Item = Spot> + '_ {
        let of_kept = |kept: &Kept| {
            let said = kept.said.as_deref().copied().unwrap_or_default();
            [
                kept.bytes.map(|bytes| bytes.spot),
                said.damaged.map(|damaged| damaged.1),
                said.promised.map(|promised| promised.1),
                said.accepted.map(|accepted| accepted.1),
                said.decided.map(|decided| decided.1),
            ]
        };
        let kept = self.kept.iter().flat_map(of_kept).flatten();
        let posted = self.post.map(|post| Spot { place: post.place, units: post.units, ..Spot::default() });
        self.floor.iter().filter_map(|floor| floor.spot).chain(kept).chain(posted)
    }

    /// Numbers of the files with fragments' data.
    pub(crate) fn large(&self) -> impl Iterator<Item = u64> + '_ {
        self.kept.iter().filter_map(|kept| kept.bytes).map(|bytes| bytes.large).filter(|large| *large != 0)
    }

    /// A live record was copied from one place to another, with this state in it if it is a fragment's; false when it
    /// is not held there any more.
    pub(crate) fn relocate(&mut self, old: Place, new: Place, state: State) -> bool {
        let mut found = false;
        if let Some(post) = self.post.as_mut().filter(|post| post.place == old) {
            (post.place, found) = (new, true);
        }
        let mut moved = |spot: &mut Spot| {
            if spot.place == old {
                (spot.place, found) = (new, true);
            }
        };
        self.floor.iter_mut().filter_map(|floor| floor.spot.as_mut()).for_each(&mut moved);
        for kept in &mut self.kept {
            if let Some(bytes) = &mut kept.bytes {
                let here = bytes.spot.place == old;
                moved(&mut bytes.spot);
                bytes.state = if here { bytes.state.max(state) } else { bytes.state };
            }
            if let Some(said) = &mut kept.said {
                said.damaged.iter_mut().for_each(|damaged| moved(&mut damaged.1));
                said.promised.iter_mut().for_each(|promised| moved(&mut promised.1));
                said.accepted.iter_mut().for_each(|accepted| moved(&mut accepted.1));
                said.decided.iter_mut().for_each(|decided| moved(&mut decided.1));
            }
        }
        self.normalize();
        found
    }

    /// The state that a fragment's record is to have when it is copied from its place: settled if its version is.
    #[must_use]
    pub(crate) fn state_at(&self, place: Place) -> Option<State> {
        let (kept, bytes) = self.fragment_at(place)?;
        let settled = self.floor.is_some_and(|floor| floor.version == kept.version);
        Some(if settled { State::Settled } else { bytes.state })
    }

    /// The fragment whose record is at a place.
    #[must_use]
    pub(crate) fn fragment_at(&self, place: Place) -> Option<(&Kept, Bytes)> {
        let fragments = self.kept.iter().filter_map(|kept| Some((kept, kept.bytes?)));
        fragments.into_iter().find(|(_, bytes)| bytes.spot.place == place)
    }

    /// The next thing to write when the fragment at a place is damaged: what its own record alone said, and then that it
    /// is gone; nothing when it is.
    #[must_use]
    pub(crate) fn without(&self, place: Place) -> Option<Change> {
        let (kept, bytes) = self.fragment_at(place)?;
        let version = kept.version;
        if self.floor.is_some_and(|floor| floor.version == version) {
            // That it is settled stays known, and the fragment can come again.
            return Some(Change::Returned(version));
        }
        let said = kept.said.as_ref().is_some_and(|said| said.decided.is_some());
        let alone = bytes.state >= State::Certain && !said;
        Some(if alone { Change::Decided { version, outcome: Outcome::Commit } } else { Change::Damaged(version) })
    }

    /// What the decision at a place says, so that it can be written anew; nothing for a fragment or a place without a
    /// live record.
    #[must_use]
    pub(crate) fn decision_at(&self, place: Place) -> Option<Change> {
        if let Some(floor) = self.floor.filter(|floor| floor.spot.is_some_and(|spot| spot.place == place)) {
            let here = self.get(floor.version).is_some();
            let returns = !here && !floor.version.is_deletion();
            return Some(if returns { Change::Returned(floor.version) } else { Change::Settled(floor.version) });
        }
        self.kept.iter().find_map(|kept| {
            let (version, said) = (kept.version, kept.said.as_deref()?);
            // The fragment's own record says which devices were chosen.
            let chosen = if kept.bytes.is_some() { Arc::new([]) as Arc<[Device]> } else { kept.chosen.clone() };
            let at = |spot: Spot| spot.place == place;
            let damaged = said.damaged.filter(|(_, spot)| at(*spot)).map(|_| Change::Damaged(version));
            let promised = said.promised.filter(|(_, spot)| at(*spot));
            let accepted = said.accepted.filter(|(_, spot)| at(*spot));
            let decided = said.decided.filter(|(_, spot)| at(*spot));
            damaged
                .or(promised.map(|(ballot, _)| Change::Promised { version, chosen: chosen.clone(), ballot }))
                .or(accepted.map(|(accepted, _)| Change::Accepted { version, chosen: chosen.clone(), accepted }))
                .or(decided.map(|(outcome, _)| Change::Decided { version, outcome }))
        })
    }
}

#[cfg(test)]
mod tests;
