//! The store: the interface for servers.

mod fragments;
mod packs;
mod pending;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::aggregate::{AggregateLimits, MAX_AGGREGATE};
use crate::commit;
use crate::disk::{Disk, RealDisk};
use crate::error::{Error, Result};
use crate::index::{Partition, PartitionId};
use crate::inner::{Answering, Config, Counters, Inner, Log, Stop};
use crate::large;
use crate::model::{Entry, EntryKind, Footer, Info, Key, PostMeta, PutMeta, Suffix, Timestamp, Usage};
use crate::queue::{Done, Op, Queue};
use crate::read::{self, AtOnce, Got, Object};
use crate::recover::{self, Recovery};
use crate::unsound;
use crate::upkeep;
use crate::writer::{Writer, check_footer, put_op};

/// The shortest time between two begins of the auditor's passes.
const SHORTEST_AUDIT: Duration = Duration::from_secs(3600);
/// Tombstones that are forgotten in one batch; waiting writers come next.
const RECLAIMED_AT_ONCE: usize = 256;

pub use self::fragments::{COPIES, KeptAs, PARTITIONS, Undecided, Unsettled};
pub use self::packs::{Cold, PackHere, PackState, PackUse};

enum Write {
    Put { meta: PutMeta, footer: Footer, data: Vec<u8> },
    Delete { timestamp: Timestamp, name: Vec<u8> },
}

/// One of many writes that are submitted at once.
pub struct Submission {
    key: Key,
    op: Write,
    row: u32,
    done: Done,
}

impl Submission {
    /// A small object, which is here as a whole, with the container replicas (bits) that its update is for.
    #[must_use]
    pub fn put(key: Key, meta: PutMeta, footer: Footer, data: Vec<u8>, row: u32, done: Done) -> Self {
        Self { key, op: Write::Put { meta, footer, data }, row, done }
    }

    /// A tombstone.
    #[must_use]
    pub fn delete(key: Key, timestamp: Timestamp, name: Vec<u8>, row: u32, done: Done) -> Self {
        Self { key, op: Write::Delete { timestamp, name }, row, done }
    }
}

