//! Limits the memory that all runs of a process use for objects whose turn has not come.
//!
//! Fault model: many runs at once, each with bytes of later objects in the transport's memory. Without a limit these
//! could use up all of it, and none of the runs could get any for the object that it needs next: all would stop. So
//! the memory for reading ahead is limited, and nobody waits for it: a run that gets none requests one object at a
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of bytes that all runs share.
#[derive(Debug)]
pub struct Ahead {
    limit: u64,
    used: AtomicU64,
}

/// A part of it, until it is dropped.
pub(crate) struct Reserved {
    from: Arc<Ahead>,
    bytes: u64,
}

impl Ahead {
    /// `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Reserve a part of it, at once or not at all.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reserved> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Reserved { from: Arc::clone(self), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.from.used.fetch_sub(self.bytes, Relaxed);
    }
}
