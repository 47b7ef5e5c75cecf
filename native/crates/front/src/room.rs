//! Room that Python has reserved for PUTs where quotas apply, in the databases that have the limits.
//!
//! For each database with a limit there is a *pool* of *slices*: room for so many objects and bytes that Python holds at
//! the database's replicas for this process. A PUT takes a part, one object and its bytes, of a slice of each pool that
//! its grant names, before any device is asked; one that finds no room is for Python. What becomes of the parts is told
//! to Python, which lets go of them: they are *listed* (all of the container's replicas have the row) or *returned*.
//!
//! Fault model: devices may store an object although nobody hears of it, and list it later. So a part is returned only
//! if no device was asked for its PUT; what becomes of other parts is known when their rows are listed, and else they
//! count until the slice's time at the replicas is over. A slice is used only for a small part of that time.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use crate::made::Made;

/// Objects, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// The number of objects.
    pub objects: u64,
    /// Their sizes together.
    pub bytes: u64,
}

impl Amounts {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }

    fn holds(self, bytes: u64) -> bool {
        self.objects > 0 && self.bytes >= bytes
    }
}

#[derive(Debug)]
struct Slice {
    number: u64,
    left: Amounts,
    until: Instant,
}

#[derive(Debug, Default)]
struct Pool {
    slices: VecDeque<Slice>,
    taken: Amounts,
    short: u64,
}

impl Pool {
    fn find(&mut self, bytes: u64, now: Instant) -> Option<&mut Slice> {
        self.slices.iter_mut().find(|slice| now < slice.until && slice.left.holds(bytes))
    }
}

/// What a pool has, and what was taken since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The pool's number.
    pub pool: u64,
    /// What its slices have left.
    pub left: Amounts,
    /// What PUTs have taken.
    pub taken: Amounts,
    /// PUTs that found no room.
    pub short: u64,
}

/// Parts of slices whose rows all replicas of a container have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// `/account/container/`.
    pub container: Arc<[u8]>,
    /// The slices, and the sum of the parts of each.
    pub slices: Vec<(u64, Amounts)>,
    /// The name of the newest of the rows.
    pub row: Vec<u8>,
    /// And its timestamp.
    pub timestamp: u64,
}

impl Listed {
    /// Those of a batch of one container; None: no quota applies to it.
    pub(crate) fn of(made: &[Made]) -> Option<Self> {
        let newest = made.iter().filter(|one| !one.parts.is_empty()).max_by_key(|one| one.timestamp)?;
        let (container, row, timestamp) = (Arc::clone(&newest.container), newest.row.name.clone(), newest.timestamp);
        let mut listed = Self { container, slices: Vec::new(), row, timestamp };
        for one in made {
            one.parts.iter().for_each(|part| listed.amounts_of(*part).add(one.row.size));
        }
        Some(listed)
    }

    fn amounts_of(&mut self, slice: u64) -> &mut Amounts {
        let found = self.slices.iter().position(|(number, _)| *number == slice);
        let at = found.unwrap_or_else(|| {
            self.slices.push((slice, Amounts::default()));
            self.slices.len() - 1
        });
        &mut self.slices[at].1
    }

    fn join(&mut self, other: Self) {
        for (slice, more) in other.slices {
            let amounts = self.amounts_of(slice);
            amounts.objects += more.objects;
            amounts.bytes += more.bytes;
        }
        if other.timestamp > self.timestamp {
            (self.row, self.timestamp) = (other.row, other.timestamp);
        }
    }
}

/// Room of a slice that no PUT has taken, or that was brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The slice's number.
    pub slice: u64,
    /// How much.
    pub amounts: Amounts,
    /// Whether nothing more will be taken of the slice.
    pub ended: bool,
}

/// What has happened since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// One for each pool.
    pub levels: Vec<Level>,
    /// One for each container.
    pub listed: Vec<Listed>,
    /// In no order.
    pub returned: Vec<Returned>,
}

/// All pools of a front.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pools: HashMap<u64, Pool>,
    listed: HashMap<Arc<[u8]>, Listed>,
    returned: Vec<Returned>,
}

impl Room {
    /// Add a slice to a pool.
    pub(crate) fn lend(&mut self, pool: u64, number: u64, left: Amounts, until: Instant) {
        self.pools.entry(pool).or_default().slices.push_back(Slice { number, left, until });
    }

    /// Use a pool no more.
    pub(crate) fn recall(&mut self, pool: u64) {
        if let Some(pool) = self.pools.remove(&pool) {
            self.returned.extend(pool.slices.into_iter().map(ended));
        }
    }

