//! When a second device is asked for a read: once the first has let it wait for longer than 95 of 100 answers of that
//! device took, and for at most one read in twenty.
//!
//! A second request costs the devices as much as the first. However slow they are, no more than that share is added;
//! and the latency from which it is added follows the device's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use swiftlet_node::hedging::Share;

/// Reads for which a second device may be asked, and how many may.
#[derive(Debug, Default)]
pub(crate) struct Hedging {
    share: Share,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Hedging {
    /// A read begins, whose device is late from then on, if that is known.
    pub(crate) fn begin(&mut self, late: Option<Instant>, number: u64) {
        self.share.save();
        self.due.extend(late.map(|late| Reverse((late, number))));
    }

    /// When the next read is late.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((late, _))| *late)
    }

    /// The next number of a read that may be late now: it may have been answered since.
    pub(crate) fn late(&mut self, now: Instant) -> Option<u64> {
        self.next().filter(|late| *late <= now)?;
        self.due.pop().map(|Reverse((_, number))| number)
    }

    /// Whether one more second device may be asked, which then counts.
    pub(crate) fn take(&mut self) -> bool {
        self.share.take(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_read_in_twenty_is_asked_twice() {
        let (mut hedging, now) = (Hedging::default(), Instant::now());
        let mut asked = 0;
        for number in 0..2000 {
            hedging.begin(Some(now), number);
            assert_eq!(hedging.late(now), Some(number));
            asked += u32::from(hedging.take());
        }
        assert!((95..=106).contains(&asked), "{asked}");
        for _ in 0..2000 {
            hedging.begin(None, 0);
        }
        assert_eq!((0..20).filter(|_| hedging.take()).count(), 5, "few are saved up");
    }

    #[test]
    fn the_latest_comes_last() {
        let (mut hedging, now) = (Hedging::default(), Instant::now());
        for (number, after) in [(1, 30), (2, 10), (3, 20)] {
            hedging.begin(Some(now + ms(after)), number);
        }
        assert_eq!(hedging.next(), Some(now + ms(10)));
        assert_eq!(hedging.late(now), None);
        assert_eq!([hedging.late(now + ms(20)), hedging.late(now + ms(20))], [Some(2), Some(3)]);
        assert_eq!((hedging.late(now + ms(20)), hedging.next()), (None, Some(now + ms(30))));
    }
}
