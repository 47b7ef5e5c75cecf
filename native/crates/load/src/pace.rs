//! When the next operation of an open loop is due, and how long a connection thinks.

use crate::plan::{Nanos, Pause};
use crate::random::Random;

impl Pause {
    pub(crate) fn draw(self, random: &mut Random) -> Nanos {
        match self {
            Self::Even(nanos) => nanos,
            Self::Random(mean) => (mean as f64 * random.exponential()) as Nanos,
        }
    }
}

/// The intended starts of an open loop: they do not depend on what happens, so that they need not be stored.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pause: Pause,
    random: Random,
    next: Nanos,
}

impl Arrivals {
    /// The first one is a pause after `from`.
    pub(crate) fn new(pause: Pause, from: Nanos, mut random: Random) -> Self {
        let next = from + pause.draw(&mut random);
        Self { pause, random, next }
    }

    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Take the next one.
    pub(crate) fn advance(&mut self) -> Nanos {
        let taken = self.next;
        self.next += self.pause.draw(&mut self.random);
        taken
    }
}
