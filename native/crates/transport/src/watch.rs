//! Decides whether an I/O thread with nothing to do stays awake for a moment.
//!
//! On virtual processors, sleeping and being woken costs a thread, and the one that wakes it, tens of microseconds, as
//! much as a small request itself; peers with a few requests in flight would do little else. So a thread polls for
//! about as long as that costs, as long as polling pays off: one that has polled in vain several times sleeps at once,
//! and tries again once in a while. Between two polls it yields its processor.

use std::time::Duration;

/// The longest watch: about what sleeping and being woken cost.
pub(crate) const AT_MOST: Duration = Duration::from_micros(50);
/// The largest credit, so that it is soon used up when nothing comes any more.
const MOST_CREDIT: u32 = 8;
/// Without credit, one wait in this many is a watch.
const ANOTHER_TRY: u32 = 64;

/// Credit of watches that paid off, less those that did not.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    credit: u32,
    waits: u32,
}

impl Watch {
    /// Whether this wait should begin with a watch.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        self.waits = self.waits.wrapping_add(1);
        self.credit > 0 || self.waits.is_multiple_of(ANOTHER_TRY)
    }

    /// A watch has ended, with something to do or in vain.
    pub(crate) fn ended(&mut self, seen: bool) {
        self.credit = if seen { (self.credit + 2).min(MOST_CREDIT) } else { self.credit.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries_of(watch: &mut Watch, waits: u32) -> u32 {
        (0..waits)
            .filter(|_| {
                watch.is_worth_it() && {
                    watch.ended(false);
                    true
                }
            })
            .count() as u32
    }

    #[test]
    fn what_comes_at_once_is_watched_for() {
        let mut watch = Watch::default();
        tries_of(&mut watch, ANOTHER_TRY - 1);
        assert!(watch.is_worth_it());
        watch.ended(true);
        for _ in 0..10_000 {
            assert!(watch.is_worth_it());
            watch.ended(true);
        }
    }

    #[test]
    fn what_comes_one_time_in_three_is_still_watched_for() {
        let mut watch = Watch { credit: 2, ..Watch::default() };
        for wait in 0..10_000 {
            assert!(watch.is_worth_it());
            watch.ended(wait % 3 == 0);
        }
    }

    #[test]
    fn in_vain_it_is_given_up_soon_and_tried_seldom() {
        let mut watch = Watch { credit: MOST_CREDIT, ..Watch::default() };
        assert_eq!(tries_of(&mut watch, 20), MOST_CREDIT);
        assert!(tries_of(&mut watch, 100 * ANOTHER_TRY) <= 101);
    }
}
