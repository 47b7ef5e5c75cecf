//! Records in any order come to the slot that the changes make in their order.

use std::collections::BTreeSet;

use swiftlet_fragments::request::{Answer, Request, answer};

use super::*;
use crate::model::Key;

const KEY: Key = Key { policy: 1, partition: 32, digest: [7; 16] };

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn chosen() -> Arc<[Device]> {
    (0..6).map(|number| Device { number, incarnation: 9 }).collect()
}

/// A log of records on a device, with the slot as the pure decisions have it, and the index over the records.
struct Life {
    random: Random,
    records: Vec<(Header, Option<Change>)>,
    slot: Slot,
    /// The newest POST and the time of its content type, whether it counts still or not.
    post: Option<(u64, u64)>,
    held: Versions,
    sequence: u64,
    places: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let random = Random(seed * 7919 + 1);
        let (slot, held) = (Slot::default(), Versions::default());
        Self { random, records: Vec::new(), slot, post: None, held, sequence: 0, places: 1 }
    }

    fn append(&mut self, change: Change) {
        let (version, fragment) =
            (change.version(), matches!(change, Change::Prepared { .. } | Change::Rebuilt { .. }));
        let kind = match change {
            _ if fragment => Kind::Fragment,
            Change::Settled(version) if version.is_deletion() => Kind::Tombstone,
            _ => Kind::Decision,
        };
        let state = match change {
            Change::Rebuilt { .. } if self.slot.floor() == Some(version) => State::Settled,
            Change::Rebuilt { .. } => State::Certain,
            _ => State::Undecided,
        };
        self.sequence += 1;
        self.places += 1;
        let header = Header {
            sequence: self.sequence,
            place: Place::new(1, self.places * 64),
            generation: version.generation,
            says: if fragment { state as u32 } else { 0 },
            ..Header::new(kind, KEY, version.timestamp)
        };
        self.held.merge(&change, &header);
        self.records.push((header, Some(change)));
    }

    /// Metadata come, if they are newer than what is here, as `deciding` writes them.
    fn post(&mut self) {
        let timestamp = 10 + self.random.below(5);
        let content_type_timestamp = if self.random.below(2) == 0 { 0 } else { 10 + self.random.below(timestamp - 9) };
        let new = (timestamp, content_type_timestamp);
        if self.post >= Some(new) || self.slot.floor().is_some_and(|floor| floor.timestamp >= timestamp) {
            return;
        }
        self.post = Some(new);
        (self.sequence, self.places) = (self.sequence + 1, self.places + 1);
        let place = Place::new(1, self.places * 64);
        let posted = Header::new(Kind::CodedPost, KEY, timestamp);
        let header = Header { sequence: self.sequence, place, content_type_timestamp, ..posted };
        assert!(self.held.merge_post(&header));
        self.records.push((header, None));
    }

    /// One thing that happens to a device.
    fn step(&mut self) {
        let version = Version { timestamp: 10 + self.random.below(4), generation: 1 + self.random.below(2) };
        let ballot = Ballot { round: 1 + self.random.below(3) as u32, nonce: self.random.below(2) };
        let outcome = if version.generation == 1 { Outcome::Commit } else { Outcome::Abort };
        let request = match self.random.below(15) {
            0..=3 => Request::Prepare { version, chosen: chosen() },
            4 | 5 => Request::Commit(version),
            6 => Request::Settle(version),
            7 => Request::Delete { timestamp: version.timestamp },
            8 => Request::Promise { version, chosen: chosen(), ballot },
            9 => Request::Accept { version, chosen: chosen(), accepted: Accepted { ballot, outcome } },
            10 => Request::Decide { version, outcome },
            11 => Request::Keep { version, chosen: chosen() },
            12 => return self.give_back_or_damage(),
            13 => return self.post(),
            _ => return self.compact(),
        };
        let (said, by_records) = (answer(&self.slot, &request), answer(&self.held.slot(), &request));
        assert_eq!(by_records.1, said.1, "{request:?}: {:?}", self.held);
        if let Some(change) = said.0 {
            self.slot.apply(&change);
            self.append(change);
        }
    }

    fn give_back_or_damage(&mut self) {
        let newest = self.slot.kept().next_back().map(|(version, kept)| (version, kept.decided));
        if let (Some((version, Some(Outcome::Commit))), 0) = (newest, self.random.below(2)) {
            self.slot.apply(&Change::Returned(version));
            return self.append(Change::Returned(version));
        }
        let fragments: Vec<Place> = self.held.kept.iter().filter_map(|kept| Some(kept.bytes?.spot.place)).collect();
        if fragments.is_empty() {
            return;
        }
        let place = fragments[self.random.below(fragments.len() as u64) as usize];
        self.slot.apply(&Change::Damaged(self.held.fragment_at(place).expect("it").0.version));
        // As `deciding` does: what only the record said is said before it is gone.
        while let Some(change) = self.held.without(place) {
            self.append(change);
        }
    }

    /// Some live records get another place, and some dead ones are gone.
    fn compact(&mut self) {
        let live: BTreeSet<Place> = self.held.spots().map(|spot| spot.place).collect();
        let random = &mut self.random;
        self.records.retain(|(header, _)| live.contains(&header.place) || random.below(2) == 0);
        for at in 0..self.records.len() {
            let (old, change) = self.records[at].clone();
            if self.random.below(2) == 0 || !self.held.spots().any(|spot| spot.place == old.place) {
                continue;
            }
            self.places += 1;
            let says = self.held.state_at(old.place).map_or(old.says, |state| state as u32);
            let new = Header { place: Place::new(2, self.places * 64), says, ..old };
            assert!(self.held.relocate(old.place, new.place, State::of(says).unwrap_or_default()));
            // The copied one is there as well, for a while.
            self.records.push((new, change));
        }
    }

    /// What a start makes of the records, in an order by chance and some of them twice.
    fn again(&mut self) -> Versions {
        let mut held = Versions::default();
        let mut left: Vec<usize> = (0..self.records.len()).chain(0..self.records.len() / 3).collect();
        while !left.is_empty() {
            let (header, change) = &self.records[left.swap_remove(self.random.below(left.len() as u64) as usize)];
            match change {
                Some(change) => held.merge(change, header),
                None => drop(held.merge_post(header)),
            }
        }
        held
    }

    fn check(&mut self, what: &str) {
        let again = self.again();
        let mut requests = vec![Request::Show, Request::Newest { below: None }];
        for timestamp in 10..14 {
            for generation in 1..3 {
                let version = Version { timestamp, generation };
                let ballot = Ballot { round: 2, nonce: 1 };
                requests.extend([
                    Request::Prepare { version, chosen: chosen() },
                    Request::Commit(version),
                    Request::Settle(version),
                    Request::Promise { version, chosen: chosen(), ballot },
                    Request::Keep { version, chosen: chosen() },
                    Request::Fetch(version),
                    Request::Newest { below: Some(version) },
                ]);
            }
        }
        let newer = |post: &(u64, u64)| self.slot.floor().is_none_or(|floor| floor.timestamp < post.0);
        let posted = self.post.filter(newer);
        for held in [&self.held, &again] {
            let found = held.post.map(|post| (post.timestamp, post.content_type_timestamp));
            assert_eq!(found, posted, "{what}: {held:#?}");
            for request in &requests {
                let (expected, found) = (answer(&self.slot, request).1, answer(&held.slot(), request).1);
                assert!(is_same(&expected, &found), "{what}: {request:?}: {found:?}, not {expected:?}: {held:#?}");
            }
            assert!(held.is_empty() || held.only_deletion().is_some() || held.is_sound(), "{what}: {held:#?}");
        }
    }
}

