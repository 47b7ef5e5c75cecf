//! The start: builds the index from the newest sound checkpoint and the records after it.
//!
//! Fault model: the process before this one may have died at any instruction, with a power loss; checkpoints may be
//! lost or damaged, and then older ones or the volumes themselves are used. See `scan` for what may be wrong in a
//! volume.

mod tables;

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{self, Device, Format};
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::index::checkpoint::{self, Reach};
use crate::index::numbered;
use crate::large;
use crate::model::Key;
use crate::pending::PendingUpdates;
use crate::quarantine;
use crate::record::{
    ALIGN, BLOCK, DeviceId, Header, Kind, Place, Sound, State, answers_a_ballot, change_without, version_of,
};
use crate::scan;
use crate::upkeep;
use crate::volume::{self, Volume, Volumes};

use self::tables::DamagedTable;

/// The largest number of records of a tail that are kept in memory between its two passes; a longer tail is read
/// twice.
const MAX_KEPT: usize = 1 << 20;

/// The place of a record that is not there any more.
const NOWHERE: Place = Place(0);

/// Fewer records are applied faster than a thread is started.
const WORTH_A_THREAD: usize = 10_000;

/// The findings of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether a checkpoint was used.
    pub checkpoint: bool,
    /// Records read after it.
    pub records: u64,
    /// Bytes of volumes read after it.
    pub bytes: u64,
    /// Records found damaged or missing.
    pub damaged: u64,
    /// Large files without references.
    pub orphans: u64,
    /// Slots of the checkpoint that pointed to nothing.
    pub dangling: u64,
}

/// The state with which a store begins.
pub(crate) struct Recovered {
    pub(crate) device: Device,
    pub(crate) volumes: Volumes,
    pub(crate) index: Index,
    pub(crate) sequence: u64,
    pub(crate) next_large: u64,
    pub(crate) tail_bytes: u64,
    pub(crate) recovery: Recovery,
    pub(crate) pending: PendingUpdates,
    /// Objects whose newest record is damaged, and of which older ones have to be forgotten for good.
    pub(crate) lost: Vec<Key>,
    /// Damaged records of fragments, and tables, that have to be put aside.
    pub(crate) unsound: Vec<(Key, Place)>,
}

struct Opened {
    id: u32,
    compaction: bool,
    file: Arc<dyn File>,
}

fn failed(error: &io::Error) -> Error {
    Error::of_io(error, "open the device")
}

/// Read the device, and bring it into a usable state.
pub(crate) fn recover(disk: Arc<dyn Disk>, reserve_bytes: u64) -> Result<Recovered> {
    let format = device::read_format(&*disk)?;
    for directory in [volume::DIRECTORY, large::DIRECTORY, upkeep::DIRECTORY, quarantine::DIRECTORY] {
        disk.make_directory(directory).map_err(|error| failed(&error))?;
    }
    // What an earlier process left in the page cache may be answered for from now on.
    disk.sync_all().map_err(|error| failed(&error))?;
    let id = ensure_format(&*disk, format)?;
    let device = Device::new(disk, id, reserve_bytes);
    let opened = open_volumes(&device)?;
    let (reach, index) = load_checkpoint(&device)?;
    let mut recovery = Recovery { checkpoint: reach.is_some(), ..Recovery::default() };
    let reach = reach.unwrap_or_default();
    let mut tail = Tail::read(&device, &opened, &reach)?;
    let (pending, known) = PendingUpdates::load(&device)?;
    tail.replay(&device, &opened, &index, &|header| {
        if header.sequence >= known {
            pending.note(header);
        }
    })?;
    device.disk.reach("recovery-replayed");
    let volumes = Volumes::default();
    for (opened, end) in opened.iter().zip(&tail.ends) {
        let known = Volume::new(opened.id, opened.compaction, Arc::clone(&opened.file), *end, true);
        let forgets = tail.forget_bytes.get(&opened.id).copied().unwrap_or(0);
        known.forgets.store(forgets, Ordering::Relaxed);
        volumes.add(Arc::new(known));
    }
    reach.positions.iter().for_each(|position| volumes.reserve(position.volume));
    recovery.records = tail.records;
    recovery.bytes = tail.bytes;
    recovery.damaged = tail.damaged;
    let (dangling, mut unsound) = count_live(&index, &volumes);
    recovery.dangling = dangling;
    unsound.extend(tail.unsound(&index));
    let (orphans, next_large) = remove_orphans(&device, &index, recovery.damaged > 0 || recovery.dangling > 0)?;
    recovery.orphans = orphans;
    device.disk.reach("recovery-cleaned");
    for volume in volumes.all() {
        cut(&device, &volumes, &volume)?;
    }
    Ok(Recovered {
        device,
        sequence: tail.next_sequence.max(reach.sequence).max(1),
        tail_bytes: tail.bytes,
        lost: tail.lost(&index),
        unsound,
        volumes,
        index,
        next_large,
        recovery,
        pending,
    })
}

