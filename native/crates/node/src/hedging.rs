//! How long answers of a device take, and for how many reads another device may be asked beside one that is late.
//!
//! A second request costs the devices as much as the first. However slow they are, no more than a share is added; and
//! the latency from which it is added follows the device's.

use std::time::Duration;

/// Answers of a device that are remembered.
const WINDOW: usize = 128;
/// With fewer nobody knows how long answers take.
const LEAST_KNOWN: usize = 20;
/// After so many further answers the latency is determined anew.
const RENEWED: usize = 8;
/// Nothing is too late before.
const LEAST: Duration = Duration::from_millis(5);
/// The share of requests for which another one may be sent.
const PART: f32 = 0.05;
/// The number of further requests that may be saved up for later.
const MOST_SAVED: f32 = 5.0;

/// How long the last answers of a device took.
#[derive(Debug)]
pub struct Latencies {
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
    pub fn add(&mut self, took: Duration) {
        self.recent[self.count % WINDOW] = took;
        self.count += 1;
        if self.count >= LEAST_KNOWN && (self.late.is_none() || self.count.is_multiple_of(RENEWED)) {
            let mut known = self.recent;
            let known = &mut known[..self.count.min(WINDOW)];
            let at = known.len() * 95 / 100;
            self.late = Some((*known.select_nth_unstable(at).1).max(LEAST));
        }
    }

    /// The time within which 95 of 100 answers came, 5 ms at least; None while too few are known.
    #[must_use]
    pub fn late(&self) -> Option<Duration> {
        self.late
    }
}

/// How many further requests may be sent: a twentieth of all.
#[derive(Debug)]
pub struct Share {
    saved: f32,
}

impl Default for Share {
    fn default() -> Self {
        Self { saved: 1.0 }
    }
}

impl Share {
    /// A request is sent that may be late.
    pub fn save(&mut self) {
        self.saved = MOST_SAVED.min(self.saved + PART);
    }

    /// Whether so many further requests may be sent now, which then count. They may be more than were saved, if one was:
    /// then it takes as much longer until there are others.
    pub fn take(&mut self, requests: u8) -> bool {
        let may = self.saved >= 1.0;
        self.saved -= if may { f32::from(requests) } else { 0.0 };
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
    fn one_request_in_twenty_is_sent_besides() {
        for at_once in [1, 6] {
            let mut share = Share::default();
            let mut sent = 0;
            for _ in 0..2000 {
                share.save();
                sent += u32::from(share.take(at_once)) * u32::from(at_once);
            }
            assert!((95..=106).contains(&sent), "{sent}, {at_once} at once");
        }
        let mut share = Share::default();
        (0..2000).for_each(|_| share.save());
        assert_eq!((0..20).filter(|_| share.take(1)).count(), 5, "few are saved up");
    }
}
