//! Which version a reader gives, from which fragments.
//!
//! It takes the newest committed version of whoever has one first, and fetches fragments of that version alone. When
//! they are too few, it gives another one: a newer one that somebody else has, or an older one if there is a proof that
//! the version was aborted. That nothing is there takes answers of m+1 places: fewer than k are left that may have it.

use std::collections::BTreeSet;

use crate::request::Answer;
use crate::terms::Terms;
use crate::version::{Outcome, Version};

/// Versions that a reader tries one after another.
pub const MAX_TRIES: usize = 8;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something else is heard.
    Wait,
    /// Ask all places for their newest committed version below this one.
    Ask(Option<Version>),
    /// Fetch this version's fragments from all places, from whoever named it, and from the devices that its proxy chose.
    Fetch(Version),
    /// There are fragments enough of this version.
    Give(Version),
    /// There is no such object.
    NotFound,
    /// It can't be told, or not be put together, now.
    Unavailable,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Places have answered; the newest version of theirs is a deletion, or is waited for.
    Asking {
        answered: BTreeSet<usize>,
        newest: Option<Version>,
    },
    Fetching {
        version: Version,
        fragments: BTreeSet<usize>,
        aborted: bool,
        newer: Option<Version>,
    },
}

/// A read.
#[derive(Clone, Debug)]
pub struct Read {
    terms: Terms,
    stage: Stage,
    /// The lowest version that turned out to be aborted.
    below: Option<Version>,
    /// The newest version that was tried and isn't known to be aborted: nothing older is given.
    tried: Option<Version>,
    tries: usize,
}

impl Read {
    /// A read that begins with [`Step::Ask`] without a version.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let stage = Stage::Asking { answered: BTreeSet::new(), newest: None };
        Self { terms, stage, below: None, tried: None, tries: 0 }
    }

    /// The newest version that was tried, unless it is known to be aborted: nothing older is given.
    #[must_use]
    pub fn tried(&self) -> Option<Version> {
        self.tried
    }

    /// A device has answered which version is its newest one, and whether it has a place, and which.
    pub fn newest(&mut self, place: Option<usize>, answer: &Answer) -> Step {
        let (Stage::Asking { answered, newest }, Answer::Newest { committed, floor }) = (&mut self.stage, answer)
        else {
            return Step::Wait;
        };
        answered.extend(place);
        *newest = (*newest).max((*committed).max(*floor));
        // A deletion in one place may be older than what others have: of an empty device that has heard of nothing else.
        match *newest {
            Some(version) if !version.is_deletion() && self.tries == 0 => self.fetch(version),
            _ => Step::Wait,
        }
    }

    /// A device has answered to [`Request::Fetch`](crate::request::Request::Fetch) about its fragment `index`.
    pub fn fetched(&mut self, of: Version, index: usize, answer: &Answer) -> Step {
        let Stage::Fetching { version, fragments, aborted, newer } = &mut self.stage else { return Step::Wait };
        if of != *version {
            return Step::Wait;
        }
        match answer {
            Answer::Fragment(_) => {
                fragments.insert(index);
                if fragments.len() >= self.terms.data() { Step::Give(of) } else { Step::Wait }
            }
            Answer::Decided(Outcome::Abort) => {
                *aborted = true;
                Step::Wait
            }
            Answer::Superseded(floor) => {
                *newer = (*newer).max(Some(*floor));
                Step::Wait
            }
            _ => Step::Wait,
        }
    }

    /// Everyone has answered who will.
    pub fn wait_no_longer(&mut self) -> Step {
        match &self.stage {
            Stage::Asking { newest, .. } if *newest < self.tried => Step::Unavailable,
            Stage::Asking { newest: Some(version), .. } if !version.is_deletion() => self.fetch(*version),
            Stage::Asking { answered, .. } if answered.len() >= self.terms.absences() => Step::NotFound,
            Stage::Asking { .. } => Step::Unavailable,
            // Who has the newer one is asked for, not only which it is: handoffs may be the ones that have it.
            Stage::Fetching { newer: Some(_), .. } => self.ask(self.below),
            Stage::Fetching { version, aborted: true, .. } => {
                self.tried = None;
                self.ask(Some(*version))
            }
            // Whoever answered first may have missed a newer version, or know of one that only handoffs have.
            Stage::Fetching { .. } if self.tries == 1 => self.ask(self.below),
            Stage::Fetching { .. } => Step::Unavailable,
        }
    }

    /// Ask again; now everybody is listened to before the newest version is taken.
    fn ask(&mut self, below: Option<Version>) -> Step {
        self.below = below;
        self.stage = Stage::Asking { answered: BTreeSet::new(), newest: None };
        Step::Ask(below)
    }

    fn fetch(&mut self, version: Version) -> Step {
        self.tries += 1;
        self.tried = self.tried.max(Some(version));
        if self.tries > MAX_TRIES {
            return Step::Unavailable;
        }
        self.stage = Stage::Fetching { version, fragments: BTreeSet::new(), aborted: false, newer: None };
        Step::Fetch(version)
    }
}
