//! Memory for the index's leaves.
//!
//! A lookup in millions of objects ends at a leaf that is in no cache; a missing entry for its page in the TLB costs
//! as much again. Full-grown leaves are therefore next to each other in large regions, for which the system is asked
//! to use huge pages. Regions are shared by all stores of a process and stay with it: what one store releases, another
//! one uses. Small leaves are allocated separately, so that many almost empty partitions take little memory.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::slot::Slot;

/// Slots in a leaf before it is split.
pub(super) const LEAF: usize = 64;
/// A leaf with more slots than these is put into a region.
const SMALL: usize = LEAF / 2;
/// Leaves per region in a small process: 640 KiB.
const FEW: usize = 256;
/// Leaves per region in a process with more than `MANY`: 8 MiB and 16 MiB, and between them a share of the existing
/// ones.
const MORE: std::ops::RangeInclusive<usize> = 3276..=6552;
const MANY: usize = 1024;
const GROWTH: usize = 8;
/// The size of a huge page; on systems with another size the advice has no effect.
const HUGE_PAGE: usize = 2 * 1024 * 1024;

/// A place in a region, of whole cache lines.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(super) struct Place([Slot; LEAF]);

struct Pool {
    free: Vec<&'static mut Place>,
    leaves: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), leaves: 0 });

impl Pool {
    fn take(&mut self) -> &'static mut Place {
        loop {
            if let Some(place) = self.free.pop() {
                return place;
            }
            let count = if self.leaves < MANY { FEW } else { (self.leaves / GROWTH).clamp(*MORE.start(), *MORE.end()) };
            let mut region = Vec::with_capacity(count);
            // Before the first byte of it is touched.
            prefer_huge_pages(&mut region);
            region.resize(count, Place([Slot::NONE; LEAF]));
            self.leaves += count;
            self.free.extend(region.leak().iter_mut().rev());
        }
    }
}

fn prefer_huge_pages(region: &mut Vec<Place>) {
    let bytes = region.capacity() * size_of::<Place>();
    let start = region.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE_PAGE);
    let len = bytes.saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
    if len > 0 {
        // Where it is refused lookups are slower, and that is all.
        // SAFETY: the range lies in memory that is allocated and ours, and the advice changes nothing of what is in it.
        #[allow(unsafe_code, reason = "there is no safe way to ask for huge pages")]
        let asked =
            unsafe { rustix::mm::madvise(start.wrapping_add(skipped).cast(), len, rustix::mm::Advice::LinuxHugepage) };
        let _ = asked;
    }
}

/// Some slots, at most `LEAF`.
pub(super) enum Slots {
    /// Few slots, allocated separately.
    Own(Vec<Slot>),
    /// The first ones of a place in a region, which is missing only while this is dropped.
    Lent(Option<&'static mut Place>, usize),
}

impl Slots {
    /// One slot.
    pub(super) fn one(slot: Slot) -> Self {
        Self::Own(vec![slot])
    }

    /// Insert a slot at index `at`.
    pub(super) fn insert(&mut self, at: usize, slot: Slot) {
        if let Self::Own(own) = self {
            if own.len() < SMALL {
                return own.insert(at, slot);
            }
            let place = POOL.lock().unwrap_or_else(PoisonError::into_inner).take();
            let grown = Self::Lent(Some(place), own.len());
            let own = std::mem::take(own);
            *self = grown;
            self.copy_from_slice(&own);
        }
        if let Self::Lent(Some(place), len) = self {
            place.0.copy_within(at..*len, at + 1);
            place.0[at] = slot;
            *len += 1;
        }
    }

    /// Remove a slot.
    pub(super) fn remove(&mut self, at: usize) {
        match self {
            Self::Own(own) => drop(own.remove(at)),
            Self::Lent(place, len) => {
                if let Some(place) = place {
                    place.0.copy_within(at + 1..*len, at);
                    *len -= 1;
                }
            }
        }
    }

    /// Keep the first `at` and return the others.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let right = Self::Own(self[at..].to_vec());
        match self {
            Self::Own(own) => own.truncate(at),
            Self::Lent(_, len) => *len = at,
        }
        right
    }
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        match self {
            Self::Own(own) => own,
            Self::Lent(place, len) => place.as_ref().map_or(&[], |place| &place.0[..*len]),
        }
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [Slot] {
        match self {
            Self::Own(own) => own,
            Self::Lent(place, len) => place.as_mut().map_or(&mut [], |place| &mut place.0[..*len]),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if let Self::Lent(place, _) = self {
            POOL.lock().unwrap_or_else(PoisonError::into_inner).free.extend(place.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAF, SMALL, Slot, Slots};

    fn slot(number: usize) -> Slot {
        let mut slot = Slot::NONE;
        slot.timestamp = number as u64;
        slot
    }

    fn numbers(slots: &[Slot]) -> Vec<u64> {
        slots.iter().map(|slot| slot.timestamp).collect()
    }

    #[test]
    fn it_changes_as_a_vector_does() {
        let mut slots = Slots::one(slot(0));
        let mut model = vec![slot(0)];
        for step in 1..10_000 {
            let at = step * 7919 % (model.len() + 1);
            if model.len() < LEAF && (step / 100 % 2 == 0 || model.len() < 2) {
                slots.insert(at, slot(step));
                model.insert(at, slot(step));
            } else {
                slots.remove(at.min(model.len() - 1));
                model.remove(at.min(model.len() - 1));
            }
            if step % 500 == 0 && model.len() > 1 {
                let half = model.len() / 2;
                assert_eq!(numbers(&slots.split_off(half)), numbers(&model.split_off(half)));
            }
            assert_eq!(numbers(&slots), numbers(&model));
        }
    }

    #[test]
    fn what_is_let_go_is_taken_again_and_nobody_has_the_same() {
        for _ in 0..3 {
            let mut all: Vec<Slots> = (0..600).map(|number| Slots::one(slot(number))).collect();
            for (number, slots) in all.iter_mut().enumerate() {
                (0..SMALL).for_each(|at| slots.insert(at, slot(number)));
                assert!(matches!(slots, Slots::Lent(..)));
            }
            assert!(
                all.iter().enumerate().all(|(number, slots)| slots.iter().all(|slot| slot.timestamp == number as u64))
            );
        }
    }
}
