//! When a second device is asked for a read: once the first has let it wait for longer than 95 of 100 answers of that
//! device took, and for at most one read in twenty.
//!
//! A second request costs the devices as much as the first. However slow they are, no more than that share is added;
//! and the latency from which it is added follows the device's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Answers of a device that are remembered.
const WINDOW: usize = 128;
/// With fewer nobody knows how long answers take.
const LEAST_KNOWN: usize = 20;
/// After so many further answers the latency is determined anew.
const RENEWED: usize = 8;
/// Nothing is too late before.
const LEAST: Duration = Duration::from_millis(5);
/// The share of reads for which a second device may be asked.
const PART: f32 = 0.05;
/// The number of second requests that may be saved up for later.
const MOST_SAVED: f32 = 5.0;

/// How long the last answers of a device took.
#[derive(Debug)]
pub(crate) struct Latencies {
    recent: [Duration; WINDOW],
    count: usize,
    late: Option<Duration>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { recent: [Duration::ZERO; WINDOW], count: 0, late: None }
    }
}

impl Latencies {
    /// Note an answer, which took so long.
    pub(crate) fn add(&mut self, took: Duration) {
        self.recent[self.count % WINDOW] = took;
        self.count += 1;
        if self.count >= LEAST_KNOWN && (self.late.is_none() || self.count.is_multiple_of(RENEWED)) {
            let mut known = self.recent;
            let known = &mut known[..self.count.min(WINDOW)];
            let at = known.len() * 95 / 100;
            self.late = Some((*known.select_nth_unstable(at).1).max(LEAST));
        }
    }

    /// The time within which 95 of 100 answers came; None while too few are known.
    pub(crate) fn late(&self) -> Option<Duration> {
        self.late
    }
}

/// Reads for which a second device may be asked, and how many may.
#[derive(Debug)]
pub(crate) struct Hedging {
    saved: f32,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Default for Hedging {
    fn default() -> Self {
        Self { saved: 1.0, due: BinaryHeap::new() }
    }
}

impl Hedging {
    /// A read begins, whose device is late from then on, if that is known.
    pub(crate) fn begin(&mut self, late: Option<Instant>, number: u64) {
        self.saved = MOST_SAVED.min(self.saved + PART);
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
        let may = self.saved >= 1.0;
        self.saved -= f32::from(u8::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn late_is_who_takes_longer_than_95_of_100() {
        let mut known = Latencies::default();
        for took in 1..LEAST_KNOWN as u64 {
            known.add(ms(took));
            assert_eq!(known.late(), None, "too few are known");
        }
        known.add(ms(20));
        assert_eq!(known.late(), Some(ms(20)));
        for _ in 0..WINDOW {
            known.add(ms(1));
        }
        assert_eq!(known.late(), Some(LEAST), "the former ones are forgotten");
        for turn in 0..WINDOW as u64 {
            known.add(ms(if turn % 10 == 0 { 100 } else { 50 }));
        }
        assert_eq!(known.late(), Some(ms(100)));
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
