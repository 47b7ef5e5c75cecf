//! State that the parts of a store share; the store itself uses them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::aggregate::AggregateLimits;
use crate::device::Device;
use crate::disk::Blocks;
use crate::index::Index;
use crate::large;
use crate::model::Key;
use crate::pending::PendingUpdates;
use crate::queue::Queue;
use crate::room::Room;
use crate::volume::{Volume, Volumes};

/// The configuration of a store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Free bytes that new data must leave.
    pub reserve_bytes: u64,
    /// Size at which a volume is full.
    pub volume_bytes: u64,
    /// Objects up to this size are stored in volumes unless their writer or their policy says otherwise; at most 4
    /// MiB.
    pub aggregate_below: u64,
    /// A volume with a smaller share of live records is rewritten.
    pub live_share: f64,
    /// Bytes of records after which a checkpoint is written; more when the index is large.
    pub checkpoint_bytes: u64,
    /// Bytes per second that compaction copies when the store runs it by itself, 0 for no limit.
    pub compact_bytes_per_s: u64,
    /// Bytes per second that the auditor reads, 0 to leave auditing to `audit`.
    pub audit_bytes_per_s: u64,
    /// Run threads for commits and upkeep. Without them a blocking call commits by itself, and the caller runs upkeep.
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

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches committed, without marks.
    pub batches: AtomicU64,
    /// Records found damaged and taken out of service.
    pub quarantined: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Volumes rewritten.
    pub compacted: AtomicU64,
    /// Bytes returned to the file system by punching holes.
    pub punched_bytes: AtomicU64,
    /// Bytes that compaction has copied.
    pub copied_bytes: AtomicU64,
    /// Bytes that were read for checks.
    pub audited_bytes: AtomicU64,
    /// Completed passes of the auditor.
    pub audits: AtomicU64,
}

/// Where the next batch is written.
#[derive(Default)]
pub(crate) struct Log {
    /// The volume that is written to.
    pub(crate) active: Option<Arc<Volume>>,
    /// What is ready behind its end.
    pub(crate) room: Room,
    /// Memory in which a batch is gathered.
    pub(crate) blocks: Blocks,
    /// The next record's number.
    pub(crate) sequence: u64,
    /// Records of this process with lower numbers have a batch after them in their volume, or need none.
    pub(crate) proven: u64,
    /// The next record's number at the last check for activity.
    pub(crate) seen: u64,
}

impl Log {
    /// The state at the start of a process.
    #[must_use]
    pub(crate) fn at(sequence: u64) -> Self {
        Self { sequence, proven: sequence, seen: sequence, ..Self::default() }
    }
}

/// The state of upkeep. It is held while one task of upkeep runs, so that no two run at once.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// The volume that compaction writes to.
    pub(crate) target: Option<Arc<Volume>>,
    /// Size of the last checkpoint.
    pub(crate) checkpoint_bytes: u64,
    /// Up to where this process's last checkpoint includes each volume.
    pub(crate) covered: HashMap<u32, u64>,
}

/// The end of a store, which background work checks while it pauses.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    stopping: Condvar,
}

impl Stop {
    /// End all pauses.
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.notify_all();
    }

    /// Pause, so that background work keeps to its rate; false once the store is being closed.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.stopping.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Called with what answers all requests of a batch, which it calls once.
pub type Answering = fn(&mut dyn FnMut());

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
    /// Where the auditor continues.
    pub(crate) audited: Mutex<Option<Key>>,
    pub(crate) large: large::Numbers,
    pub(crate) counters: Counters,
    pub(crate) pending: PendingUpdates,
    /// Bytes of records since the last checkpoint.
    pub(crate) tail: AtomicU64,
    /// Whether an earlier process has left records that no checkpoint includes.
    pub(crate) needs_checkpoint: AtomicBool,
    pub(crate) stop: Stop,
    /// Inside of this all requests of a batch are answered.
    pub(crate) answering: OnceLock<Answering>,
}

impl Inner {
    /// Remove large files without references; those that can't be removed now are removed at the next start.
    pub(crate) fn remove_large(&self, numbers: &[u64]) {
        for number in numbers.iter().filter(|number| **number != 0) {
            self.device.disk.reach("large-unlink");
            let _ = self.device.disk.unlink(&large::path_of(*number));
        }
    }
}
