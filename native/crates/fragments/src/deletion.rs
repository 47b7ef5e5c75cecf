//! How a proxy goes on with a deletion: one step, at all places.
//!
//! A device whose place has settled something newer refuses; otherwise its tombstone supersedes every older generation in
//! every state. q devices make the deletion count, as with a write; with those that have something newer they make it
//! one that came too late. Devices that stand in for those of places count as these do, once for each place.

use crate::terms::Terms;

/// What a device says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has the tombstone; whether it had an object.
    Done {
        /// It had one.
        existed: bool,
    },
    /// It has settled an object with this timestamp, which is newer.
    Superseded(u64),
    /// Nothing that counts.
    Refused,
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The deletion is durable on q devices; whether one of them had an object.
    Done {
        /// One had one.
        existed: bool,
    },
    /// An object with this timestamp is newer.
    Superseded(u64),
    /// Too few have answered: it may have happened, and happens if one of them has it.
    Unknown,
}

/// A deletion.
#[derive(Clone, Debug)]
pub struct Deletion {
    terms: Terms,
    heard: Vec<Option<Heard>>,
}

impl Deletion {
    /// One that nobody has answered yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms, heard: vec![None; terms.places()] }
    }

    /// The device of a place has answered, or the one that stands in for it.
    pub fn heard(&mut self, place: usize, heard: Heard) {
        self.heard[place] = Some(heard);
    }

    /// Whether it counts, whatever the others say.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.count(|heard| matches!(heard, Heard::Done { .. })) >= self.terms.quorum()
    }

    /// What the client is told if nobody else answers.
    #[must_use]
    pub fn verdict(&self) -> Deleted {
        let heard = || self.heard.iter().flatten();
        let newer = heard().filter_map(|heard| if let Heard::Superseded(newer) = heard { Some(*newer) } else { None });
        if self.is_durable() {
            Deleted::Done { existed: heard().any(|heard| *heard == Heard::Done { existed: true }) }
        } else if self.count(|heard| *heard != Heard::Refused) >= self.terms.quorum() {
            newer.max().map_or(Deleted::Unknown, Deleted::Superseded)
        } else {
            Deleted::Unknown
        }
    }

    fn count(&self, which: impl Fn(&Heard) -> bool) -> usize {
        self.heard.iter().flatten().filter(|heard| which(heard)).count()
    }
}