    /// Take room for an object in each of the pools: the slices; None: there is not enough in one of them.
    pub(crate) fn take(&mut self, pools: &[u64], bytes: u64, now: Instant) -> Option<Vec<u64>> {
        let mut is_enough = true;
        for number in pools {
            let pool = self.pools.get_mut(number)?;
            if pool.find(bytes, now).is_none() {
                pool.short += 1;
                is_enough = false;
            }
        }
        if !is_enough {
            return None;
        }
        let mut parts = Vec::with_capacity(pools.len());
        for number in pools {
            let pool = self.pools.get_mut(number)?;
            pool.taken.add(bytes);
            let slice = pool.find(bytes, now)?;
            slice.left.objects -= 1;
            slice.left.bytes -= bytes;
            parts.push(slice.number);
        }
        Some(parts)
    }

    /// Bring back the parts of an object that is stored nowhere.
    pub(crate) fn give_back(&mut self, parts: &[u64], bytes: u64) {
        for part in parts {
            let mut slices = self.pools.values_mut().flat_map(|pool| pool.slices.iter_mut());
            if let Some(slice) = slices.find(|slice| slice.number == *part) {
                slice.left.add(bytes);
            } else {
                let amounts = Amounts { objects: 1, bytes };
                self.returned.push(Returned { slice: *part, amounts, ended: false });
            }
        }
    }

    /// Note parts that count as rows from now on.
    pub(crate) fn listed(&mut self, more: Listed) {
        match self.listed.get_mut(&more.container) {
            Some(known) => known.join(more),
            None => {
                self.listed.insert(Arc::clone(&more.container), more);
            }
        }
    }

    /// What has happened since the last call. Slices that are used up, or whose time is over, end here.
    pub(crate) fn spent(&mut self, now: Instant) -> Spent {
        let mut levels = Vec::with_capacity(self.pools.len());
        for (number, pool) in &mut self.pools {
            let is_over = |slice: &Slice| now >= slice.until || slice.left.objects == 0;
            let (over, live) = mem::take(&mut pool.slices).into_iter().partition::<VecDeque<_>, _>(is_over);
            self.returned.extend(over.into_iter().map(ended));
            pool.slices = live;
            let mut left = Amounts::default();
            for slice in &pool.slices {
                left.objects += slice.left.objects;
                left.bytes += slice.left.bytes;
            }
            let (taken, short) = (mem::take(&mut pool.taken), mem::take(&mut pool.short));
            levels.push(Level { pool: *number, left, taken, short });
        }
        Spent {
            levels,
            listed: self.listed.drain().map(|(_, one)| one).collect(),
            returned: mem::take(&mut self.returned),
        }
    }
}

