//! A device: a log of durable changes, and the slots that are made of it.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Rules;
use crate::request::{Answer, Request};
use crate::slot::{Change, Shown, Slot};
use crate::{Device, Version};

/// Places that showed a version in this round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    pub(crate) ring: usize,
    pub(crate) version: Option<Version>,
    pub(crate) equal: BTreeSet<usize>,
}

#[derive(Default)]
pub(crate) struct SimDevice {
    pub(crate) number: u32,
    pub(crate) incarnation: u64,
    /// Whether nobody reaches it.
    pub(crate) is_away: bool,
    /// The ring that it knows.
    pub(crate) ring: usize,
    log: Vec<(usize, Change)>,
    pub(crate) slots: BTreeMap<usize, Slot>,
    bytes: BTreeMap<(usize, Version), Vec<u8>>,
    /// Highest rounds of ballots that it has heard of; not durable.
    pub(crate) rounds: BTreeMap<(usize, Version), u32>,
    /// Not durable.
    pub(crate) sync: Round,
}

impl SimDevice {
    pub(crate) fn new(number: u32, incarnation: u64, ring: usize) -> Self {
        Self { number, incarnation, ring, ..Self::default() }
    }

    pub(crate) fn identity(&self) -> Device {
        Device { number: self.number, incarnation: self.incarnation }
    }

    /// Make a change durable.
    pub(crate) fn append(&mut self, place: usize, change: &Change, bytes: Option<&[u8]>) {
        if let (Change::Prepared { version, .. } | Change::Rebuilt { version, .. }, Some(bytes)) = (change, bytes) {
            self.bytes.insert((place, *version), bytes.to_vec());
        }
        let slot = self.slots.entry(place).or_default();
        slot.apply(change);
        self.bytes.retain(|(at, version), _| *at != place || slot.get(*version).is_some_and(|kept| kept.fragment));
        self.log.push((place, change.clone()));
    }

    /// What a slot answers.
    pub(crate) fn ask(&self, rules: &Rules, place: usize, request: &Request) -> (Option<Change>, Answer) {
        let empty = Slot::default();
        (rules.answer)(self.slots.get(&place).unwrap_or(&empty), request)
    }

    /// Fragments of a version, in whatever slots they are, with their places.
    pub(crate) fn fragments(&self, rules: &Rules, version: Version) -> Vec<(usize, Vec<u8>)> {
        let same = self.bytes.iter().filter(|((place, other), _)| {
            let slot = &self.slots[place];
            (rules.is_same)(*other, version) && slot.get(*other).is_some_and(|kept| kept.is_readable())
        });
        same.map(|((place, _), bytes)| (*place, bytes.clone())).collect()
    }

    /// The best answer of all slots to a reader.
    pub(crate) fn read(&self, rules: &Rules, request: &Request) -> Answer {
        let answers = self.slots.values().map(|slot| (rules.answer)(slot, request).1);
        match request {
            Request::Newest { .. } => {
                let (mut newest, mut settled) = (None, None);
                for answer in answers {
                    if let Answer::Newest { committed, floor } = answer {
                        (newest, settled) = (newest.max(committed), settled.max(floor));
                    }
                }
                Answer::Newest { committed: newest, floor: settled }
            }
            _ => answers.into_iter().find(|answer| *answer != Answer::Missing).unwrap_or(Answer::Missing),
        }
    }

    pub(crate) fn shown(&self, rules: &Rules, place: usize) -> Option<Shown> {
        self.slots.get(&place).and_then(|slot| (rules.shown)(slot))
    }

    /// Stop, and begin again with what is durable.
    pub(crate) fn restart(&mut self) {
        let mut slots: BTreeMap<usize, Slot> = BTreeMap::new();
        for (place, change) in &self.log {
            slots.entry(*place).or_default().apply(change);
        }
        assert_eq!(slots, self.slots, "what is durable makes the same slots");
        self.rounds.clear();
        self.sync = Round::default();
    }
}