/// All objects of all storage policies on one device. It may be used by many threads.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    recovery: Recovery,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Store {
    /// Own the device in a directory.
    pub fn open(root: &Path, config: Config) -> Result<Self> {
        Self::open_disk(RealDisk::open(root)?, config)
    }

    /// Own the device in a directory, and rebuild its index from the volumes.
    ///
    /// This loses what only a checkpoint records: that a record at the very end of a volume was acknowledged before it
    /// was damaged.
    pub fn rebuild(root: &Path, config: Config) -> Result<Self> {
        let disk = RealDisk::open(root)?;
        recover::drop_checkpoints(&*disk)?;
        let store = Self::open_disk(disk, config)?;
        store.checkpoint()?;
        Ok(store)
    }

    /// A store on a disk that this process owns.
    pub fn open_disk(disk: Arc<dyn Disk>, config: Config) -> Result<Self> {
        let recovered = recover::recover(disk, config.reserve_bytes)?;
        let threaded = config.threads;
        let inner = Arc::new(Inner {
            aggregate: AggregateLimits::new(config.aggregate_below),
            config,
            device: recovered.device,
            volumes: recovered.volumes,
            index: recovered.index,
            queue: Queue::default(),
            log: Mutex::new(Log::at(recovered.sequence)),
            upkeep: Mutex::default(),
            audited: Mutex::default(),
            large: large::Numbers::new(recovered.next_large),
            counters: Counters::default(),
            pending: recovered.pending,
            tail: AtomicU64::new(recovered.tail_bytes),
            needs_checkpoint: AtomicBool::new(recovered.recovery.records > 0),
            stop: Stop::default(),
            answering: OnceLock::new(),
        });
        let mut threads = Vec::new();
        if threaded {
            threads.push(spawn("store-commit", &inner, |inner| {
                while inner.queue.wait() {
                    commit::commit_pending(inner);
                }
            })?);
            threads.push(spawn("store-upkeep", &inner, upkeep_loop)?);
            if inner.config.audit_bytes_per_s > 0 {
                threads.push(spawn("store-audit", &inner, audit_loop)?);
            }
        }
        let store = Self { inner, recovery: recovered.recovery, threads: Mutex::new(threads) };
        store.inner.counters.quarantined.fetch_add(recovered.lost.len() as u64, Ordering::Relaxed);
        match commit::ask_all(&store.inner, recovered.lost.iter().map(|key| (*key, Op::ForgetLost))) {
            // The next start finds the damaged records again, and forgets by them until there is room.
            Ok(_) | Err(Error::DiskFull(_)) => {}
            Err(error) => return Err(error),
        }
        for (key, place) in &recovered.unsound {
            unsound::unless_moved(&store.inner, key, *place)?;
        }
        Ok(store)
    }

    /// The findings of the start.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Commit waiting requests in this thread; false when there were none. For stores without threads.
    pub fn commit_pending(&self) -> bool {
        commit::commit_pending(&self.inner)
    }

    /// Answer the requests of a batch inside of this from now on, so that what their answers wake is woken once. The
    /// first one counts.
    pub fn answer_inside(&self, answering: Answering) {
        self.inner.answering.get_or_init(|| answering);
    }

    // -- limits

    /// The size up to which objects of the policy are stored in volumes.
    #[must_use]
    pub fn aggregate_below(&self, policy: u16) -> u64 {
        self.inner.aggregate.of(policy)
    }

    /// Store objects of these policies in volumes up to these sizes from now on, at most 4 MiB, and those of all
    /// others up to the configured one. Stored objects stay where they are.
    pub fn set_aggregate_below(&self, limits: &[(u16, u64)]) {
        self.inner.aggregate.set(limits);
    }

    // -- writing

    /// Begin a new version of any size. `size` if it is known, so that a full disk is refused before the first byte;
    /// with `aggregate_below` None the policy's is used.
    pub fn create(&self, key: Key, size: Option<u64>, aggregate_below: Option<u64>) -> Result<Writer> {
        self.inner.device.check()?;
        self.inner.device.check_room(size.unwrap_or(0))?;
        let limit = aggregate_below.map_or_else(|| self.aggregate_below(key.policy), |limit| limit.min(MAX_AGGREGATE));
        Ok(Writer::new(Arc::clone(&self.inner), key, size, limit))
    }

    /// Store a small object, which is here as a whole, in a volume; `done` is called when it is durable, or failed.
    pub fn submit_put(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, done: Done) {
        self.check_and_push_put(key, meta, footer, data, 0, done);
    }

    fn check_and_push_put(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, row: u32, done: Done) {
        match self.put_of(key, meta, footer, data, row) {
            Ok(op) => self.inner.queue.push(key, op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Submit many writes at once, so that they share a commit; each is answered by itself.
    pub fn submit_all(&self, all: Vec<Submission>) {
        let mut ready = Vec::with_capacity(all.len());
        for Submission { key, op, row, done } in all {
            match self.op_of(key, op, row) {
                Ok(op) => ready.push((key, op, done)),
                Err(error) => done(Err(error)),
            }
        }
        self.inner.queue.push_all(ready);
    }

    fn op_of(&self, key: Key, write: Write, row: u32) -> Result<Op> {
        match write {
            Write::Delete { timestamp, name } => Ok(Op::Delete { timestamp, name, row }),
            Write::Put { meta, footer, data } => self.put_of(key, &meta, &footer, data, row),
        }
    }

    fn put_of(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, row: u32) -> Result<Op> {
        self.inner.device.check()?;
        self.inner.device.check_room(data.len() as u64)?;
        if data.len() as u64 > MAX_AGGREGATE {
            return Err(Error::SizeMismatch(format!("{} bytes do not fit into a volume", data.len())));
        }
        check_footer(footer, data.len() as u64, swiftlet_hash::xxh3_64(&data))?;
        Ok(put_op(key, meta, footer, data, row))
    }

    /// Store a small object; false when the same version was already here.
    pub fn put(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_put(key, meta, footer, data, done))
    }

    /// Merge POSTed metadata; `done` is called when they are durable, or failed.
    pub fn submit_post(&self, key: Key, meta: PostMeta, done: Done) {
        self.submit_post_with_row(key, meta, 0, done);
    }

    /// Merge POSTed metadata.
    pub fn post(&self, key: Key, meta: PostMeta) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_post(key, meta, done))
    }

    /// Store a tombstone, also below the reserve. `done` is called when it is durable, or failed.
    pub fn submit_delete(&self, key: Key, timestamp: Timestamp, name: Vec<u8>, done: Done) {
        self.submit_delete_with_row(key, timestamp, name, 0, done);
    }

    /// Store a tombstone; `NotFound` when it is durable and there was nothing to delete.
    pub fn delete(&self, key: Key, timestamp: Timestamp, name: Vec<u8>) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_delete(key, timestamp, name, done))
    }

    /// Forget a copy without a tombstone, unless it changed since `entry` was read; returns whether it was removed.
    pub fn remove(&self, key: Key, entry: Entry) -> Result<bool> {
        commit::ask(&self.inner, key, Op::Remove(entry))
    }

    // -- reading

    /// An object, checked: small ones as a whole, large ones chunk by chunk as they are read.
    pub fn get(&self, key: &Key) -> Result<Object> {
        read::get(&self.inner, key)
    }

    /// The same of a small one, if that needs no wait for the device; None says nothing about it. Above 64 KiB it is in
    /// memory that `room` returns, if it returns some, exactly as large as requested.
    pub fn get_at_once<M: AsMut<[u8]>>(
        &self,
        key: &Key,
        mut room: impl FnMut(usize) -> Option<M>,
    ) -> Option<AtOnce<M>> {
        read::get_at_once(&self.inner, key, &mut room)
    }

    /// The same if it has at most so many bytes, else its description alone, of which less is read.
    pub fn get_up_to(&self, key: &Key, most: u64) -> Result<std::result::Result<Object, Info>> {
        read::get_up_to(&self.inner, key, most)
    }

    /// The same, checked and for up to 4 MiB, in memory that `room` returns, piece by piece and each exactly as large
    /// as requested; the object where `room` returns none, or where this is not worth while.
    pub fn get_into<M: AsMut<[u8]>>(&self, key: &Key, mut room: impl FnMut(usize) -> Option<M>) -> Result<Got<M>> {
        read::get_into(&self.inner, key, &mut room)
    }

    /// An object's description. Where there is a fragment of it, it is that of the newest version that is for certain;
    /// instead of the data's xxh3-64 it has the lower half of their xxh3-128.
    pub fn stat(&self, key: &Key) -> Result<Info> {
        read::stat(&self.inner, key)
    }

    /// Read all of an object and check it; `ChecksumMismatch` after it was moved to quarantine.
    pub fn verify(&self, key: &Key) -> Result<()> {
        read::verify(&self.inner, key, &|_| true).map(|_| ())
    }

    // -- partitions

    /// Partitions that are not empty, by policy and number.
    pub fn partitions(&self) -> Result<Vec<PartitionId>> {
        self.inner.device.check()?;
        let mut ids = self.inner.index.ids();
        // Fragments that no place is shown are nobody else's business.
        ids.retain(|id| self.inner.index.partition(*id, |partition| partition.len()) != Some(0));
        Ok(ids)
    }

    /// Set hashes of the suffixes that are not empty, by suffix.
    pub fn suffixes(&self, id: PartitionId) -> Result<Vec<(Suffix, u128)>> {
        self.inner.device.check()?;
        Ok(self.inner.index.partition(id, crate::index::Partition::suffixes).unwrap_or_default())
    }

    /// One hash over a partition; None when it is empty.
    pub fn root(&self, id: PartitionId) -> Result<Option<u128>> {
        self.inner.device.check()?;
        Ok(self.inner.index.root(id))
    }

    /// Partitions whose roots have changed since a position, and the next position; None instead of the partitions when
    /// all have to be read.
    pub(crate) fn changed_roots(&self, since: Option<u64>) -> (u64, Option<Vec<PartitionId>>) {
        self.inner.index.changed_roots(since)
    }

    /// What is held in a suffix, by digest.
    pub fn entries(&self, id: PartitionId, suffix: Suffix) -> Result<Vec<Entry>> {
        self.inner.device.check()?;
        Ok(self.inner.index.entries(id, suffix))
    }

    /// What is held in some suffixes (ascending), by suffix and digest; None when that is more than `limit`.
    pub(crate) fn entries_of(&self, id: PartitionId, suffixes: &[Suffix], limit: usize) -> Result<Option<Vec<Entry>>> {
        self.inner.device.check()?;
        let found = self.inner.index.partition(id, |partition| partition.listed(suffixes, limit));
        Ok(found.unwrap_or_else(|| Some(Vec::new())))
    }

    /// What is held of one object, by the index alone.
    pub fn entry(&self, key: &Key) -> Result<Option<Entry>> {
        self.inner.device.check()?;
        Ok(self.inner.index.get(key).map(|held| Partition::entry_of(&held)))
    }

    /// Digests of every object and tombstone in a partition, by suffix.
    pub fn digests(&self, id: PartitionId) -> Result<Vec<[u8; 16]>> {
        self.inner.device.check()?;
        let digests =
            self.inner.index.partition(id, |partition| partition.iter().map(|held| held.slot.digest()).collect());
        Ok(digests.unwrap_or_default())
    }

    // -- upkeep

    /// Forget tombstones older than `before`, and what became of fragments of which nothing else is here; before that,
    /// references to packs that were deleted. Returns how many.
    pub fn reclaim(&self, before: Timestamp) -> Result<u64> {
        self.inner.device.check()?;
        let mut gone = self.forget_dangling()?;
        for some in upkeep::memory_before(&self.inner, before).chunks(RECLAIMED_AT_ONCE) {
            gone += commit::ask_all(&self.inner, some.iter().map(|key| (*key, Op::Reclaim { before })))?;
        }
        for (policy, partition) in self.inner.index.ids() {
            let old = self.inner.index.partition((policy, partition), |found| {
                let held = found.iter().filter(|held| {
                    let newest = held.state().newest;
                    newest.is_some_and(|(kind, timestamp)| kind == EntryKind::Tombstone && timestamp < before)
                });
                held.map(|held| held.slot.digest()).collect::<Vec<_>>()
            });
            for some in old.unwrap_or_default().chunks(RECLAIMED_AT_ONCE) {
                let keys = some.iter().map(|digest| Key { policy, partition, digest: *digest });
                gone += commit::ask_all(&self.inner, keys.map(|key| (key, Op::Reclaim { before })))?;
            }
        }
        Ok(gone)
    }

    /// Objects that have expired at `now` (seconds since 1970), with the timestamps of their data.
    #[must_use]
    pub fn expired(&self, now: u64) -> Vec<(Key, Timestamp)> {
        upkeep::select(&self.inner, |_, delete_at| delete_at != 0 && delete_at <= now)
    }

    /// Write a checkpoint of the index.
    pub fn checkpoint(&self) -> Result<()> {
        upkeep::checkpoint(&self.inner)
    }

    /// Record on the device that the last batch was committed: damage to it is then found as such, and can't be
    /// mistaken for a write that was never finished. A store with threads does so whenever it is idle.
    pub fn mark(&self) -> Result<()> {
        commit::mark(&self.inner)
    }

    /// Rewrite the volume with the most to gain; false when there is none.
    pub fn compact(&self) -> Result<bool> {
        upkeep::compact(&self.inner)
    }

    /// Return the space of large dead records to the file system; returns how many bytes.
    pub fn punch(&self) -> Result<u64> {
        upkeep::punch(&self.inner)
    }

    /// Check about so many bytes of objects from where the last call ended; returns the keys of damaged ones.
    pub fn audit(&self, bytes: u64) -> Result<Vec<Key>> {
        upkeep::audit(&self.inner, bytes)
    }

    /// Fullness of the device.
    pub fn usage(&self) -> Result<Usage> {
        self.inner.device.check()?;
        let disk = &self.inner.device.disk;
        let (total_bytes, free_bytes) = self.inner.device.io("ask for free space", disk.space())?;
        let (objects, writes_directly) = (self.inner.index.len(), disk.is_direct());
        Ok(Usage { total_bytes, free_bytes, objects, writes_directly })
    }

    /// All volumes with their live shares.
    #[must_use]
    pub fn volumes(&self) -> Vec<crate::inspect::VolumeStats> {
        crate::inspect::volumes(&self.inner)
    }

    /// Compare index, set hashes and volumes; returns each difference as a sentence.
    pub fn check(&self) -> Result<Vec<String>> {
        crate::inspect::check(&self.inner)
    }

    /// Release the device; a checkpoint makes the next start quick. Objects that are being read stay readable.
    pub fn close(&self) -> Result<()> {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        self.inner.queue.close();
        self.inner.stop.stop();
        let threaded = !threads.is_empty();
        for thread in threads {
            if thread.join().is_err() {
                self.inner.device.fail("a thread of the store has ended unexpectedly");
            }
        }
        let healthy = self.inner.device.check();
        self.inner.device.fail("the store is closed");
        if threaded && healthy.is_ok() && self.inner.tail.load(Ordering::Relaxed) > 0 {
            upkeep::checkpoint_now(&self.inner)?;
        }
        self.inner.device.disk.release();
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls `close`.
        let _ = self.close();
    }
}

