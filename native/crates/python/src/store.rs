//! The store of one device for Python. Every call that may touch the device lets other Python threads run.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_store::inspect::VolumeStats;
use swiftlet_store::model::{Entry, EntryKind, Footer, Info, Key, Pairs, PostMeta, PutMeta, SUFFIXES};
use swiftlet_store::{Config, Error, KeptAs, Object, PendingUpdate};

use crate::buffer::Bytes;

create_exception!(swiftlet_native, StoreError, PyException, "A store's refusal: (kind, message, timestamp or None).");

pub(crate) fn raise(error: Error) -> PyErr {
    let (kind, text) = (error.name(), error.to_string());
    let timestamp = match error {
        Error::NotFound(timestamp) => timestamp,
        Error::Superseded(timestamp) => Some(timestamp),
        _ => None,
    };
    StoreError::new_err((kind, text, timestamp))
}

pub(crate) type Place = (u16, u32, [u8; 16]);

pub(crate) fn key((policy, partition, digest): Place) -> Key {
    Key { policy, partition, digest }
}

/// name, timestamp, size, etag, xxh3, content type, metadata, sysmeta, and the timestamps of metadata and content type.
pub(crate) type InfoParts = (Vec<u8>, u64, u64, Vec<u8>, u64, Vec<u8>, Pairs, Pairs, u64, u64);

pub(crate) fn parts(info: Info) -> InfoParts {
    (
        info.name,
        info.timestamp,
        info.size,
        info.etag,
        info.xxh3,
        info.content_type,
        info.metadata,
        info.sysmeta,
        info.meta_timestamp,
        info.content_type_timestamp,
    )
}

/// digest, kind, and the timestamps of version, metadata and content type.
pub(crate) type EntryParts = ([u8; 16], u8, u64, u64, u64);

pub(crate) fn entry_parts(entry: Entry) -> EntryParts {
    (entry.digest, entry.kind as u8, entry.timestamp, entry.meta_timestamp, entry.content_type_timestamp)
}

pub(crate) fn entry_of((digest, kind, timestamp, meta_timestamp, content_type_timestamp): EntryParts) -> Entry {
    let kind = if kind == EntryKind::Data as u8 { EntryKind::Data } else { EntryKind::Tombstone };
    Entry { digest, kind, timestamp, meta_timestamp, content_type_timestamp }
}

/// A new version that is being written.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct StoreWriter(Mutex<Option<swiftlet_store::Writer>>);

