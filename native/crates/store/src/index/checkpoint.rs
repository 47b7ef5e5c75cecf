//! Checkpoints: the index on the device, see `docs/volumes.md`.
//!
//! Fault model: a checkpoint may be cut off, lost, or have any bit flipped. Each block has a checksum and the end is
//! marked, so that it is accepted as a whole or not at all.

mod fragments;

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;

use super::partition::{Extra, HeldTable, Partition, Record};
use super::{Index, PartitionId};
use crate::disk::File;
use crate::post::Post;
use crate::record::{DeviceId, Kind, Place, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"SWLTIDX1";
const VERSION: u16 = 1;
/// The version of a checkpoint with fragments, and before there were POSTs to them.
const FRAGMENTS_VERSION: u16 = 3;
const BEFORE_POSTS: u16 = 2;
/// The version of a checkpoint with references to packs, with or without fragments.
const TABLES_VERSION: u16 = 4;
const HEAD: usize = 8 + 2 + 6 + 16 + 8 + 4;
const VOLUME: usize = 4 + 8 + 8;
const BLOCK_HEAD: usize = 2 + 4 + 4 + 4;
/// In a checkpoint with fragments their bytes follow.
const FRAGMENTS_HEAD: usize = 4;
/// In one with references to packs, tables of this size each.
const TABLES_HEAD: usize = 4;
const TABLE: usize = 8 + 4 + 8 + 16 + 8 + 8;
const SLOT: usize = 40;
const EXTRA: usize = 72;
const END: PartitionId = (u16::MAX, 0);
/// It is written and read in pieces of about this size.
const PIECE: usize = 4 * 1024 * 1024;
/// A checkpoint of this size is read with threads, at most so many, for which so many partitions may wait.
const PARALLEL: u64 = PIECE as u64;
const MAX_WORKERS: usize = 4;
const MAX_WAITING: usize = 16;
/// A larger number of slots in one partition is taken for damage.
const MAX_SLOTS: u32 = 1 << 30;

/// How much of a volume a checkpoint includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The volume's number.
    pub volume: u32,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes of forgets in it.
    pub forgets: u64,
}

/// The content of a checkpoint besides the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// All records with lower sequence numbers are included.
    pub sequence: u64,
    /// All volumes that existed.
    pub positions: Vec<Position>,
}

fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    let check = swiftlet_hash::xxh3_64(&block);
    block.extend_from_slice(&check.to_be_bytes());
    block
}

/// Bytes of a block's head.
fn block_head(version: u16) -> usize {
    let fragments = if version >= BEFORE_POSTS { FRAGMENTS_HEAD } else { 0 };
    let tables = if version >= TABLES_VERSION { TABLES_HEAD } else { 0 };
    BLOCK_HEAD + fragments + tables
}

/// Write the index into an empty file; returns its size in bytes. The caller syncs.
pub(crate) fn write(file: &dyn File, device: &DeviceId, reach: &Reach, index: &Index) -> io::Result<u64> {
    let needed = match (index.has_tables(), index.has_fragments()) {
        (true, _) => TABLES_VERSION,
        (false, true) => FRAGMENTS_VERSION,
        (false, false) => VERSION,
    };
    // The first fragment may come meanwhile, or the first reference.
    for version in [VERSION, FRAGMENTS_VERSION, TABLES_VERSION].into_iter().filter(|version| *version >= needed) {
        if let Some(written) = write_as(version, file, device, reach, index)? {
            return Ok(written);
        }
    }
    Ok(0)
}

/// Write a checkpoint of a version; None if the index has fragments or references, and the version none.
fn write_as(version: u16, file: &dyn File, device: &DeviceId, reach: &Reach, index: &Index) -> io::Result<Option<u64>> {
    let mut head = Vec::with_capacity(HEAD + reach.positions.len() * VOLUME);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&version.to_be_bytes());
    head.extend_from_slice(&[0; 6]);
    head.extend_from_slice(device);
    head.extend_from_slice(&reach.sequence.to_be_bytes());
    head.extend_from_slice(&(reach.positions.len() as u32).to_be_bytes());
    for position in &reach.positions {
        head.extend_from_slice(&position.volume.to_be_bytes());
        head.extend_from_slice(&position.offset.to_be_bytes());
        head.extend_from_slice(&position.forgets.to_be_bytes());
    }
    let mut waiting = sealed(head);
    let mut written = 0;
    for id in index.ids() {
        match index.partition(id, |partition| pack(version, id, partition)) {
            Some(Some(block)) => waiting.extend_from_slice(&sealed(block)),
            Some(None) => return Ok(None),
            None => {}
        }
        if waiting.len() >= PIECE {
            file.write_at(&[IoSlice::new(&waiting)], written)?;
            written += waiting.len() as u64;
            waiting.clear();
        }
    }
    waiting.extend_from_slice(&sealed(pack(version, END, &Partition::default()).unwrap_or_default()));
    file.write_at(&[IoSlice::new(&waiting)], written)?;
    Ok(Some(written + waiting.len() as u64))
}