fn ended(slice: Slice) -> Returned {
    Returned { slice: slice.number, amounts: slice.left, ended: true }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use swiftlet_store::model::Key;

    use super::*;
    use crate::row::Row;

    const CONTAINER: u64 = 1;
    const ACCOUNT: u64 = 2;

    fn amounts(objects: u64, bytes: u64) -> Amounts {
        Amounts { objects, bytes }
    }

    /// Both pools have a slice each, by numbers ten times theirs, for a second from now.
    fn room(of_container: Amounts, of_account: Amounts) -> (Room, Instant) {
        let (mut room, now) = (Room::default(), Instant::now());
        let end = now + Duration::from_secs(1);
        room.lend(CONTAINER, 10, of_container, end);
        room.lend(ACCOUNT, 20, of_account, end);
        (room, now)
    }

    fn left(room: &mut Room, now: Instant) -> Vec<(u64, Amounts)> {
        let mut left: Vec<_> = room.spent(now).levels.iter().map(|level| (level.pool, level.left)).collect();
        left.sort_unstable_by_key(|(pool, _)| *pool);
        left
    }

    fn made(name: &str, timestamp: u64, size: u64, parts: &[u64]) -> Made {
        Made {
            token: 0,
            container: b"/a/c/"[..].into(),
            rows: Arc::new([]),
            awaited: 0,
            row: Row { name: name.into(), timestamp, size, ..Row::default() },
            key: Key { policy: 0, partition: 0, digest: [0; 16] },
            timestamp,
            devices: Vec::new(),
            holders: Vec::new(),
            id: String::new(),
            parts: parts.into(),
            is_task: false,
        }
    }

    #[test]
    fn a_part_is_taken_everywhere_or_nowhere() {
        let (mut room, now) = room(amounts(5, 100), amounts(2, 60));
        assert_eq!(room.take(&[CONTAINER, ACCOUNT], 30, now), Some(vec![10, 20]));
        assert_eq!(room.take(&[CONTAINER, ACCOUNT], 31, now), None, "the account has fewer bytes");
        assert_eq!(room.take(&[CONTAINER, ACCOUNT], 30, now), Some(vec![10, 20]));
        assert_eq!(room.take(&[CONTAINER, ACCOUNT], 0, now), None, "no objects are left");
        assert_eq!(room.take(&[CONTAINER], 40, now), Some(vec![10]));
        assert_eq!(room.take(&[], 1 << 40, now), Some(vec![]));
        assert_eq!(room.take(&[CONTAINER, 7], 0, now), None, "nobody knows this pool");
        let mut spent = room.spent(now);
        spent.levels.sort_unstable_by_key(|level| level.pool);
        let level = |pool, left, taken, short| Level { pool, left, taken, short };
        assert_eq!(
            spent.levels,
            [level(CONTAINER, amounts(2, 0), amounts(3, 100), 0), level(ACCOUNT, amounts(0, 0), amounts(2, 60), 2)]
        );
        assert_eq!(spent.returned, [Returned { slice: 20, amounts: amounts(0, 0), ended: true }]);
        assert_eq!(room.spent(now).levels.iter().map(|level| level.short).sum::<u64>(), 0);
    }

    #[test]
    fn the_next_slice_follows_the_one_that_has_no_room() {
        let (mut room, now) = room(amounts(2, 10), amounts(0, 0));
        room.lend(CONTAINER, 11, amounts(2, 100), now + Duration::from_secs(1));
        assert_eq!(room.take(&[CONTAINER], 50, now), Some(vec![11]), "the first has too few bytes");
        assert_eq!(room.take(&[CONTAINER], 5, now), Some(vec![10]));
        assert_eq!(room.take(&[CONTAINER], 5, now), Some(vec![10]));
        assert_eq!(room.take(&[CONTAINER], 5, now), Some(vec![11]));
        assert_eq!(room.take(&[CONTAINER], 0, now), None);
    }

    #[test]
    fn nothing_is_taken_of_what_has_ended() {
        let (mut room, now) = room(amounts(5, 50), amounts(5, 50));
        let end = now + Duration::from_secs(1);
        assert!(room.take(&[CONTAINER], 10, end - Duration::from_millis(1)).is_some());
        assert_eq!(room.take(&[CONTAINER], 10, end), None);
        let mut returned = room.spent(end).returned;
        returned.sort_unstable_by_key(|one| one.slice);
        let ended = |slice, amounts| Returned { slice, amounts, ended: true };
        assert_eq!(returned, [ended(10, amounts(4, 40)), ended(20, amounts(5, 50))]);
        assert_eq!(room.spent(end).returned, []);
        room.lend(CONTAINER, 11, amounts(5, 50), end + Duration::from_secs(1));
        room.recall(CONTAINER);
        room.recall(CONTAINER);
        assert_eq!(room.take(&[CONTAINER], 0, end), None);
        assert_eq!(room.spent(end).returned, [ended(11, amounts(5, 50))]);
    }

    #[test]
    fn what_is_brought_back_can_be_taken_again() {
        let (mut room, now) = room(amounts(1, 10), amounts(1, 10));
        let parts = room.take(&[CONTAINER, ACCOUNT], 10, now).expect("room");
        room.give_back(&parts, 10);
        assert_eq!(room.take(&[CONTAINER, ACCOUNT], 10, now), Some(parts.clone()));
        room.recall(ACCOUNT);
        room.give_back(&parts, 10);
        assert_eq!(left(&mut room, now), [(CONTAINER, amounts(1, 10))]);
        let parts = room.take(&[CONTAINER], 10, now).expect("room");
        let end = now + Duration::from_secs(1);
        assert_eq!(room.spent(end).returned, [Returned { slice: 10, amounts: amounts(0, 0), ended: true }]);
        room.give_back(&parts, 10);
        assert_eq!(room.spent(end).returned, [Returned { slice: 10, amounts: amounts(1, 10), ended: false }]);
    }

    #[test]
    fn rows_of_a_container_are_told_together_by_the_newest() {
        assert_eq!(Listed::of(&[made("a", 1, 5, &[])]), None);
        let first = Listed::of(&[made("a", 1, 5, &[10, 20]), made("c", 9, 5, &[]), made("b", 3, 7, &[10, 21])]);
        let first = first.expect("two have parts");
        assert_eq!((first.row.as_slice(), first.timestamp), (&b"b"[..], 3));
        let mut room = Room::default();
        room.listed(first);
        room.listed(Listed::of(&[made("z", 2, 1, &[20])]).expect("it has parts"));
        let listed = room.spent(Instant::now()).listed;
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].row.as_slice(), listed[0].timestamp), (&b"b"[..], 3));
        assert_eq!(listed[0].slices, [(10, amounts(2, 12)), (20, amounts(2, 6)), (21, amounts(1, 7))]);
        assert_eq!(room.spent(Instant::now()), Spent::default());
    }
}
