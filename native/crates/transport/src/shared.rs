//! Memory that this process and guests on its machine show each other.
//!
//! Members show each other their whole pools. A guest would see other accounts' bodies there, so each has memory of its
//! own. What it sends is copied from the memory that it shows, once there is memory of guests for it, as RDMA fetches
//! it; everything after that is done with the copy. What it reads is lent from a region that was made for its connection
//! and has never held anybody else's bytes.
//!
//! Fault model: a guest changes what it shows at any time, also while it is copied: the copy is what counts, and is
//! compared with its xxh3. It names addresses outside of its memory: refused. Its memory has to come from swap: only the
//! thread that copies waits. It never gives back what it was lent, or keeps the region when its connection is over: the
//! region counts as used until the system says that nobody has it, so that all regions together never have more bytes
//! than they may; without one, bodies go through the socket. It can't write to a region, and so not make this process
//! believe that what it has just read from a device is damaged. A guest that dies lets go of everything.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::link::Fetched;
use crate::memory::{Region, Shown};
use crate::pool::{Buffer, Pool};

/// Size of the region of one connection: what is lent at a time, and what is read ahead.
const REGION_MIB: usize = 4;

/// The regions of all guests' connections, and those that were not let go of.
#[derive(Clone, Debug)]
pub struct Regions {
    /// How many there may be.
    limit: usize,
    all: Arc<Mutex<Vec<Arc<Region>>>>,
}

impl Regions {
    /// Regions with so many bytes together; None if that is less than one has.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Option<Self> {
        let limit = limit_bytes / (REGION_MIB << 20);
        (limit > 0).then(|| Self { limit, all: Arc::default() })
    }

    /// A region for a connection, if there is room for one.
    pub(crate) fn take(&self) -> Option<Pool> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is still lent from is in a pool as well.
        all.retain(|region| Arc::strong_count(region) > 1 || region.is_held_by_others());
        if all.len() >= self.limit {
            return None;
        }
        let pool = Pool::of_answers(REGION_MIB).ok()?;
        all.push(Arc::clone(pool.region()));
        Some(pool)
    }
}

struct Job {
    from: Arc<Shown>,
    address: u64,
    into: Buffer,
    then: Fetched,
}

/// Copies what guests show, in a thread of its own, which ends with this.
#[derive(Default)]
pub(crate) struct Copies(OnceLock<io::Result<Sender<Job>>>);

impl Copies {
    /// Fill memory from this address on. `then` is called by the thread. What is under way is limited by the memory of
    /// guests.
    pub(crate) fn copy(&self, from: &Arc<Shown>, address: u64, into: Buffer, then: Fetched) {
        let job = Job { from: Arc::clone(from), address, into, then };
        match self.0.get_or_init(start) {
            // A thread that is gone has dropped what waited for it: the connection ends by its streams' deadlines.
            Ok(thread) => drop(thread.send(job)),
            Err(error) => (job.then)(Err(error.kind().into())),
        }
    }
}

fn start() -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    let work = move || {
        for Job { from, address, mut into, then } in jobs {
            let copied = from.copy(address, into.as_mut_slice());
            then(copied.map(|()| into));
        }
    };
    std::thread::Builder::new().name("transport-copies".to_owned()).spawn(work)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_limited_and_come_back_when_nobody_has_them() {
        assert!(Regions::new((REGION_MIB << 20) - 1).is_none());
        let regions = Regions::new((2 * REGION_MIB) << 20).expect("room for two");
        let (one, two) = (regions.take().expect("the first"), regions.take().expect("the second"));
        assert!(regions.take().is_none());
        drop(one);
        let three = regions.take().expect("that of the first");
        let kept = two.region().for_reading().expect("a descriptor");
        drop(two);
        assert!(regions.take().is_none(), "a guest that keeps it keeps its place");
        drop(kept);
        assert!(regions.take().is_some());
        drop(three);
    }
}