/// A partition's block; None if it has fragments or references, and the version none.
fn pack(version: u16, id: PartitionId, partition: &Partition) -> Option<Vec<u8>> {
    let (with_fragments, with_tables) = (version >= FRAGMENTS_VERSION, version >= TABLES_VERSION);
    let tables = pack_tables(partition);
    if (partition.has_fragments() && !with_fragments) || (!tables.is_empty() && !with_tables) {
        return None;
    }
    let (mut slots, mut extras) = (Vec::with_capacity(partition.len() * SLOT), Vec::new());
    for held in partition.iter() {
        let digest = held.slot.digest();
        if partition.has_fragment(&digest) {
            continue;
        }
        slots.extend_from_slice(&digest);
        slots.extend_from_slice(&held.slot.timestamp.to_be_bytes());
        slots.extend_from_slice(&held.slot.place.0.to_be_bytes());
        slots.extend_from_slice(&held.slot.units.to_be_bytes());
        slots.extend_from_slice(&[held.slot.kind as u8, 0, 0, 0]);
        if held.extra != Extra::default() {
            extras.push((digest, held.extra));
        }
    }
    let fragments = if partition.has_fragments() { fragments::pack(partition) } else { Vec::new() };
    let mut out = Vec::with_capacity(block_head(version) + slots.len() + extras.len() * EXTRA + fragments.len());
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&id.1.to_be_bytes());
    out.extend_from_slice(&((slots.len() / SLOT) as u32).to_be_bytes());
    out.extend_from_slice(&(extras.len() as u32).to_be_bytes());
    if with_fragments {
        out.extend_from_slice(&(fragments.len() as u32).to_be_bytes());
    }
    if with_tables {
        out.extend_from_slice(&((tables.len() / TABLE) as u32).to_be_bytes());
    }
    out.extend_from_slice(&slots);
    for (digest, extra) in extras {
        let post = extra.post.unwrap_or_default();
        out.extend_from_slice(&digest);
        let fields =
            [extra.large, extra.delete_at, post.timestamp, post.content_type_timestamp, post.place.0, post.delete_at];
        for field in fields {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&post.units.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    }
    out.extend_from_slice(&tables);
    out.extend_from_slice(&fragments);
    Some(out)
}

/// The tables to which slots point, by place.
fn pack_tables(partition: &Partition) -> Vec<u8> {
    let mut tables: Vec<_> = partition.tables().collect();
    tables.sort_unstable_by_key(|(place, _)| *place);
    let mut out = Vec::with_capacity(tables.len() * TABLE);
    for (place, HeldTable { pack, units, sequence, .. }) in tables {
        out.extend_from_slice(&place.0.to_be_bytes());
        out.extend_from_slice(&units.to_be_bytes());
        out.extend_from_slice(&sequence.to_be_bytes());
        out.extend_from_slice(&pack.digest);
        out.extend_from_slice(&pack.version.timestamp.to_be_bytes());
        out.extend_from_slice(&pack.version.generation.to_be_bytes());
    }
    out
}

/// Let a partition know its tables, before slots point to them; None if they are not as they are written.
fn unpack_tables(raw: &[u8], partition: &mut Partition) -> Option<()> {
    let mut last = None;
    for raw in raw.chunks_exact(TABLE) {
        let place = Place(u64_at(raw, 0));
        if last.replace(place).is_some_and(|last| last >= place) {
            return None;
        }
        let version = Version { timestamp: u64_at(raw, 36), generation: u64_at(raw, 44) };
        let pack = Pack { version, digest: *raw[20..].first_chunk()? };
        partition.know_table(place, pack, u32_at(raw, 8), u64_at(raw, 12));
    }
    Some(())
}

/// A file read from front to back.
struct Stream<'a> {
    file: &'a dyn File,
    offset: u64,
    buffer: Vec<u8>,
    start: usize,
}

