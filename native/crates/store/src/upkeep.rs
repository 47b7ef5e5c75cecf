//! Background work: checkpoints, compaction, holes, the auditor.

mod tables;

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commit;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::index::checkpoint::{self, Reach};
use crate::inner::{Inner, Upkeep};
use crate::merge::State;
use crate::model::{Key, Timestamp};
use crate::pending;
use crate::read;
use crate::record::{self, ALIGN, BLOCK, HEADER, Header, Kind, Parsed, Place};
use crate::scan;
use crate::unsound;
use crate::volume::{self, Volume};

use self::tables::Rewritten;

/// The directory of checkpoints.
pub(crate) const DIRECTORY: &str = "index";
/// Records are copied in batches of about this many bytes.
const COPY_BYTES: u64 = 4 * 1024 * 1024;
/// A tail never grows beyond this, however large the index is.
const MAX_TAIL: u64 = 2 * 1024 * 1024 * 1024;
/// A checkpoint of a large index is expensive: the tail may grow to so many times its size.
const TAIL_FACTOR: u64 = 3;

/// The auditor pauses when so much time is due, not after every small object.
const SHORTEST_REST: Duration = Duration::from_millis(50);
/// The auditor looks for changes of the index's partitions after so many seconds' worth of bytes.
const AUDIT_S: u64 = 60;

/// Do everything that is due.
pub(crate) fn turn(inner: &Inner) -> Result<()> {
    checkpoint_if_due(inner, &mut inner.upkeep.lock().unwrap_or_else(PoisonError::into_inner))?;
    commit::mark_if_idle(inner)?;
    if inner.pending.is_file_due() {
        write_pending(inner)?;
    }
    punch(inner)?;
    compact_at(inner, inner.config.compact_bytes_per_s)?;
    Ok(())
}

fn checkpoint_if_due(inner: &Inner, upkeep: &mut Upkeep) -> Result<()> {
    let limit = inner.config.checkpoint_bytes.max((upkeep.checkpoint_bytes * TAIL_FACTOR).min(MAX_TAIL));
    // The last batch of a life that ended by a crash has nothing behind it that proves it.
    if inner.tail.load(Ordering::Relaxed) >= limit || inner.needs_checkpoint.load(Ordering::Relaxed) {
        inner.device.check()?;
        write_checkpoint(inner, upkeep)?;
    }
    Ok(())
}

/// Audit as much as some seconds allow, with pauses, also in the middle of a large object.
pub(crate) fn paced_audit(inner: &Inner) -> Result<()> {
    let rate = inner.config.audit_bytes_per_s;
    let unpaid = Cell::new(0);
    let rest = |bytes: u64| {
        unpaid.set(unpaid.get() + bytes);
        let pause = pause_of(unpaid.get(), rate);
        if pause < SHORTEST_REST {
            return true;
        }
        unpaid.set(0);
        inner.stop.pause(pause)
    };
    audit_with(inner, rate.saturating_mul(AUDIT_S), &rest).map(|_| ())
}

/// How long so many bytes take at a rate in bytes per second; 0 is no limit.
fn pause_of(bytes: u64, rate: u64) -> Duration {
    if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes as f64 / rate as f64) }
}

/// Names of checkpoints, oldest first.
pub(crate) fn checkpoints(device: &Device) -> Result<Vec<String>> {
    let mut names = device.io("list checkpoints", device.disk.list(DIRECTORY))?;
    names.retain(|name| name.len() == 16 && u64::from_str_radix(name, 16).is_ok());
    names.sort_unstable();
    Ok(names)
}

/// Write a checkpoint of the index.
pub(crate) fn checkpoint(inner: &Inner) -> Result<()> {
    inner.device.check()?;
    checkpoint_now(inner)
}

pub(crate) fn checkpoint_now(inner: &Inner) -> Result<()> {
    let mut upkeep = inner.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
    write_checkpoint(inner, &mut upkeep)
}