/// Remove all checkpoints, so that the next start reads the volumes.
pub(crate) fn drop_checkpoints(disk: &dyn Disk) -> Result<()> {
    // A device of another version is refused before anything of it is touched.
    device::read_format(disk)?;
    let names = match disk.list(upkeep::DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| failed(&error))?,
    };
    for name in names {
        disk.unlink(&format!("{}/{name}", upkeep::DIRECTORY)).map_err(|error| failed(&error))?;
    }
    disk.sync_directory(upkeep::DIRECTORY).map_err(|error| failed(&error))
}

/// The device's number: from `format`, else from a volume's head, else a new one. Writes `format` if need be.
fn ensure_format(disk: &dyn Disk, format: Format) -> Result<DeviceId> {
    if let Format::Known(id) = format {
        return Ok(id);
    }
    let names = disk.list(volume::DIRECTORY).map_err(|error| failed(&error))?;
    let mut found = None;
    for name in names.iter().filter(|name| volume::id_of(name).is_some()) {
        let file = disk.open(&format!("{}/{name}", volume::DIRECTORY)).map_err(|error| failed(&error))?;
        let mut raw = [0; 64];
        file.read_at(&mut raw, 0).map_err(|error| failed(&error))?;
        if let Some((version, _, _, id)) = volume::parse_head(&raw) {
            device::check_version(version)?;
            found = Some(id);
            break;
        }
    }
    let id = match found {
        Some(id) => id,
        None => random_id().map_err(|error| failed(&error))?,
    };
    device::write_format(disk, &id).map_err(|error| failed(&error))?;
    Ok(id)
}

