//! How a proxy goes on with a deletion: one step, at all places.
//!
//! A device whose place has settled something newer refuses; otherwise its tombstone supersedes every older generation in
//! every state. q devices make the deletion count, as with a write; with those that have something newer they make it
//! one that came too late.

use crate::answers::Answers;
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
pub struct Deletion(Answers<Heard>);

impl Deletion {
    /// One that nobody has answered yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self(Answers::new(terms))
    }

    /// The device of a place has answered, or the one that stands in for it.
    pub fn heard(&mut self, place: usize, heard: Heard) {
        self.0.take(place, heard);
    }

    /// Whether it counts, whatever the others say.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.0.has_quorum(|heard| matches!(heard, Heard::Done { .. }))
    }

    /// What the client is told if nobody else answers.
    #[must_use]
    pub fn verdict(&self) -> Deleted {
        if self.is_durable() {
            return Deleted::Done { existed: self.0.all().any(|heard| heard == Heard::Done { existed: true }) };
        }
        if !self.0.has_quorum(|heard| heard != Heard::Refused) {
            return Deleted::Unknown;
        }
        let newer =
            self.0.all().filter_map(|heard| if let Heard::Superseded(newer) = heard { Some(newer) } else { None });
        newer.max().map_or(Deleted::Unknown, Deleted::Superseded)
    }
}
