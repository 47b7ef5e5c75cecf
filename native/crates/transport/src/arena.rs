//! The free parts of a region, in blocks of powers of two: pure numbers.
//!
//! Freed blocks are kept unmerged and reused last in, first out, since their bytes are still in the cache. They are
//! merged only when a larger block is needed and there is none.

/// The smallest block.
const SMALLEST: usize = 4096;
/// Orders: 4 KiB, 8 KiB, ... 1 MiB.
const ORDERS: usize = 9;
const LARGEST: usize = SMALLEST << (ORDERS - 1);

#[derive(Debug)]
pub(crate) struct Arena {
    /// Offsets of free blocks, by order.
    free: [Vec<usize>; ORDERS],
    used: usize,
}

fn order(bytes: usize) -> usize {
    bytes.div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize
}

impl Arena {
    /// `start` and `bytes` are multiples of the largest block.
    pub(crate) fn new(start: usize, bytes: usize) -> Self {
        debug_assert!(start.is_multiple_of(LARGEST) && bytes.is_multiple_of(LARGEST));
        let mut free: [Vec<usize>; ORDERS] = Default::default();
        free[ORDERS - 1] = (0..bytes / LARGEST).rev().map(|at| start + at * LARGEST).collect();
        Self { free, used: 0 }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Take a block of at least `bytes`, at most 1 MiB: its offset.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        debug_assert!(bytes > 0 && bytes <= LARGEST);
        let wanted = order(bytes);
        let mut found = (wanted..ORDERS).find(|order| !self.free[*order].is_empty());
        if found.is_none() && self.free[..wanted].iter().any(|blocks| blocks.len() > 1) {
            self.merge();
            found = (wanted..ORDERS).find(|order| !self.free[*order].is_empty());
        }
        let found = found?;
        let offset = self.free[found].pop()?;
        for order in wanted..found {
            self.free[order].push(offset + (SMALLEST << order));
        }
        self.used += SMALLEST << wanted;
        Some(offset)
    }

    /// Return a block that was taken with the same `bytes`.
    pub(crate) fn give(&mut self, offset: usize, bytes: usize) {
        let order = order(bytes);
        self.used -= SMALLEST << order;
        self.free[order].push(offset);
    }

    fn merge(&mut self) {
        for order in 0..ORDERS - 1 {
            let bytes = SMALLEST << order;
            let mut blocks = std::mem::take(&mut self.free[order]);
            blocks.sort_unstable_by(|one, other| other.cmp(one));
            let mut at = 0;
            while at < blocks.len() {
                let high = blocks[at];
                if blocks.get(at + 1) == Some(&high.wrapping_sub(bytes)) && !high.is_multiple_of(2 * bytes) {
                    self.free[order + 1].push(high - bytes);
                    at += 2;
                } else {
                    self.free[order].push(high);
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The size of a block for `bytes`.
    fn rounded(bytes: usize) -> usize {
        SMALLEST << order(bytes)
    }

    proptest! {
        #[test]
        fn no_byte_is_given_twice_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 1_usize..=LARGEST, any::<prop::sample::Index>()), 0..300),
        ) {
            let mut arena = Arena::new(LARGEST, 4 * LARGEST);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, bytes, which) in steps {
                if take {
                    let Some(offset) = arena.take(bytes) else { continue };
                    let end = offset + rounded(bytes);
                    prop_assert!(offset >= LARGEST && end <= 5 * LARGEST);
                    prop_assert!(taken.iter().all(|(other, size)| end <= *other || offset >= other + rounded(*size)));
                    taken.push((offset, bytes));
                } else if !taken.is_empty() {
                    let (offset, bytes) = taken.swap_remove(which.index(taken.len()));
                    arena.give(offset, bytes);
                }
                prop_assert_eq!(arena.used(), taken.iter().map(|(_, bytes)| rounded(*bytes)).sum::<usize>());
            }
            for (offset, bytes) in taken {
                arena.give(offset, bytes);
            }
            for _ in 0..4 {
                prop_assert!(arena.take(LARGEST).is_some(), "not merged");
            }
            prop_assert!(arena.take(1).is_none());
        }
    }
}