fn random_id() -> io::Result<DeviceId> {
    let mut id = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

/// All volumes by number; those that were never begun are removed.
fn open_volumes(device: &Device) -> Result<Vec<Opened>> {
    let names = device.io("list volumes", device.disk.list(volume::DIRECTORY))?;
    let mut ids: Vec<u32> = names.iter().filter_map(|name| volume::id_of(name)).collect();
    ids.sort_unstable();
    let mut opened = Vec::new();
    for id in ids {
        let path = volume::path_of(id);
        let file = device.io("open a volume", device.disk.open(&path))?;
        let mut raw = vec![0; BLOCK as usize * 2];
        let read = device.io("read a volume's head", file.read_at(&mut raw, 0))?;
        let head = volume::parse_head(&raw);
        if let Some((version, ..)) = head {
            device::check_version(version)?;
        }
        if head.is_none() && raw[..read].iter().all(|byte| *byte == 0) {
            device.io("remove an empty volume", device.disk.unlink(&path))?;
            continue;
        }
        // A damaged head says nothing that its records don't say themselves.
        let compaction = head.is_some_and(|(_, compaction, ..)| compaction);
        opened.push(Opened { id, compaction, file });
    }
    Ok(opened)
}

/// The newest checkpoint that is sound.
fn load_checkpoint(device: &Device) -> Result<(Option<Reach>, Index)> {
    for name in upkeep::checkpoints(device)?.iter().rev() {
        let path = format!("{}/{name}", upkeep::DIRECTORY);
        let file = device.io("open a checkpoint", device.disk.open(&path))?;
        if let Some((reach, index)) = device.io("read a checkpoint", checkpoint::read(&*file, &device.id))? {
            return Ok((Some(reach), index));
        }
    }
    Ok((None, Index::default()))
}

/// Called with each record that counts.
type Note<'a> = dyn Fn(&Header) + Sync + 'a;
type Apply<'a> = dyn Fn(&Sound) + Sync + 'a;

/// Apply records in any order: those of one partition by one thread, and neighbours in the index one after the other,
/// while what they touch is in the processor's caches.
fn in_parallel(records: &[Sound], apply: &Apply<'_>) {
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(records.len() / WORTH_A_THREAD) as u32;
    if threads == 0 {
        return records.iter().for_each(apply);
    }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let own =
                    records.iter().zip(0_usize..).filter(|(record, _)| record.header.key.partition % threads == thread);
                let place = |key: &Key| u64::from(key.partition) << 12 | u64::from(key.suffix());
                let mut order: Vec<(u64, usize)> = own.map(|(record, at)| (place(&record.header.key), at)).collect();
                order.sort_unstable();
                order.iter().for_each(|(_, at)| apply(&records[*at]));
            });
        }
    });
}

/// The records after a checkpoint.
struct Tail {
    /// Per object: records with lower sequence numbers don't count.
    forgets: HashMap<Key, u64>,
    damaged_records: Vec<(Key, u64)>,
    /// Records of fragments that are damaged, of which the header is sound.
    damaged_fragments: Vec<Header>,
    /// Tables that are damaged, of which the header is sound.
    damaged_tables: Vec<DamagedTable>,
    kept: Option<Vec<Sound>>,
    /// Records and references in it.
    kept_count: usize,
    starts: Vec<u64>,
    ends: Vec<u64>,
    forget_bytes: HashMap<u32, u64>,
    from: u64,
    next_sequence: u64,
    records: u64,
    bytes: u64,
    damaged: u64,
}

impl Tail {
    /// First pass: what is forgotten, and what is damaged.
    fn read(device: &Device, opened: &[Opened], reach: &Reach) -> Result<Self> {
        let mut tail = Self {
            forgets: HashMap::new(),
            damaged_records: Vec::new(),
            damaged_fragments: Vec::new(),
            damaged_tables: Vec::new(),
            kept: Some(Vec::new()),
            kept_count: 0,
            starts: Vec::new(),
            ends: Vec::new(),
            forget_bytes: reach.positions.iter().map(|position| (position.volume, position.forgets)).collect(),
            from: reach.sequence,
            next_sequence: 0,
            records: 0,
            bytes: 0,
            damaged: 0,
        };
        let starts: HashMap<u32, u64> = reach.positions.iter().map(|at| (at.volume, at.offset)).collect();
        for volume in opened {
            let start = starts.get(&volume.id).copied().unwrap_or(BLOCK);
            let scanned = scan::scan(&*volume.file, volume.id, start, &device.id, &mut |record| tail.note(record))?;
            tail.starts.push(start);
            tail.ends.push(scanned.end.max(start));
            tail.records += scanned.records;
            tail.bytes += scanned.end.saturating_sub(start);
            for damage in scanned.damage {
                tail.damaged += damage.records;
                let Some(header) = damage.header else { continue };
                if header.kind == Kind::Table {
                    tail.next_sequence = tail.next_sequence.max(header.sequence + 1);
                    tail.damaged_tables.push(DamagedTable::read(device, &*volume.file, header)?);
                } else if header.kind.is_of_fragments() {
                    // Other versions of it are sound, and its header says what it was.
                    tail.next_sequence = tail.next_sequence.max(header.sequence + 1);
                    tail.damaged_fragments.push(header);
                } else if !matches!(header.kind, Kind::Post | Kind::CodedPost) {
                    // What was forgotten with a damaged POST would be more than the POST.
                    tail.next_sequence = tail.next_sequence.max(header.sequence + 1);
                    tail.forget(header.key, header.sequence);
                    tail.damaged_records.push((header.key, header.sequence));
                }
            }
        }
        Ok(tail)
    }