fn spawn(name: &str, inner: &Arc<Inner>, work: impl Fn(&Inner) + Send + 'static) -> Result<JoinHandle<()>> {
    let inner = Arc::clone(inner);
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&inner))
        .map_err(|error| Error::DeviceFailed(format!("start a thread: {error}")))
}

/// Runs background work, a little every second. A failure has made the device fail, and shows there.
fn upkeep_loop(inner: &Inner) {
    while inner.stop.pause(Duration::from_secs(1)) {
        if inner.device.check().is_ok() {
            let _ = upkeep::turn(inner);
        }
    }
}

/// Audits everything again and again, at its rate. It has a thread of its own, as one large object may take minutes.
fn audit_loop(inner: &Inner) {
    let counted = || {
        let counters = &inner.counters;
        (counters.audits.load(Ordering::Relaxed), counters.audited_bytes.load(Ordering::Relaxed))
    };
    let (mut began, mut before) = (Instant::now(), counted());
    while inner.stop.pause(Duration::from_secs(1)) {
        if inner.device.check().is_err() || upkeep::paced_audit(inner).is_err() {
            continue;
        }
        let now = counted();
        if now.0 != before.0 {
            // What is soon read is not read all the time.
            let rest = if now.1 == before.1 { Duration::ZERO } else { SHORTEST_AUDIT.saturating_sub(began.elapsed()) };
            if !inner.stop.pause(rest) {
                return;
            }
            (began, before) = (Instant::now(), counted());
        }
    }
}