impl StoreWriter {
    fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Option<swiftlet_store::Writer>) -> R + Send) -> R {
        py.detach(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn given_up() -> Error {
    Error::DeviceFailed("this upload was aborted after an earlier error".into())
}

#[pymethods]
impl StoreWriter {
    /// Append bytes.
    #[pyo3(signature = (data, /))]
    fn write(&self, py: Python<'_>, data: Bytes) -> PyResult<()> {
        let data = data.as_slice();
        self.with(py, |writer| writer.as_mut().ok_or_else(given_up)?.write(data)).map_err(raise)
    }

    /// Make the version durable and visible.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a version")]
    #[pyo3(signature = (name, timestamp, content_type, metadata, sysmeta, delete_at, size, etag, xxh3, /))]
    fn commit(
        &self,
        py: Python<'_>,
        name: Vec<u8>,
        timestamp: u64,
        content_type: Vec<u8>,
        metadata: Pairs,
        sysmeta: Pairs,
        delete_at: u64,
        size: u64,
        etag: Vec<u8>,
        xxh3: u64,
    ) -> PyResult<bool> {
        let meta = PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at };
        let footer = Footer { size, etag, xxh3 };
        self.with(py, |writer| writer.take().ok_or_else(given_up)?.commit(&meta, &footer)).map_err(raise)
    }

    /// Drop everything written.
    fn abort(&self, py: Python<'_>) {
        self.with(py, |writer| drop(writer.take()));
    }
}

/// One version of an object, kept readable.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct StoreReader(Mutex<Option<Arc<Object>>>);

impl StoreReader {
    fn object(&self) -> PyResult<Arc<Object>> {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        object.ok_or_else(|| PyValueError::new_err("the reader is closed"))
    }
}

#[pymethods]
impl StoreReader {
    /// The merged object.
    fn info(&self) -> PyResult<InfoParts> {
        Ok(parts(self.object()?.info().clone()))
    }

    /// Bytes from `offset` on.
    #[pyo3(signature = (offset, length, /))]
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let object = self.object()?;
        if let Some(bytes) = object.bytes() {
            let start = offset.min(bytes.len() as u64);
            let end = start.saturating_add(length).min(bytes.len() as u64);
            return Ok(PyBytes::new(py, &bytes[start as usize..end as usize]));
        }
        let bytes = py.detach(|| object.read(offset, length)).map_err(raise)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Release it.
    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// All objects of all storage policies on one device.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Store(Arc<swiftlet_store::Store>);

impl Store {
    /// The store itself, for other servers.
    pub(crate) fn shared(&self) -> Arc<swiftlet_store::Store> {
        Arc::clone(&self.0)
    }

    fn call<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&swiftlet_store::Store) -> swiftlet_store::Result<R> + Send,
    ) -> PyResult<R> {
        py.detach(|| work(&self.0)).map_err(raise)
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (root, *, reserve_bytes = 0, volume_bytes = 1073741824, aggregate_below = 1048576, live_share = 0.5,
                        checkpoint_bytes = 268435456, compact_bytes_per_s = 0, audit_bytes_per_s = 0, threads = true))]
    #[allow(clippy::too_many_arguments, reason = "settings, by name")]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        reserve_bytes: u64,
        volume_bytes: u64,
        aggregate_below: u64,
        live_share: f64,
        checkpoint_bytes: u64,
        compact_bytes_per_s: u64,
        audit_bytes_per_s: u64,
        threads: bool,
    ) -> PyResult<Self> {
        let config = Config {
            reserve_bytes,
            volume_bytes,
            aggregate_below,
            live_share,
            checkpoint_bytes,
            compact_bytes_per_s,
            audit_bytes_per_s,
            threads,
        };
        py.detach(|| swiftlet_store::Store::open(&root, config)).map(Arc::new).map(Self).map_err(raise)
    }

    /// Own a device, and rebuild its index from the volumes.
    #[staticmethod]
    #[pyo3(signature = (root, /))]
    fn rebuild(py: Python<'_>, root: PathBuf) -> PyResult<Self> {
        let config = Config { threads: false, ..Config::default() };
        py.detach(|| swiftlet_store::Store::rebuild(&root, config)).map(Arc::new).map(Self).map_err(raise)
    }

    /// Store objects of these policies in volumes up to these sizes from now on, and all others up to the store's.
    #[pyo3(signature = (limits, /))]
    fn set_aggregate_below(&self, limits: Vec<(u16, u64)>) {
        self.0.set_aggregate_below(&limits);
    }

    /// Begin a new version.
    #[pyo3(signature = (place, size, aggregate_below, /))]
    fn create(
        &self,
        py: Python<'_>,
        place: Place,
        size: Option<u64>,
        aggregate_below: Option<u64>,
    ) -> PyResult<StoreWriter> {
        let writer = self.call(py, |store| store.create(key(place), size, aggregate_below))?;
        Ok(StoreWriter(Mutex::new(Some(writer))))
    }

    /// The newest version for reading.
    #[pyo3(signature = (place, /))]
    fn open(&self, py: Python<'_>, place: Place) -> PyResult<StoreReader> {
        let object = self.call(py, |store| store.get(&key(place)))?;
        Ok(StoreReader(Mutex::new(Some(Arc::new(object)))))
    }

    /// The newest version's description.
    #[pyo3(signature = (place, /))]
    fn stat(&self, py: Python<'_>, place: Place) -> PyResult<InfoParts> {
        Ok(parts(self.call(py, |store| store.stat(&key(place)))?))
    }

    /// Merge POSTed metadata.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a POST")]
    #[pyo3(signature = (place, timestamp, metadata, content_type, content_type_timestamp, delete_at, /))]
    fn post(
        &self,
        py: Python<'_>,
        place: Place,
        timestamp: u64,
        metadata: Pairs,
        content_type: Option<Vec<u8>>,
        content_type_timestamp: u64,
        delete_at: u64,
    ) -> PyResult<bool> {
        let meta = PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at };
        self.call(py, |store| store.post(key(place), meta))
    }

    /// Store a tombstone.
    #[pyo3(signature = (place, timestamp, name, /))]
    fn delete(&self, py: Python<'_>, place: Place, timestamp: u64, name: Vec<u8>) -> PyResult<bool> {
        self.call(py, |store| store.delete(key(place), timestamp, name))
    }

    /// Forget a copy, unless it changed.
    #[pyo3(signature = (place, entry, /))]
    fn remove(&self, py: Python<'_>, place: Place, entry: EntryParts) -> PyResult<bool> {
        self.call(py, |store| store.remove(key(place), entry_of(entry)))
    }

    /// Policies and partitions that are not empty, in order.
    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<(u16, u32)>> {
        self.call(py, swiftlet_store::Store::partitions)
    }

    /// How the objects of a policy are kept here, if there are any: None if whole, else data, parity and bytes of a cell.
    #[pyo3(signature = (policy, /))]
    fn kept_as(&self, py: Python<'_>, policy: u16) -> PyResult<Vec<Option<(usize, usize, usize)>>> {
        let found = self.call(py, |store| store.kept_as(policy))?;
        let parts = |kept| match kept {
            KeptAs::Whole => None,
            KeptAs::Coded { scheme, cell_bytes } => Some((scheme.data(), scheme.parity(), cell_bytes)),
        };
        Ok(found.into_iter().map(parts).collect())
    }

    /// Suffixes that are not empty, as numbers, with their set hashes.
    #[pyo3(signature = (policy, partition, /))]
    fn suffix_hashes(&self, py: Python<'_>, policy: u16, partition: u32) -> PyResult<Vec<(u16, [u8; 16])>> {
        let suffixes = self.call(py, |store| store.suffixes((policy, partition)))?;
        Ok(suffixes.into_iter().map(|(suffix, sum)| (suffix, sum.to_be_bytes())).collect())
    }

    /// One hash over a partition; None when it is empty.
    #[pyo3(signature = (policy, partition, /))]
    fn root(&self, py: Python<'_>, policy: u16, partition: u32) -> PyResult<Option<[u8; 16]>> {
        Ok(self.call(py, |store| store.root((policy, partition)))?.map(u128::to_be_bytes))
    }

    /// What is held in a suffix, by digest.
    #[pyo3(signature = (policy, partition, suffix, /))]
    fn entries(&self, py: Python<'_>, policy: u16, partition: u32, suffix: u16) -> PyResult<Vec<EntryParts>> {
        if suffix >= SUFFIXES {
            return Ok(Vec::new());
        }
        let entries = self.call(py, |store| store.entries((policy, partition), suffix))?;
        Ok(entries.into_iter().map(entry_parts).collect())
    }

    /// Digests of everything in a partition, by suffix.
    #[pyo3(signature = (policy, partition, /))]
    fn digests(&self, py: Python<'_>, policy: u16, partition: u32) -> PyResult<Vec<[u8; 16]>> {
        self.call(py, |store| store.digests((policy, partition)))
    }

    /// Read a version and check it.
    #[pyo3(signature = (place, /))]
    fn verify(&self, py: Python<'_>, place: Place) -> PyResult<()> {
        self.call(py, |store| store.verify(&key(place)))
    }

    /// Forget old tombstones; returns how many.
    #[pyo3(signature = (before, /))]
    fn reclaim(&self, py: Python<'_>, before: u64) -> PyResult<u64> {
        self.call(py, |store| store.reclaim(before))
    }

    /// Expired objects, as places with the timestamps of their data.
    #[pyo3(signature = (now_s, /))]
    fn expired(&self, py: Python<'_>, now_s: u64) -> PyResult<Vec<(Place, u64)>> {
        let found = self.call(py, |store| Ok(store.expired(now_s)))?;
        Ok(found.into_iter().map(|(key, timestamp)| ((key.policy, key.partition, key.digest), timestamp)).collect())
    }

    /// Bytes in total and free, objects and tombstones.
    fn usage(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, bool)> {
        let usage = self.call(py, swiftlet_store::Store::usage)?;
        Ok((usage.total_bytes, usage.free_bytes, usage.objects, usage.writes_directly))
    }

    /// The counters since it was opened, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.0.counters();
        let counted = [
            ("batches", &counters.batches),
            ("quarantined", &counters.quarantined),
            ("checkpoints", &counters.checkpoints),
            ("compacted", &counters.compacted),
            ("copied_bytes", &counters.copied_bytes),
            ("punched_bytes", &counters.punched_bytes),
            ("audited_bytes", &counters.audited_bytes),
            ("audits", &counters.audits),
        ];
        counted.into_iter().map(|(name, counter)| (name, counter.load(Ordering::Relaxed))).collect()
    }

    /// The findings of the start, by name.
    fn recovery(&self) -> Vec<(&'static str, u64)> {
        let recovery = self.0.recovery();
        vec![
            ("checkpoint", u64::from(recovery.checkpoint)),
            ("records", recovery.records),
            ("bytes", recovery.bytes),
            ("damaged", recovery.damaged),
            ("orphans", recovery.orphans),
            ("dangling", recovery.dangling),
        ]
    }

    /// For each volume: number, whether compaction writes it, whether it is sealed, bytes in use, live bytes.
    fn volumes(&self, py: Python<'_>) -> Vec<(u32, bool, bool, u64, u64)> {
        let volumes = py.detach(|| self.0.volumes());
        let parts = |volume: VolumeStats| (volume.id, volume.compaction, volume.sealed, volume.end, volume.live_bytes);
        volumes.into_iter().map(parts).collect()
    }

    /// Write a checkpoint of the index.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, swiftlet_store::Store::checkpoint)
    }

    /// Rewrite the volume with the most to gain; returns whether there was one.
    fn compact(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, swiftlet_store::Store::compact)
    }

    /// Check about so many bytes from where the last call ended; returns the places of damaged objects.
    #[pyo3(signature = (size, /))]
    fn audit(&self, py: Python<'_>, size: u64) -> PyResult<Vec<Place>> {
        let damaged = self.call(py, |store| store.audit(size))?;
        Ok(damaged.into_iter().map(|key| (key.policy, key.partition, key.digest)).collect())
    }

    /// Compare index, set hashes and volumes; returns each difference as a sentence.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, swiftlet_store::Store::check)
    }

    /// Updates that have been pending for so long, the oldest first: places, timestamps, container replicas as bits.
    #[pyo3(signature = (limit, age_s, /))]
    fn pending_updates(&self, py: Python<'_>, limit: usize, age_s: f64) -> PyResult<Vec<(Place, u64, u32)>> {
        let age = Duration::try_from_secs_f64(age_s).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let rows = py.detach(|| self.0.pending_updates(limit, age));
        let parts = |row: PendingUpdate| ((row.key.policy, row.key.partition, row.key.digest), row.timestamp, row.row);
        Ok(rows.into_iter().map(parts).collect())
    }

    /// How many updates are pending, and for how many seconds the oldest of them.
    fn pending_count(&self, py: Python<'_>) -> (usize, f64) {
        py.detach(|| (self.0.pending_count(), self.0.pending_for().as_secs_f64()))
    }

    /// Acknowledge the updates of these versions.
    #[pyo3(signature = (versions, /))]
    fn acknowledge(&self, py: Python<'_>, versions: Vec<(Place, u64)>) {
        let versions: Vec<(Key, u64)> =
            versions.into_iter().map(|(place, timestamp)| (key(place), timestamp)).collect();
        py.detach(|| self.0.acknowledge(&versions));
    }

    /// The name of what is held, which may be a tombstone.
    #[pyo3(signature = (place, /))]
    fn name<'py>(&self, py: Python<'py>, place: Place) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let name = self.call(py, |store| store.name(&key(place)))?;
        Ok(name.map(|name| PyBytes::new(py, &name)))
    }

    /// Release the device.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, swiftlet_store::Store::close)
    }
}