impl Stream<'_> {
    /// The next `count` bytes without advancing; None at the file's end.
    fn peek(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        while self.buffer.len() - self.start < count {
            self.buffer.drain(..self.start);
            self.start = 0;
            let had = self.buffer.len();
            self.buffer.resize(had + PIECE.max(count - had), 0);
            let read = self.file.read_at(&mut self.buffer[had..], self.offset)?;
            self.offset += read as u64;
            self.buffer.truncate(had + read);
            if read == 0 {
                return Ok(None);
            }
        }
        Ok(Some(&self.buffer[self.start..self.start + count]))
    }

    /// The next `count` bytes and the checksum after them; None when they are unsound.
    fn block(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        let Some(all) = self.peek(count + 8)? else { return Ok(None) };
        if swiftlet_hash::xxh3_64(&all[..count]) != u64_at(all, count) {
            return Ok(None);
        }
        self.start += count + 8;
        Ok(Some(&self.buffer[self.start - count - 8..self.start - 8]))
    }
}

/// Read a checkpoint; None when any part is unsound, or it has another version.
pub(crate) fn read(file: &dyn File, device: &DeviceId) -> io::Result<Option<(Reach, Index)>> {
    let total = file.size()?;
    let mut stream = Stream { file, offset: 0, buffer: Vec::new(), start: 0 };
    let Some(head) = stream.peek(HEAD)? else { return Ok(None) };
    let version = u16::from_be_bytes([head[8], head[9]]);
    let understood = (VERSION..=TABLES_VERSION).contains(&version);
    let known = head[..8] == MAGIC && understood && head[16..32] == *device;
    let volumes = u32_at(head, HEAD - 4) as usize;
    if !known || (volumes * VOLUME) as u64 > total {
        return Ok(None);
    }
    let Some(head) = stream.block(HEAD + volumes * VOLUME)? else { return Ok(None) };
    let positions = head[HEAD..].chunks_exact(VOLUME).map(|raw| Position {
        volume: u32_at(raw, 0),
        offset: u64_at(raw, 4),
        forgets: u64_at(raw, 12),
    });
    let reach = Reach { sequence: u64_at(head, 32), positions: positions.collect() };
    let index = Index::default();
    let sound = if total < PARALLEL {
        read_blocks(&mut stream, version, total, &mut |id, block| install(&index, version, id, &block))?
    } else {
        read_in_parallel(&mut stream, version, total, &index)?
    };
    Ok(sound.then_some((reach, index)))
}

/// Read and check in this thread, and build partitions in others.
fn read_in_parallel(stream: &mut Stream<'_>, version: u16, total: u64, index: &Index) -> io::Result<bool> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
    let (blocks, waiting) = mpsc::sync_channel::<(PartitionId, Vec<u8>)>(MAX_WAITING);
    let (waiting, sound) = (Mutex::new(waiting), AtomicBool::new(true));
    let work = || {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((id, block)) = next else { return };
            // What is left is still taken, so that nobody waits for room.
            if sound.load(Ordering::Relaxed) && !install(index, version, id, &block) {
                sound.store(false, Ordering::Relaxed);
            }
        }
    };
    let all = std::thread::scope(|scope| {
        (0..workers).for_each(|_| drop(scope.spawn(work)));
        let read = read_blocks(stream, version, total, &mut |id, block| {
            sound.load(Ordering::Relaxed) && blocks.send((id, block)).is_ok()
        });
        drop(blocks);
        read
    })?;
    Ok(all && sound.into_inner())
}

fn install(index: &Index, version: u16, id: PartitionId, block: &[u8]) -> bool {
    let Some(partition) = unpack(version, block) else { return false };
    index.install(id, partition);
    true
}

/// Read every block up to the end, until `each` returns false; returns whether all were sound.
fn read_blocks(
    stream: &mut Stream<'_>,
    version: u16,
    total: u64,
    each: &mut dyn FnMut(PartitionId, Vec<u8>) -> bool,
) -> io::Result<bool> {
    let mut before = None;
    loop {
        let Some(head) = stream.peek(block_head(version))? else { return Ok(false) };
        let id = (u16::from_be_bytes([head[0], head[1]]), u32_at(head, 2));
        let counts = Counts::of(version, head);
        let Counts { slots, extras, fragments, tables } = counts;
        let len = counts.len(version);
        if slots > MAX_SLOTS || extras > slots || tables > slots || len as u64 > total {
            return Ok(false);
        }
        let Some(block) = stream.block(len)? else { return Ok(false) };
        if id == END {
            return Ok(true);
        }
        // As they are written: each once, none without anything in it.
        if (slots == 0 && fragments == 0) || before.replace(id).is_some_and(|before| before >= id) {
            return Ok(false);
        }
        if !each(id, block.to_vec()) {
            return Ok(false);
        }
    }
}