/// Which devices were chosen may not be known any more when the fragment is gone, and can be told by nobody who asks.
fn is_same(expected: &Answer, found: &Answer) -> bool {
    match (expected, found) {
        (Answer::Fragment(_), Answer::Fragment(_)) => true,
        _ => expected == found,
    }
}

#[test]
fn records_in_any_order_make_the_slot_of_their_changes() {
    for seed in 0..800 {
        let mut life = Life::new(seed);
        for step in 0..60 {
            life.step();
            if step % 7 == 0 {
                life.check(&format!("seed {seed}, step {step}"));
            }
        }
    }
}

#[test]
fn a_settled_fragment_that_was_copied_needs_no_record_beside_it() {
    let mut life = Life::new(1);
    let version = Version { timestamp: 10, generation: 1 };
    for request in [Request::Prepare { version, chosen: chosen() }, Request::Commit(version), Request::Settle(version)]
    {
        let (change, _) = answer(&life.slot, &request);
        let change = change.expect("a change");
        life.slot.apply(&change);
        life.append(change);
    }
    assert_eq!(life.held.spots().count(), 2, "the fragment and that it is settled");
    let (old, new) = (life.records[0].0.place, Place::new(2, 4096));
    let state = life.held.state_at(old).expect("a fragment");
    assert_eq!(state, State::Settled);
    assert!(life.held.relocate(old, new, state));
    assert_eq!(life.held.spots().map(|spot| spot.place).collect::<Vec<_>>(), [new]);
    assert_eq!(life.held.shown().map(|(shown, _)| shown), Some(version));
}

#[test]
fn what_nobody_needs_is_forgotten_by_its_age() {
    let mut held = Versions::default();
    let version = Version { timestamp: 10, generation: 1 };
    let at = |seconds: u64| Header { delete_at: seconds, sequence: 1, ..Header::new(Kind::Decision, KEY, 10) };
    held.merge(&Change::Decided { version, outcome: Outcome::Abort }, &at(1000));
    assert!(!held.is_memory_before(1000 * TIMESTAMPS_PER_S), "the moment itself");
    assert!(held.is_memory_before(1001 * TIMESTAMPS_PER_S));
    let deletion = Version::deletion(2000 * TIMESTAMPS_PER_S);
    held.merge(&Change::Settled(deletion), &Header::new(Kind::Tombstone, KEY, deletion.timestamp));
    assert!(!held.is_memory_before(2000 * TIMESTAMPS_PER_S), "a deletion is as old as its timestamp");
    let newer = Version { timestamp: deletion.timestamp + 1, generation: 1 };
    held.merge(
        &Change::Prepared { version: newer, chosen: chosen() },
        &Header::new(Kind::Fragment, KEY, newer.timestamp),
    );
    assert!(!held.is_memory_before(u64::MAX), "a fragment is no memory");
    let mut posted = Versions::default();
    assert!(posted.merge_post(&Header::new(Kind::CodedPost, KEY, deletion.timestamp)));
    assert!(!posted.is_memory_before(deletion.timestamp), "a POST is as old as its timestamp");
    assert!(posted.is_memory_before(deletion.timestamp + 1));
}
