//! What must hold.
//!
//! - A read gives the bytes of one write, which was not told to have failed. It is no older than what all devices agreed
//!   on when the read began, and than an acknowledged one that the read has come across.
//! - Before older versions are dropped, q devices have committed the new one.
//! - Nobody learns that a write was committed while another one learns that it was aborted.
//! - At any moment, with as many devices away as may be, the object is read: m of them, of which those count that were
//!   lost and are not made whole again; while a newer write has not reached all places, or may be on its way, q-k.
//! - In the end, when faults are over and replicators were at work until nothing changed: all places have the newest
//!   acknowledged version, or one that is newer, and nothing else; nobody else has any fragment.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Outcome, Version};

/// A write that somebody has tried.
pub(crate) struct Attempt {
    pub(crate) operation: u64,
    pub(crate) started: usize,
    /// What it wrote; nothing for a deletion.
    pub(crate) object: Option<Vec<u8>>,
    /// Whether a commit was ever sent, or a deletion.
    pub(crate) committing: bool,
    pub(crate) acknowledged: bool,
    pub(crate) failed: bool,
    /// Whether all devices had a newer one alone when nothing more could come of this one.
    pub(crate) buried: bool,
}

#[derive(Default)]
pub(crate) struct Checker {
    pub(crate) attempts: BTreeMap<Version, Attempt>,
    /// When devices were lost, fragments were damaged, or places were given to other devices, and by which ring.
    pub(crate) losses: Vec<(usize, usize)>,
    /// When all places last showed one version, and which.
    pub(crate) whole: (usize, Option<Version>),
    /// What no read may be older than.
    pub(crate) quiet: Option<Version>,
    pub(crate) decided: BTreeMap<Version, Outcome>,
    /// Versions that reads have tried to give.
    pub(crate) fetched: BTreeSet<(u64, Version)>,
    pub(crate) seen: Seen,
    pub(crate) broken: Option<String>,
}

impl Checker {
    pub(crate) fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub(crate) fn newest_acknowledged(&self) -> Option<Version> {
        self.attempts.iter().rev().find(|(_, attempt)| attempt.acknowledged).map(|(version, _)| *version)
    }

    /// Whether an object was acknowledged that nobody has tried to delete.
    pub(crate) fn is_something_there(&self) -> bool {
        let acknowledged = self.newest_acknowledged();
        acknowledged.is_some_and(|there| !self.attempts.range(there..).any(|(version, _)| version.is_deletion()))
    }

    pub(crate) fn learn(&mut self, version: Version, outcome: Outcome) {
        if version.is_deletion() {
            return;
        }
        let known = *self.decided.entry(version).or_insert(outcome);
        if known != outcome {
            self.fail(format!("{version:?} was decided to be {known:?}, and {outcome:?}"));
        }
    }

    /// A read gave this, when `floor` was agreed on as it began.
    pub(crate) fn gave(&mut self, version: Version, object: &[u8], floor: Option<Version>) {
        let Some(attempt) = self.attempts.get(&version) else {
            return self.fail(format!("{version:?} was read, which nobody wrote"));
        };
        if attempt.object.as_deref() != Some(object) {
            self.fail(format!("a read of {version:?} gave bytes that it does not have"));
        } else if !attempt.committing || attempt.failed {
            self.fail(format!("{version:?} was read, which was never committed"));
        } else if floor > Some(version) && attempt.buried {
            self.fail(format!("{version:?} was read after all had {floor:?}"));
        }
    }

    /// A read gave this; had it found a newer acknowledged one before, it would have given that or nothing.
    pub(crate) fn gave_the_newest_of(&mut self, read: u64, version: Version) {
        let newer = self.fetched.range((read, version)..=(read, Version::deletion(u64::MAX))).map(|(_, other)| *other);
        let newer = newer.filter(|other| *other > version && self.attempts[other].acknowledged).max();
        if let Some(newer) = newer {
            self.fail(format!("{newer:?} was to be read, and {version:?} was given"));
        }
    }

    /// A read found nothing, when this was there as it began.
    pub(crate) fn absent(&mut self, there: Option<Version>) {
        let explained = |there| self.attempts.range(there..).any(|(version, _)| version.is_deletion());
        if there.is_some_and(|there| !explained(there)) {
            self.fail(format!("nothing was found, and {there:?} was there"));
        }
    }

    /// Losses from a moment on. A device that still goes by an older ring may hand its own fragment back to who had the
    /// place before: until all know a ring, places that it has moved count as lost.
    pub(crate) fn losses_since(&self, moment: usize, oldest_ring: usize) -> usize {
        self.losses.iter().filter(|(tick, ring)| *tick >= moment || *ring > oldest_ring).count()
    }
}

/// What has happened, so that a simulation in which nothing does is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) seeds: usize,
    pub(crate) steps: usize,
    pub(crate) acknowledged: usize,
    pub(crate) failed: usize,
    pub(crate) unknown: usize,
    pub(crate) proxies_stopped: usize,
    pub(crate) devices_restarted: usize,
    pub(crate) lost: usize,
    pub(crate) damaged: usize,
    pub(crate) moved: usize,
    pub(crate) recovered_to_commit: usize,
    pub(crate) recovered_to_abort: usize,
    pub(crate) recovered_later: usize,
    pub(crate) rebuilt: usize,
    pub(crate) handed_back: usize,
    pub(crate) settled_by_sync: usize,
    pub(crate) given: usize,
    pub(crate) not_found: usize,
    pub(crate) unavailable: usize,
    pub(crate) tried_with_devices_away: usize,
    pub(crate) asked_again: usize,
}

impl Seen {
    fn counts(&mut self) -> [&mut usize; 21] {
        [
            &mut self.seeds,
            &mut self.steps,
            &mut self.acknowledged,
            &mut self.failed,
            &mut self.unknown,
            &mut self.proxies_stopped,
            &mut self.devices_restarted,
            &mut self.lost,
            &mut self.damaged,
            &mut self.moved,
            &mut self.recovered_to_commit,
            &mut self.recovered_to_abort,
            &mut self.recovered_later,
            &mut self.rebuilt,
            &mut self.handed_back,
            &mut self.settled_by_sync,
            &mut self.given,
            &mut self.not_found,
            &mut self.unavailable,
            &mut self.tried_with_devices_away,
            &mut self.asked_again,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        self.counts().into_iter().zip(other.counts()).for_each(|(sum, more)| *sum += *more);
    }

    /// Of everything that can happen, something did; a single seed may be asked for.
    pub(crate) fn assert_all_kinds(&mut self) {
        let few = self.seeds < 100;
        assert!(few || self.counts().iter().all(|count| **count > 0), "{self:?}");
    }
}