/// What a block's head says of the rest of it.
struct Counts {
    slots: u32,
    extras: u32,
    /// Bytes.
    fragments: u32,
    tables: u32,
}

impl Counts {
    fn of(version: u16, head: &[u8]) -> Self {
        let fragments = if version >= BEFORE_POSTS { u32_at(head, BLOCK_HEAD) } else { 0 };
        let tables = if version >= TABLES_VERSION { u32_at(head, BLOCK_HEAD + FRAGMENTS_HEAD) } else { 0 };
        Self { slots: u32_at(head, 6), extras: u32_at(head, 10), fragments, tables }
    }

    /// Bytes of the block.
    fn len(&self, version: u16) -> usize {
        let (slots, extras) = (self.slots as usize * SLOT, self.extras as usize * EXTRA);
        block_head(version) + slots + extras + self.tables as usize * TABLE + self.fragments as usize
    }
}

fn unpack(version: u16, block: &[u8]) -> Option<Partition> {
    let counts = Counts::of(version, block);
    let slots = counts.slots as usize;
    let mut partition = Partition::default();
    partition.reserve(slots);
    let (raw_slots, rest) = block[block_head(version)..].split_at(slots * SLOT);
    let (raw_extras, rest) = rest.split_at(counts.extras as usize * EXTRA);
    let (raw_tables, raw_fragments) = rest.split_at(counts.tables as usize * TABLE);
    unpack_tables(raw_tables, &mut partition)?;
    for raw in raw_slots.chunks_exact(SLOT) {
        let record = Record {
            kind: Kind::of(raw[36])
                .filter(|kind| matches!(kind, Kind::Put | Kind::Tombstone | Kind::Large | Kind::Table))?,
            timestamp: u64_at(raw, 16),
            place: Place(u64_at(raw, 24)),
            units: u32_at(raw, 32),
            extra: Extra::default(),
        };
        let is_known = record.kind != Kind::Table || partition.table(record.place).is_some();
        if !is_known || !partition.append(raw.first_chunk()?, &record) {
            return None;
        }
    }
    for raw in raw_extras.chunks_exact(EXTRA) {
        let post = Post {
            timestamp: u64_at(raw, 32),
            content_type_timestamp: u64_at(raw, 40),
            place: Place(u64_at(raw, 48)),
            delete_at: u64_at(raw, 56),
            units: u32_at(raw, 64),
        };
        let post = (post != Post::default()).then_some(post);
        let extra = Extra { large: u64_at(raw, 16), delete_at: u64_at(raw, 24), post };
        if !partition.attach(raw.first_chunk()?, extra) {
            return None;
        }
    }
    // One without references would never die.
    let used = partition.tables().all(|(_, table)| table.references > 0);
    let whole = raw_fragments.is_empty() || fragments::unpack(raw_fragments, &mut partition).is_some();
    (whole && used).then_some(partition)
}

/// The same bytes with correct magic, device and checksums, block by block, as far as their counts go.
pub(crate) fn sealed_anew(data: &[u8], device: &DeviceId) -> Vec<u8> {
    let mut raw = data.to_vec();
    let seal = |raw: &mut [u8], start: usize, len: usize| {
        let end = start.saturating_add(len);
        let rest = raw.get_mut(start..end.saturating_add(8));
        rest.map(|block| {
            let check = swiftlet_hash::xxh3_64(&block[..len]);
            block[len..].copy_from_slice(&check.to_be_bytes());
            end + 8
        })
    };
    if raw.len() < HEAD {
        return raw;
    }
    raw[..8].copy_from_slice(&MAGIC);
    let version = u16::from(raw[9]).clamp(VERSION, TABLES_VERSION);
    raw[8..10].copy_from_slice(&version.to_be_bytes());
    raw[16..32].copy_from_slice(device);
    let volumes = u32_at(&raw, HEAD - 4) as usize;
    let mut at = seal(&mut raw, 0, HEAD + volumes * VOLUME);
    while let Some(start) = at.filter(|start| start + block_head(version) <= raw.len()) {
        let len = Counts::of(version, &raw[start..]).len(version);
        at = seal(&mut raw, start, len);
    }
    raw
}