fn write_checkpoint(inner: &Inner, upkeep: &mut Upkeep) -> Result<()> {
    let disk = &inner.device.disk;
    let (reach, tail) = {
        let log = inner.log.lock().unwrap_or_else(PoisonError::into_inner);
        let reach = Reach { sequence: log.sequence, positions: inner.volumes.positions() };
        (reach, inner.tail.load(Ordering::Relaxed))
    };
    disk.reach("checkpoint-begun");
    let path = format!("{DIRECTORY}/{:016x}", reach.sequence);
    let temporary = format!("{path}.tmp");
    match disk.unlink(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => inner.device.io("remove an old checkpoint", other)?,
    }
    let file = inner.device.io("make a checkpoint", disk.create(&temporary))?;
    let written = checkpoint::write(&*file, &inner.device.id, &reach, &inner.index);
    let written = match inner.device.io("write a checkpoint", written) {
        Err(error @ Error::DiskFull(_)) => {
            inner.device.io("remove a checkpoint", disk.unlink(&temporary))?;
            return Err(error);
        }
        other => other?,
    };
    disk.reach("checkpoint-written");
    inner.device.sync(&*file)?;
    disk.reach("checkpoint-synced");
    write_pending(inner)?;
    inner.device.io("place a checkpoint", disk.rename(&temporary, &path))?;
    disk.reach("checkpoint-renamed");
    inner.device.sync_directory(DIRECTORY)?;
    disk.reach("checkpoint-placed");
    let names = checkpoints(&inner.device)?;
    for name in names.iter().rev().skip(2) {
        inner.device.io("remove an old checkpoint", disk.unlink(&format!("{DIRECTORY}/{name}")))?;
    }
    disk.reach("checkpoint-cleaned");
    inner.tail.fetch_sub(tail, Ordering::Relaxed);
    inner.needs_checkpoint.store(false, Ordering::Relaxed);
    upkeep.checkpoint_bytes = written;
    upkeep.covered = reach.positions.iter().map(|position| (position.volume, position.offset)).collect();
    inner.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Write the file of pending updates, before a checkpoint that lets older records be skipped.
fn write_pending(inner: &Inner) -> Result<()> {
    let raw = {
        // While this is held nothing is committed: updates of records below the number are in the set, or acknowledged.
        let log = inner.log.lock().unwrap_or_else(PoisonError::into_inner);
        inner.pending.pack(&inner.device.id, log.sequence)
    };
    pending::write(&inner.device, &raw)
}

/// The length of a record's header and metadata; None if the header is unsound, for the auditor to find.
fn head_len(inner: &Inner, volume: &Volume, offset: u64) -> Result<Option<u64>> {
    let mut raw = [0; HEADER];
    inner.device.io("read a record's header", volume.file.read_at(&mut raw, offset))?;
    Ok(match Header::parse(&raw, Place::new(volume.id, offset), &inner.device.id) {
        Parsed::Sound(header) => Some(HEADER as u64 + u64::from(header.metadata_len)),
        Parsed::Newer(_) | Parsed::Unsound => None,
    })
}

/// Punch holes into large dead records; returns the bytes freed.
pub(crate) fn punch(inner: &Inner) -> Result<u64> {
    inner.device.check()?;
    let mut given = 0;
    for volume in inner.volumes.all() {
        for (offset, bytes) in volume.take_holes() {
            // Header and metadata stay: a scan checks them, and goes on behind the record.
            let Some(head) = head_len(inner, &volume, offset)? else { continue };
            let start = (offset + head).next_multiple_of(BLOCK);
            let end = (offset + bytes) / BLOCK * BLOCK;
            if start < end {
                inner.device.disk.reach("punch");
                inner.device.io("punch a hole", volume.file.punch(start, end - start))?;
                given += end - start;
            }
        }
    }
    inner.counters.punched_bytes.fetch_add(given, Ordering::Relaxed);
    Ok(given)
}

/// Rewrite the sealed volume with the smallest live share, if that is below the limit; false when there is none.
pub(crate) fn compact(inner: &Inner) -> Result<bool> {
    compact_at(inner, 0)
}

/// The same at so many bytes per second, 0 for no limit. Closing the store ends it in the middle: what was copied is
/// then in two places, which is sound, and the rest is done the next time.
fn compact_at(inner: &Inner, rate: u64) -> Result<bool> {
    inner.device.check()?;
    let mut upkeep = inner.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
    let sealed = inner.volumes.all().into_iter().filter(|volume| volume.sealed.load(Ordering::Acquire));
    let worst = sealed.min_by(|one, other| one.live_share().total_cmp(&other.live_share()));
    let Some(volume) = worst.filter(|volume| volume.live_share() < inner.config.live_share || volume.bytes() == 0)
    else {
        return Ok(false);
    };
    let whole = rewrite(inner, &mut upkeep, &volume, rate)?;
    inner.counters.compacted.fetch_add(u64::from(whole), Ordering::Relaxed);
    Ok(whole)
}

/// Copy live records of a volume, then remove it; false when the store was closed meanwhile.
fn rewrite(inner: &Inner, upkeep: &mut Upkeep, source: &Volume, rate: u64) -> Result<bool> {
    let checkpoint = checkpoints(&inner.device)?.first().and_then(|name| u64::from_str_radix(name, 16).ok());
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    let mut outcome = Ok(true);
    scan::scan(&*source.file, source.id, BLOCK, &inner.device.id, &mut |record| {
        let header = &record.header;
        if !matches!(outcome, Ok(true)) || !counts(inner, header, checkpoint) {
            return;
        }
        bytes += header.record_len();
        waiting.push(*header);
        if bytes >= COPY_BYTES {
            outcome = copy(inner, upkeep, source, &std::mem::take(&mut waiting), bytes)
                .and_then(|()| checkpoint_if_due(inner, upkeep))
                .map(|()| rate == 0 || inner.stop.pause(pause_of(bytes, rate)));
            bytes = 0;
        }
    })?;
    if !outcome? {
        return Ok(false);
    }
    copy(inner, upkeep, source, &waiting, bytes)?;
    // What is held and could not be found is damaged.
    for (key, place) in held_in(inner, source.id) {
        unsound::unless_moved(inner, &key, place)?;
    }
    // A copy that is damaged later, in the last batch of its volume, looks as if it was never finished. A checkpoint
    // knows better; without the source nothing else would.
    if upkeep.covered.get(&source.id).is_none_or(|covered| *covered < source.end.load(Ordering::Relaxed)) {
        write_checkpoint(inner, upkeep)?;
    }
    inner.device.disk.reach("compaction-emptied");
    inner.volumes.remove(source.id);
    inner.device.io("remove a volume", inner.device.disk.unlink(&volume::path_of(source.id)))?;
    inner.device.disk.reach("compaction-unlinked");
    inner.device.sync_directory(volume::DIRECTORY)?;
    Ok(true)
}

fn held_in(inner: &Inner, volume: u32) -> Vec<(Key, Place)> {
    let mut found = Vec::new();
    inner.index.for_each_place(|key, place, _| {
        if place.volume() == volume {
            found.push((*key, place));
        }
    });
    found
}

/// Whether a record has to be kept: what is held, and forgets for which there may still be older records, or a slot in
/// a checkpoint that does not know of them.
fn counts(inner: &Inner, header: &Header, checkpoint: Option<u64>) -> bool {
    if header.kind == Kind::Forget {
        let own = header.place.volume();
        let known = checkpoint.is_none_or(|sequence| header.sequence < sequence);
        return !known || inner.volumes.all().iter().any(|other| other.id <= header.watermark && other.id != own);
    }
    inner.index.holds(&header.key, header.place)
}

/// Copy records as one batch, and let the index point to the copies.
///
/// The target exists before it is checked again what counts: a later forget of an object then knows of the target, so
/// that it outlives the copy.
fn copy(inner: &Inner, upkeep: &mut Upkeep, source: &Volume, records: &[Header], bytes: u64) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let joined: u64 = records.iter().map(|header| tables::bytes_beside(inner, header)).sum();
    let bytes = bytes + joined;
    let target = target_for(inner, upkeep, bytes)?;
    let start = target.end.load(Ordering::Relaxed).next_multiple_of(BLOCK);
    let batch = target.copies.load(Ordering::Relaxed);
    let mut raw = Vec::with_capacity(bytes as usize);
    let mut copies: Vec<(Header, Header)> = Vec::new();
    let mut tables: HashMap<Place, Rewritten> = HashMap::new();
    for header in records.iter().filter(|header| header.kind == Kind::Forget || counts(inner, header, None)) {
        let from = raw.len();
        let place = Place::new(target.id, start + from as u64);
        if header.kind == Kind::Table {
            let is_done = |rewritten: &Rewritten| rewritten.replaces(header.place);
            let new = if tables.values().any(is_done) { None } else { Rewritten::of(inner, header)? };
            if let Some(new) = new {
                let moved = new.append(Header { place, batch, ..*header }, &mut raw, &inner.device.id);
                copies.push((*header, moved));
                tables.insert(place, new);
            }
            continue;
        }
        raw.resize(from + header.record_len() as usize, 0);
        let read = source.file.read_at(&mut raw[from..], header.place.offset());
        inner.device.io("read a volume", read)?;
        let metadata = from + HEADER + header.metadata_len as usize;
        let data = &raw[metadata..metadata + header.data_len() as usize];
        let has_data = matches!(header.kind, Kind::Put | Kind::Fragment);
        if has_data && swiftlet_hash::xxh3_64(data) != header.data_xxh3 {
            // Left where it is: it is found again when the volume should be empty.
            raw.truncate(from);
            continue;
        }
        // A fragment that is settled by now says so itself, and needs no decision beside it any more.
        let says = if header.kind.is_fragment() { state_at(inner, header) } else { header.says };
        let moved = Header { place, batch, says, ..*header };
        raw[from..from + HEADER].copy_from_slice(&moved.pack(&inner.device.id));
        copies.push((*header, moved));
    }
    if copies.is_empty() {
        return Ok(());
    }
    let outcome = inner.device.io("write a volume", target.file.write_at(&[IoSlice::new(&raw)], start));
    let outcome = outcome.and_then(|()| {
        inner.device.disk.reach("compaction-copied");
        inner.device.sync(&*target.file)
    });
    if let Err(error) = outcome {
        upkeep.target = None;
        inner.volumes.seal(&inner.device, &target)?;
        return Err(error);
    }
    inner.device.disk.reach("compaction-synced");
    for (old, new) in &copies {
        let units = (new.record_len() / ALIGN) as u32;
        if new.kind == Kind::Forget {
            target.forgets.fetch_add(new.record_len(), Ordering::Relaxed);
        } else {
            inner.volumes.hold(new.place, units);
            let applied = match tables.get(&new.place) {
                Some(table) => table.relocate(inner, new),
                None => {
                    let state = if new.kind.is_fragment() { record::State::of(new.says) } else { None };
                    inner.index.relocate(&new.key, old.place, new.place, state.unwrap_or_default())
                }
            };
            if !applied.held {
                inner.volumes.free(new.place, units);
            }
            applied.freed.iter().for_each(|(place, units)| inner.volumes.free(*place, *units));
        }
    }
    target.copies.fetch_add(copies.len() as u64, Ordering::Relaxed);
    target.end.store(start + raw.len() as u64, Ordering::Release);
    inner.tail.fetch_add(raw.len() as u64, Ordering::Relaxed);
    inner.counters.copied_bytes.fetch_add(raw.len() as u64, Ordering::Relaxed);
    inner.device.disk.reach("compaction-switched");
    Ok(())
}

