//! When reads of coded objects are to be looked at again, as something may be late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The times, by the tokens of reads. Of a read that is over they stay until they have come: it is not found then.
#[derive(Debug, Default)]
pub(crate) struct Turns(BinaryHeap<Reverse<(Instant, u64)>>);

impl Turns {
    /// Look at a read then; `due` is when that is done anyway, if it is, and becomes the sooner one.
    pub(crate) fn at(&mut self, when: Instant, token: u64, due: &mut Option<Instant>) {
        if due.is_none_or(|due| when < due) {
            *due = Some(when);
            self.0.push(Reverse((when, token)));
        }
    }

    /// When the next read is to be looked at.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((when, _))| *when)
    }

    /// The next read that is to be looked at now, and for when that was said.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Instant, u64)> {
        self.next().filter(|when| *when <= now)?;
        self.0.pop().map(|Reverse(one)| one)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_soonest_counts() {
        let (mut turns, now, mut due) = (Turns::default(), Instant::now(), None);
        let after = |ms| now + Duration::from_millis(ms);
        turns.at(after(20), 1, &mut due);
        turns.at(after(30), 1, &mut due);
        assert_eq!(due, Some(after(20)), "it is looked at before");
        turns.at(after(10), 1, &mut due);
        turns.at(after(15), 2, &mut None);
        assert_eq!((due, turns.next()), (Some(after(10)), Some(after(10))));
        assert_eq!(turns.take(after(9)), None);
        assert_eq!([(); 2].map(|()| turns.take(after(19))), [Some((after(10), 1)), Some((after(15), 2))]);
        assert_eq!((turns.take(after(19)), turns.next()), (None, Some(after(20))));
    }
}