    fn note(&mut self, record: &Sound) {
        let header = &record.header;
        self.next_sequence = self.next_sequence.max(header.sequence + 1);
        if header.kind == Kind::Forget {
            *self.forget_bytes.entry(header.place.volume()).or_default() += header.record_len();
            self.forget(header.key, header.sequence);
        } else if let Some(kept) = &mut self.kept {
            kept.push(record.clone());
            self.kept_count += 1 + record.table.as_ref().map_or(0, |table| table.references.len());
            if self.kept_count > MAX_KEPT {
                self.kept = None;
            }
        }
    }

    fn forget(&mut self, key: Key, sequence: u64) {
        let newest = self.forgets.entry(key).or_default();
        *newest = (*newest).max(sequence);
    }

    /// Second pass: merge what counts.
    fn replay(&mut self, device: &Device, opened: &[Opened], index: &Index, note: &Note<'_>) -> Result<()> {
        for (key, sequence) in &self.forgets {
            // The checkpoint has seen older ones, and may have seen what came after them.
            if *sequence >= self.from {
                index.apply(&Header { sequence: *sequence, ..Header::new(Kind::Forget, *key, 0) }, None);
            }
        }
        for table in &self.damaged_tables {
            table.forget_lost(self.from, index);
        }
        let (forgets, damaged_tables) = (&self.forgets, &self.damaged_tables);
        let is_counting = |key: &Key, sequence: u64| {
            forgets.get(key).is_none_or(|forget| sequence > *forget)
                && !damaged_tables.iter().any(|table| table.has_lost(key, sequence))
        };
        for table in damaged_tables {
            table.apply(index, &is_counting);
        }
        // POSTs that were read before their object.
        let early = Mutex::new(Vec::new());
        let apply = |record: &Sound| {
            let (header, change) = (&record.header, record.change.as_deref());
            if let Some(table) = &record.table {
                let counts = |digest: &[u8; 16]| is_counting(&Key { digest: *digest, ..header.key }, header.sequence);
                index.apply_table(header, numbered(&table.references), counts);
                return;
            }
            let counts = is_counting(&header.key, header.sequence);
            if counts {
                note(header);
            }
            if counts && header.kind != Kind::Forget && !index.apply(header, change).held && header.kind == Kind::Post {
                early.lock().unwrap_or_else(PoisonError::into_inner).push(*header);
            }
        };
        match &self.kept {
            Some(kept) => in_parallel(kept, &apply),
            None => {
                let mut some = Vec::with_capacity(MAX_KEPT / 4);
                for (volume, start) in opened.iter().zip(&self.starts) {
                    scan::scan(&*volume.file, volume.id, *start, &device.id, &mut |record| {
                        some.push(record.clone());
                        if some.len() == some.capacity() {
                            in_parallel(&some, &apply);
                            some.clear();
                        }
                    })?;
                }
                in_parallel(&some, &apply);
            }
        }
        // They are held until they are put aside, so that what they said is not forgotten.
        for header in &self.damaged_fragments {
            let held = index.versions(&header.key).unwrap_or_default();
            if !answers_a_ballot(header) || !held.knows_better(version_of(header), header) {
                apply(&Sound { header: *header, change: Some(Box::new(change_without(header))), table: None });
            }
        }
        for header in early.into_inner().unwrap_or_else(PoisonError::into_inner) {
            index.apply(&header, None);
        }
        self.kept = None;
        Ok(())
    }

