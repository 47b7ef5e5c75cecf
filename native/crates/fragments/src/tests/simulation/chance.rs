//! Random numbers that a seed decides.

/// SplitMix64.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.below(items.len())])
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// What may happen next.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Write,
    Delete,
    Read,
    ReadNow,
    Ask,
    Compare,
    HandBack,
    TimeOut,
    StopProxy,
    Restart,
    Leave,
    Lose,
    Damage,
    ChangeRing,
    LearnRing,
}

/// How often it does, by default.
const EVENTS: [(Event, usize); 15] = [
    (Event::Write, 14),
    (Event::Delete, 3),
    (Event::Read, 5),
    (Event::ReadNow, 14),
    (Event::Ask, 14),
    (Event::Compare, 15),
    (Event::HandBack, 6),
    (Event::TimeOut, 7),
    (Event::StopProxy, 2),
    (Event::Restart, 3),
    (Event::Leave, 5),
    (Event::Lose, 3),
    (Event::Damage, 2),
    (Event::ChangeRing, 2),
    (Event::LearnRing, 5),
];

/// What one seed's world is like: some things never happen in it, others all the time. Together they reach more than
/// worlds that are all alike.
pub(crate) struct Temper {
    weights: [usize; EVENTS.len()],
    /// Percent of steps in which a message arrives, if there is one.
    pub(crate) delivers: usize,
    /// Percent of messages that are lost.
    pub(crate) drops: usize,
    /// Percent of messages that arrive once more.
    pub(crate) repeats: usize,
}

impl Temper {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let weights = EVENTS.map(|(_, weight)| weight * [0, 1, 2, 2, 2, 4, 8][chance.below(7)] + 1);
        Self {
            weights,
            delivers: [75, 85, 90, 95][chance.below(4)],
            drops: [0, 2, 4, 15][chance.below(4)],
            repeats: [0, 2, 4, 10][chance.below(4)],
        }
    }

    pub(crate) fn choose(&self, chance: &mut Chance) -> Event {
        let mut at = chance.below(self.weights.iter().sum());
        for (weight, (event, _)) in self.weights.iter().zip(EVENTS) {
            if at < *weight {
                return event;
            }
            at -= weight;
        }
        unreachable!("the sum of the weights is more")
    }
}
