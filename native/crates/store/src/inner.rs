//! What the parts of a store share: the store itself stands above them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::aggregate::AggregateLimits;
use crate::device::Device;
use crate::index::Index;
use crate::large;
use crate::model::Key;
use crate::pending::PendingUpdates;
use crate::queue::Queue;
use crate::volume::{Volume, Volumes};

/// How a store is run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Free bytes that new data leaves alone.
    pub reserve_bytes: u64,
    /// Size at which a volume is full.
    pub volume_bytes: u64,
    /// Objects up to this size lie in volumes where neither their writer nor their policy says otherwise; 4 MiB at most.
    pub aggregate_below: u64,
    /// A volume of which less than this share is held is rewritten.
    pub live_share: f64,
    /// Bytes of records after which a checkpoint is written; more when the index is large.
    pub checkpoint_bytes: u64,
    /// Bytes that compaction copies in a second when the store does it by itself, 0 for as many as the device takes.
    pub compact_bytes_per_s: u64,
    /// Bytes that the auditor reads in a second, 0 to leave auditing to `audit`.
    pub audit_bytes_per_s: u64,
    /// Run threads for commits and upkeep. Without them a blocking call commits by itself, and upkeep is called.
    pub threads: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reserve_bytes: 0,
            volume_bytes: 1024 * 1024 * 1024,
            aggregate_below: 1024 * 1024,
            live_share: 0.5,
            checkpoint_bytes: 256 * 1024 * 1024,
            compact_bytes_per_s: 0,
            audit_bytes_per_s: 0,
            threads: true,
        }
    }
}

/// What is counted since the store was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches committed, marks not among them.
    pub batches: AtomicU64,
    /// Records found damaged and taken out of service.
    pub quarantined: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Volumes rewritten.
    pub compacted: AtomicU64,
    /// Bytes given back by holes.
    pub punched_bytes: AtomicU64,
    /// Bytes that compaction has copied.
    pub copied_bytes: AtomicU64,
    /// Bytes that were read to be checked.
    pub audited_bytes: AtomicU64,
    /// Times that the auditor has been through everything.
    pub audits: AtomicU64,
}

/// Where the next batch goes.
#[derive(Default)]
pub(crate) struct Log {
    /// The volume that is written to.
    pub(crate) active: Option<Arc<Volume>>,
    /// The next record's number.
    pub(crate) sequence: u64,
    /// Records of this life with lower numbers have a batch behind them in their volume, or prove themselves nothing.
    pub(crate) proven: u64,
    /// The next record's number when it was last asked whether anything is going on.
    pub(crate) seen: u64,
}

impl Log {
    /// Where a life begins.
    #[must_use]
    pub(crate) fn at(sequence: u64) -> Self {
        Self { active: None, sequence, proven: sequence, seen: sequence }
    }
}

/// Where upkeep is. Held while one kind of it runs, so that they never run at once.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// The volume that compaction writes to.
    pub(crate) target: Option<Arc<Volume>>,
    /// Size of the last checkpoint.
    pub(crate) checkpoint_bytes: u64,
    /// Up to where this process's last checkpoint has each volume.
    pub(crate) covered: HashMap<u32, u64>,
}

/// The end of a store, for which what is done beside everything else looks while it rests.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    stopping: Condvar,
}

impl Stop {
    /// Let nobody rest any more.
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.notify_all();
    }

    /// Rest, so that work beside everything else keeps to its rate; false once the store is being closed.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stopping.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Everything that the store's threads share.
pub(crate) struct Inner {
    pub(crate) aggregate: AggregateLimits,
    pub(crate) config: Config,
    pub(crate) device: Device,
    pub(crate) volumes: Volumes,
    pub(crate) index: Index,
    pub(crate) queue: Queue,
    pub(crate) log: Mutex<Log>,
    pub(crate) upkeep: Mutex<Upkeep>,
    /// Where the auditor goes on.
    pub(crate) audited: Mutex<Option<Key>>,
    pub(crate) large: large::Numbers,
    pub(crate) counters: Counters,
    pub(crate) pending: PendingUpdates,
    /// Bytes of records since the last checkpoint.
    pub(crate) tail: AtomicU64,
    /// Whether a life before this one has left records that no checkpoint covers.
    pub(crate) needs_checkpoint: AtomicBool,
    pub(crate) stop: Stop,
}

impl Inner {
    /// Remove large files that nothing refers to; what can't be removed now goes at the next start.
    pub(crate) fn remove_large(&self, numbers: &[u64]) {
        for number in numbers.iter().filter(|number| **number != 0) {
            self.device.disk.reach("large-unlink");
            let _ = self.device.disk.unlink(&large::path_of(*number));
        }
    }
}
