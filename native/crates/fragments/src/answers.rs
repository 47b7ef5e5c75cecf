//! What the devices of all places say to one step: a deletion, or metadata.
//!
//! Devices that stand in for those of places count as these do, once for each place.

use crate::forms::Numbers;
use crate::terms::Terms;

/// What was said, by place.
#[derive(Clone, Debug)]
pub(crate) struct Answers<H> {
    quorum: usize,
    heard: Vec<Option<H>>,
}

impl<H: Copy> Answers<H> {
    /// Nobody has answered yet.
    pub(crate) fn new(terms: Terms) -> Self {
        Self { quorum: terms.quorum(), heard: vec![None; terms.places()] }
    }

    /// Nobody of those with copies has answered yet; more than half of them are a quorum.
    pub(crate) fn of_copies(numbers: Numbers) -> Self {
        Self { quorum: numbers.majority(), heard: vec![None; numbers.holders] }
    }

    /// The device of a place has answered, or the one that stands in for it.
    pub(crate) fn take(&mut self, place: usize, heard: H) {
        self.heard[place] = Some(heard);
    }

    /// What was said so far.
    pub(crate) fn all(&self) -> impl Iterator<Item = H> {
        self.heard.iter().flatten().copied()
    }

    /// Whether a quorum has said something of this kind.
    pub(crate) fn has_quorum(&self, which: impl Fn(H) -> bool) -> bool {
        self.all().filter(|heard| which(*heard)).count() >= self.quorum
    }
}
