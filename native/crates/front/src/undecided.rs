//! Requests that wait until Python has decided whether there is a grant for them.
//!
//! A decision costs Python a small part of what a request does. All requests with the same token below the same path
//! wait for one decision, and for a moment after a refusal nobody asks again.
//!
//! Fault model: Python may be late, or never decide. Then each request is handed over in time, and after a while the
//! decision is asked for again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::grants::Holder;

/// The largest number of decisions that Python is asked for at a time; requests above it are handed over.
const MAX_ASKED: usize = 1024;
/// The largest number of refusals that are remembered.
const MAX_REFUSED: usize = 4096;
/// How long a refusal is remembered. Python makes a grant by itself when it has answered a request and there can be one.
const REFUSED: Duration = Duration::from_millis(500);
/// Longer than any request waits: after this time a decision that was asked for is not expected any more.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// What is to become of a request without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nobody has asked yet: Python is to be asked, and the request waits.
    Ask,
    /// It waits with others.
    Wait,
    /// Python answers it.
    HandOver,
}

#[derive(Debug)]
struct Asked {
    since: Instant,
    /// The numbers of connections.
    waiting: Vec<u64>,
}

/// Requests by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    asked: HashMap<Holder, Asked>,
    /// Until when nobody asks again.
    refused: HashMap<Holder, Instant>,
}

impl Undecided {
    /// Let the request of a connection wait, if there is to be a decision.
    pub(crate) fn wait(&mut self, holder: &Holder, number: u64, now: Instant) -> Next {
        if let Some(asked) = self.asked.get_mut(holder) {
            asked.waiting.push(number);
            return Next::Wait;
        }
        let is_refused = self.refused.get(holder).is_some_and(|until| now < *until);
        if is_refused || self.asked.len() >= MAX_ASKED {
            return Next::HandOver;
        }
        self.asked.insert(holder.clone(), Asked { since: now, waiting: vec![number] });
        Next::Ask
    }

    /// The connections that waited for this decision.
    pub(crate) fn decided(&mut self, holder: Holder, is_granted: bool, now: Instant) -> Vec<u64> {
        let waited = self.asked.remove(&holder).map(|asked| asked.waiting).unwrap_or_default();
        if is_granted {
            self.refused.remove(&holder);
        } else {
            if self.refused.len() >= MAX_REFUSED {
                self.refused.retain(|_, until| now < *until);
            }
            if self.refused.len() < MAX_REFUSED {
                self.refused.insert(holder, now + REFUSED);
            }
        }
        waited
    }

    /// Forget what is over; the connections were handed over.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.asked.retain(|_, asked| now.saturating_duration_since(asked.since) < GIVEN_UP);
        self.refused.retain(|_, until| now < *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(prefix: usize) -> Holder {
        (false, b"t".to_vec(), prefix.to_string().into())
    }

    #[test]
    fn one_decision_for_all_who_wait() {
        let (mut undecided, now) = (Undecided::default(), Instant::now());
        assert_eq!(undecided.wait(&holder(0), 1, now), Next::Ask);
        assert_eq!(undecided.wait(&holder(0), 2, now), Next::Wait);
        assert_eq!(undecided.wait(&holder(1), 3, now), Next::Ask);
        assert_eq!(undecided.decided(holder(0), true, now), [1, 2]);
        assert_eq!(undecided.decided(holder(0), true, now), []);
        assert_eq!(undecided.wait(&holder(0), 4, now), Next::Ask, "the grant has ended since");
    }

    #[test]
    fn a_refusal_holds_for_a_moment() {
        let (mut undecided, now) = (Undecided::default(), Instant::now());
        assert_eq!(undecided.wait(&holder(0), 1, now), Next::Ask);
        assert_eq!(undecided.decided(holder(0), false, now), [1]);
        assert_eq!(undecided.wait(&holder(0), 2, now), Next::HandOver);
        assert_eq!(undecided.wait(&holder(0), 2, now + REFUSED), Next::Ask);
        assert_eq!(undecided.decided(holder(0), false, now + REFUSED), [2]);
        assert_eq!(undecided.decided(holder(0), true, now + REFUSED), []);
        assert_eq!(undecided.wait(&holder(0), 3, now + REFUSED), Next::Ask, "it was granted since");
    }

    #[test]
    fn what_is_never_decided_is_asked_again() {
        let (mut undecided, now) = (Undecided::default(), Instant::now());
        assert_eq!(undecided.wait(&holder(0), 1, now), Next::Ask);
        undecided.tidy(now + GIVEN_UP / 2);
        assert_eq!(undecided.wait(&holder(0), 2, now + GIVEN_UP / 2), Next::Wait);
        undecided.tidy(now + GIVEN_UP);
        assert_eq!(undecided.wait(&holder(0), 3, now + GIVEN_UP), Next::Ask);
    }

    #[test]
    fn bounded() {
        let (mut undecided, now) = (Undecided::default(), Instant::now());
        for number in 0..MAX_ASKED {
            assert_eq!(undecided.wait(&holder(number), 1, now), Next::Ask);
        }
        assert_eq!(undecided.wait(&holder(MAX_ASKED), 1, now), Next::HandOver);
        for number in 0..MAX_REFUSED + 9 {
            undecided.decided(holder(number), false, now);
        }
        assert_eq!(undecided.refused.len(), MAX_REFUSED);
        undecided.decided(holder(MAX_REFUSED), false, now + REFUSED);
        assert_eq!(undecided.refused.len(), 1, "those that are over make room");
    }
}