/// What the record of a fragment is to say when it is copied.
fn state_at(inner: &Inner, header: &Header) -> u32 {
    let state = inner.index.versions(&header.key).ok().and_then(|versions| versions.state_at(header.place));
    state.map_or(header.says, |state| state as u32)
}

fn target_for(inner: &Inner, upkeep: &mut Upkeep, need: u64) -> Result<Arc<Volume>> {
    let size = inner.config.volume_bytes;
    if let Some(target) = upkeep.target.take() {
        if target.end.load(Ordering::Relaxed).next_multiple_of(BLOCK) + need <= size {
            upkeep.target = Some(Arc::clone(&target));
            return Ok(target);
        }
        inner.volumes.seal(&inner.device, &target)?;
    }
    let made = inner.volumes.create(&inner.device, true, size.max(BLOCK + need))?;
    upkeep.target = Some(Arc::clone(&made));
    Ok(made)
}

/// Audit about so many bytes from where the last call ended, in the order of partitions; returns what was damaged.
pub(crate) fn audit(inner: &Inner, bytes: u64) -> Result<Vec<Key>> {
    audit_with(inner, bytes, &|_| true)
}

/// The same, with `rest` called with the number of bytes after each piece; it ends the audit with false.
fn audit_with(inner: &Inner, bytes: u64, rest: &dyn Fn(u64) -> bool) -> Result<Vec<Key>> {
    inner.device.check()?;
    let mut audited = inner.audited.lock().unwrap_or_else(PoisonError::into_inner);
    let mut from = audited.take();
    let (mut damaged, mut read) = (Vec::new(), 0);
    for id in inner.index.ids() {
        if from.is_some_and(|from| id < (from.policy, from.partition)) {
            continue;
        }
        let found = inner.index.partition(id, |partition| {
            if let Some(suffix) = partition.check() {
                return Err(Error::DeviceFailed(format!("the set hash of suffix {suffix:03x} in memory is wrong")));
            }
            Ok((partition.audited_digests(), partition.tables().map(|(place, _)| place).collect::<Vec<_>>()))
        });
        let Some((digests, tables)) = found.transpose()? else { continue };
        let mut skip = from.take().filter(|from| (from.policy, from.partition) == id);
        for digest in digests {
            if skip.is_some_and(|from| from.digest != digest) {
                continue;
            }
            skip = None;
            let key = Key { policy: id.0, partition: id.1, digest };
            if read >= bytes {
                *audited = Some(key);
                return Ok(damaged);
            }
            match read::verify(inner, &key, rest) {
                Ok(count) => read += count,
                Err(Error::ChecksumMismatch(_)) => damaged.push(key),
                Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for place in tables {
            let (count, wrong) = read::tables::verify(inner, id, place)?;
            read += count;
            damaged.extend(wrong);
            rest(count);
        }
    }
    inner.counters.audits.fetch_add(1, Ordering::Relaxed);
    Ok(damaged)
}

/// Objects of a kind, with the timestamps of data or tombstone.
pub(crate) fn select(inner: &Inner, wanted: impl Fn(&State, u64) -> bool) -> Vec<(Key, Timestamp)> {
    let mut found = Vec::new();
    inner.index.for_each(|(policy, partition), held| {
        if wanted(&held.state(), held.delete_at()) {
            found.push((Key { policy, partition, digest: held.slot.digest() }, held.slot.timestamp));
        }
    });
    found
}

/// Fragments of which nothing is here but the memory of what became of them, all of it older than a time.
pub(crate) fn memory_before(inner: &Inner, before: Timestamp) -> Vec<Key> {
    let mut found = Vec::new();
    inner.index.for_each_fragment(|key, versions| {
        if versions.is_memory_before(before) {
            found.push(*key);
        }
    });
    found
}
