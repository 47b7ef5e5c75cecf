//! How a proxy goes on with metadata: one step, at all places.
//!
//! A device keeps them whether it has a fragment or not, unless it knows something newer, or that the object was deleted.
//! q devices make them count, as with a write.

use crate::answers::Answers;
use crate::forms::Numbers;
use crate::terms::Terms;

/// What a device says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has kept them.
    Done,
    /// It has newer metadata, or has settled a version with this timestamp, which is newer.
    Superseded(u64),
    /// It knows the object deleted at this time, and not before the version on which they were posted.
    Deleted(u64),
    /// Nothing that counts.
    Refused,
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// They are durable on q devices.
    Done,
    /// Metadata or a version with this timestamp are newer.
    Superseded(u64),
    /// The object was deleted at this time.
    Deleted(u64),
    /// Too few have answered: they count if one of them has kept them.
    Unknown,
}

/// Metadata that are posted.
#[derive(Clone, Debug)]
pub struct Post(Answers<Heard>);

impl Post {
    /// Nobody has answered yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self(Answers::new(terms))
    }

    /// The same of an object that lies as copies.
    #[must_use]
    pub fn of_copies(numbers: Numbers) -> Self {
        Self(Answers::of_copies(numbers))
    }

    /// The device of a place has answered, or the one that stands in for it.
    pub fn heard(&mut self, place: usize, heard: Heard) {
        self.0.take(place, heard);
    }

    /// Whether they count, whatever the others say.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.0.has_quorum(|heard| heard == Heard::Done)
    }

    /// What the client is told if nobody else answers.
    #[must_use]
    pub fn verdict(&self) -> Posted {
        if self.is_durable() {
            return Posted::Done;
        }
        if !self.0.has_quorum(|heard| heard != Heard::Refused) {
            return Posted::Unknown;
        }
        let deleted =
            self.0.all().filter_map(|heard| if let Heard::Deleted(at) = heard { Some(at) } else { None }).max();
        let newer =
            self.0.all().filter_map(|heard| if let Heard::Superseded(at) = heard { Some(at) } else { None }).max();
        match (deleted, newer) {
            (Some(deleted), newer) if Some(deleted) >= newer => Posted::Deleted(deleted),
            (_, Some(newer)) => Posted::Superseded(newer),
            _ => Posted::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swiftlet_erasure::Scheme;

    fn verdict(all: &[Heard]) -> Posted {
        let scheme = Scheme::new(4, 2).unwrap_or_else(|error| panic!("{error}"));
        let mut post = Post::new(Terms::of(scheme));
        all.iter().enumerate().for_each(|(place, heard)| post.heard(place, *heard));
        post.verdict()
    }

    #[test]
    fn a_quorum_keeps_them_or_says_why_not() {
        use Heard::{Deleted, Done, Refused, Superseded};
        assert_eq!(verdict(&[Done, Done, Done, Done, Done, Refused]), Posted::Done);
        assert_eq!(verdict(&[Done, Done, Done, Done, Done, Deleted(9)]), Posted::Done);
        assert_eq!(verdict(&[Done, Done, Done, Done, Refused, Refused]), Posted::Unknown);
        assert_eq!(verdict(&[Done, Done, Done, Done, Superseded(7), Superseded(8)]), Posted::Superseded(8));
        assert_eq!(verdict(&[Done, Done, Done, Done, Deleted(7), Refused]), Posted::Deleted(7));
        assert_eq!(verdict(&[Superseded(9), Deleted(7), Deleted(8), Deleted(8), Done]), Posted::Superseded(9));
        assert_eq!(verdict(&[Deleted(7), Deleted(8), Refused, Done]), Posted::Unknown);
    }
}
