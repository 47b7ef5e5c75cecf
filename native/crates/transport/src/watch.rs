//! Decides whether an I/O thread with nothing to do stays awake for a moment.
//!
//! On virtual processors, sleeping and being woken costs a thread, and the one that wakes it, tens of microseconds, as
//! much as a small request itself; peers with a few requests in flight would do little else. So a thread polls for
//! about as long as that costs, as long as polling pays off: one that has polled in vain several times sleeps at once,
//! and tries again once in a while. Between two polls it yields its processor. If somebody else has taken it then,
//! there is more to do than there are processors: polling takes their time, and who has yielded waits behind all others
//! while one that sleeps is preferred when it is woken. So that ends the watch, and all of its credit.

use std::time::Duration;

/// The longest watch: about what sleeping and being woken cost.
pub(crate) const AT_MOST: Duration = Duration::from_micros(50);
/// A yield that takes so long has let others run.
pub(crate) const CROWDED: Duration = Duration::from_micros(10);
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

    /// A watch has ended.
    pub(crate) fn ended(&mut self, seen: Seen) {
        self.credit = match seen {
            Seen::Something => (self.credit + 2).min(MOST_CREDIT),
            Seen::Nothing => self.credit.saturating_sub(1),
            Seen::Others => 0,
        };
    }
}

/// What a watch has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// There is something to do.
    Something,
    /// Nothing until the end.
    Nothing,
    /// Nothing, and others wanted the processor.
    Others,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries_of(watch: &mut Watch, waits: u32) -> u32 {
        (0..waits)
            .filter(|_| {
                watch.is_worth_it() && {
                    watch.ended(Seen::Nothing);
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
        watch.ended(Seen::Something);
        for _ in 0..10_000 {
            assert!(watch.is_worth_it());
            watch.ended(Seen::Something);
        }
    }

    #[test]
    fn what_comes_one_time_in_three_is_still_watched_for() {
        let mut watch = Watch { credit: 2, ..Watch::default() };
        for wait in 0..10_000 {
            assert!(watch.is_worth_it());
            watch.ended(if wait % 3 == 0 { Seen::Something } else { Seen::Nothing });
        }
    }

    #[test]
    fn in_vain_it_is_given_up_soon_and_tried_seldom() {
        let mut watch = Watch { credit: MOST_CREDIT, ..Watch::default() };
        assert_eq!(tries_of(&mut watch, 20), MOST_CREDIT);
        assert!(tries_of(&mut watch, 100 * ANOTHER_TRY) <= 101);
    }
    #[test]
    fn where_others_want_the_processor_it_is_given_up_at_once() {
        let mut watch = Watch { credit: MOST_CREDIT, ..Watch::default() };
        watch.ended(Seen::Others);
        assert_eq!(tries_of(&mut watch, ANOTHER_TRY - 1), 0);
        assert!(watch.is_worth_it());
        watch.ended(Seen::Something);
        assert!(watch.is_worth_it());
    }
}
