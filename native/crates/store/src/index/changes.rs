//! The partitions whose roots have changed, in the order of their changes: a list of bounded length.
//!
//! A partition is added when its root was read and is then changed, or when it comes or goes. Further changes until its
//! root is read again add nothing, so a device that is written to without being compared has each partition here once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PartitionId;

/// The longest list; who has not asked for so many changes reads all roots.
const MOST: usize = 1 << 16;

/// Where the next list begins: positions of one device's list mean nothing in another's, nor after a device was opened
/// anew.
static NEXT_LIST: AtomicU64 = AtomicU64::new(0);
/// The distance between two lists, which is longer than any list gets.
const APART: u64 = 1 << 40;

/// The list.
pub(crate) struct Changes {
    list: VecDeque<PartitionId>,
    /// The position of the first one that is still in the list.
    first: u64,
}

impl Default for Changes {
    fn default() -> Self {
        Self { list: VecDeque::new(), first: NEXT_LIST.fetch_add(APART, Ordering::Relaxed) }
    }
}

impl Changes {
    /// Add a partition.
    pub(crate) fn add(&mut self, id: PartitionId) {
        if self.list.len() == MOST {
            self.list.pop_front();
            self.first += 1;
        }
        self.list.push_back(id);
    }

    /// The next position, and the partitions since a position; None when they are not known.
    pub(crate) fn since(&self, position: Option<u64>) -> (u64, Option<Vec<PartitionId>>) {
        let next = self.first + self.list.len() as u64;
        let from = position.and_then(|position| position.checked_sub(self.first)).filter(|_| position <= Some(next));
        (next, from.map(|from| self.list.range(from as usize..).copied().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_what_came_since() {
        let mut changes = Changes::default();
        let (begin, none) = changes.since(None);
        assert_eq!(none, None);
        changes.add((0, 3));
        changes.add((1, 4));
        assert_eq!(changes.since(Some(begin)), (begin + 2, Some(vec![(0, 3), (1, 4)])));
        assert_eq!(changes.since(Some(begin + 1)), (begin + 2, Some(vec![(1, 4)])));
        assert_eq!(changes.since(Some(begin + 2)), (begin + 2, Some(vec![])));
        assert_eq!(changes.since(Some(begin + 3)), (begin + 2, None));
    }

    #[test]
    fn what_is_forgotten_is_not_known() {
        let mut changes = Changes::default();
        let (begin, _) = changes.since(None);
        for number in 0..=MOST as u32 {
            changes.add((0, number));
        }
        let next = begin + MOST as u64 + 1;
        assert_eq!(changes.since(Some(begin)), (next, None));
        let (_, found) = changes.since(Some(begin + 1));
        assert_eq!(found.map(|found| found.len()), Some(MOST));
    }

    #[test]
    fn positions_of_another_list_are_not_known() {
        let (mut one, mut other) = (Changes::default(), Changes::default());
        one.add((0, 1));
        other.add((0, 1));
        let (in_one, in_other) = (one.since(None).0, other.since(None).0);
        assert_eq!((one.since(Some(in_other)).1, other.since(Some(in_one)).1), (None, None));
    }
}