    /// Objects of which a damaged record would have counted: older records of them must never reappear. One that was
    /// forgotten after that record is in no need of it.
    fn lost(&self, index: &Index) -> Vec<Key> {
        let lost = self.damaged_records.iter().filter(|(key, sequence)| {
            self.forgets.get(key).is_none_or(|forget| forget <= sequence) && index.get(key).is_none()
        });
        lost.map(|(key, _)| *key).collect()
    }

    /// Damaged records of fragments, and tables, that would count.
    fn unsound(&self, index: &Index) -> Vec<(Key, Place)> {
        let tables = self.damaged_tables.iter().map(|table| &table.header);
        let held = self.damaged_fragments.iter().chain(tables).filter(|header| index.holds(&header.key, header.place));
        held.map(|header| (header.key, header.place)).collect()
    }
}

/// Count the live bytes of each volume, and remove slots that point to nothing. Returns how many there were, and the
/// fragments among them.
fn count_live(index: &Index, volumes: &Volumes) -> (u64, Vec<(Key, Place)>) {
    // By number; most records are in the same volume as the one before.
    let known = volumes.all();
    let ends: Vec<u64> = known.iter().map(|volume| volume.end.load(Ordering::Relaxed)).collect();
    let mut live = vec![0; known.len()];
    let mut last = 0;
    let mut dangling = Vec::new();
    index.for_each_place(|key, place, units| {
        let bytes = u64::from(units) * ALIGN;
        if known.get(last).is_none_or(|volume| volume.id != place.volume()) {
            match known.binary_search_by_key(&place.volume(), |volume| volume.id) {
                Ok(at) => last = at,
                Err(_) => return dangling.push((*key, place)),
            }
        }
        if place.offset() + bytes <= ends[last] {
            live[last] += bytes;
        } else {
            dangling.push((*key, place));
        }
    });
    for (volume, live) in known.iter().zip(&live) {
        volume.live.store(*live, Ordering::Relaxed);
    }
    let mut unsound = Vec::new();
    for (key, place) in &dangling {
        if index.drop_post(key, *place) || index.drop_table((key.policy, key.partition), *place) {
            continue;
        }
        if index.has_fragment(key) {
            // What it said of a version stays known until that is written anew.
            index.relocate(key, *place, NOWHERE, State::Undecided);
            unsound.push((*key, NOWHERE));
        } else {
            index.apply(&Header::new(Kind::Forget, *key, 0), None);
        }
    }
    (dangling.len() as u64, unsound)
}

/// Remove orphans, the large files that nothing refers to, or set them aside when something was damaged. Returns how
/// many there were, and the next number that no file has.
fn remove_orphans(device: &Device, index: &Index, damaged: bool) -> Result<(u64, u64)> {
    let mut known = HashSet::new();
    index.for_each(|_, held| {
        if held.extra.large != 0 {
            known.insert(held.extra.large);
        }
    });
    index.for_each_fragment(|_, versions| known.extend(versions.large()));
    let mut next = known.iter().max().map_or(1, |number| number + 1);
    let mut orphans = 0;
    for low in 0..=u8::MAX {
        let directory = large::directory_of(u64::from(low));
        let names = match device.disk.list(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => device.io("list large files", other)?,
        };
        for name in names {
            let Ok(number) = u64::from_str_radix(&name, 16) else { continue };
            next = next.max(number + 1);
            if known.contains(&number) {
                continue;
            }
            orphans += 1;
            let path = format!("{directory}/{name}");
            let gone = if damaged {
                device.disk.rename(&path, &format!("{}/large-{name}", quarantine::DIRECTORY))
            } else {
                device.disk.unlink(&path)
            };
            device.io("clean up large files", gone)?;
        }
    }
    Ok((orphans, next))
}

/// Cut off what a crash left after a volume's last record.
fn cut(device: &Device, volumes: &Volumes, volume: &Volume) -> Result<()> {
    let size = device.io("ask for a volume's size", volume.file.size())?;
    if size > volume.end.load(Ordering::Relaxed) { volumes.seal(device, volume) } else { Ok(()) }
}
