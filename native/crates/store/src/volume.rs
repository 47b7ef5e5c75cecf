//! Volumes: append-only files, and the set of them on a device.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::device::Device;
use crate::disk::File;
use crate::error::{Error, Result};
use crate::index::checkpoint::Position;
use crate::record::{ALIGN, BLOCK, DeviceId, Place, VERSION, u32_at, u64_at};

/// The directory of volumes.
pub(crate) const DIRECTORY: &str = "volumes";
const MAGIC: [u8; 8] = *b"SWLTVOL1";
const HEAD: usize = 40;
/// Volume numbers are part of places.
const MAX_VOLUME: u32 = (1 << 24) - 1;
/// Dead records below this size are left to compaction.
const PUNCH_BYTES: u64 = 64 * 1024;
/// At most this part of the free space is allocated for a volume in advance.
const ALLOCATED_SHARE: u64 = 16;
/// At most so many bytes are: an almost empty store should take little space, and a volume grows as it fills.
const ALLOCATED_BYTES: u64 = 64 * 1024 * 1024;
/// The largest number of holes that are remembered until they can be punched.
const MAX_HOLES: usize = 4096;

/// One volume.
pub(crate) struct Volume {
    /// Its number.
    pub id: u32,
    /// Whether compaction writes it.
    pub compaction: bool,
    /// Its file.
    pub file: Arc<dyn File>,
    /// Everything up to this byte is durable and in the index.
    pub end: AtomicU64,
    /// Whether nothing will be appended any more.
    pub sealed: AtomicBool,
    /// Bytes of live records.
    pub live: AtomicU64,
    /// Bytes of forgets.
    pub forgets: AtomicU64,
    /// Records that compaction has copied into it.
    pub copies: AtomicU64,
    pins: AtomicU64,
    holes: Mutex<Vec<(u64, u64)>>,
}

/// A volume whose records stay where they are, live or not, as long as this exists.
pub(crate) struct Pinned(Arc<Volume>);

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::Release);
    }
}

impl std::ops::Deref for Pinned {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

impl Volume {
    /// A volume around an open file.
    #[must_use]
    pub(crate) fn new(id: u32, compaction: bool, file: Arc<dyn File>, end: u64, sealed: bool) -> Self {
        Self {
            id,
            compaction,
            file,
            end: AtomicU64::new(end),
            sealed: AtomicBool::new(sealed),
            live: AtomicU64::new(0),
            forgets: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            pins: AtomicU64::new(0),
            holes: Mutex::default(),
        }
    }

    /// Keep its records where they are. To be called while the index is locked for reading.
    #[must_use]
    pub(crate) fn pin(self: &Arc<Self>) -> Pinned {
        self.pins.fetch_add(1, Ordering::Acquire);
        Pinned(Arc::clone(self))
    }

    /// A record at `offset` is no longer live.
    fn free(&self, offset: u64, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
        if bytes >= PUNCH_BYTES {
            let mut holes = self.holes.lock().unwrap_or_else(PoisonError::into_inner);
            if holes.len() < MAX_HOLES {
                holes.push((offset, bytes));
            }
        }
    }

    /// Dead records that are large enough to be punched, unless somebody may be reading one of them.
    #[must_use]
    pub(crate) fn take_holes(&self) -> Vec<(u64, u64)> {
        let mut holes = self.holes.lock().unwrap_or_else(PoisonError::into_inner);
        // Who found a record before it died has pinned the volume before it died.
        if self.pins.load(Ordering::Acquire) > 0 { Vec::new() } else { std::mem::take(&mut *holes) }
    }

    /// Bytes of the file, live or dead.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed).saturating_sub(BLOCK)
    }

    /// The share of its bytes that is live; 1 for an empty one.
    #[must_use]
    pub(crate) fn live_share(&self) -> f64 {
        let held = self.live.load(Ordering::Relaxed) + self.forgets.load(Ordering::Relaxed);
        if self.bytes() == 0 { 1.0 } else { held as f64 / self.bytes() as f64 }
    }
}

/// The file name of a volume.
#[must_use]
pub(crate) fn path_of(id: u32) -> String {
    format!("{DIRECTORY}/{id:08x}")
}

/// The number in a volume's file name.
#[must_use]
pub(crate) fn id_of(name: &str) -> Option<u32> {
    let id = u32::from_str_radix(name, 16).ok().filter(|id| *id > 0 && *id <= MAX_VOLUME)?;
    (path_of(id) == format!("{DIRECTORY}/{name}")).then_some(id)
}

/// Encode a volume's head.
#[must_use]
pub(crate) fn pack_head(id: u32, compaction: bool, device: &DeviceId) -> Vec<u8> {
    let mut head = Vec::with_capacity(BLOCK as usize);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&u16::from(VERSION).to_be_bytes());
    head.extend_from_slice(&u16::from(compaction).to_be_bytes());
    head.extend_from_slice(&id.to_be_bytes());
    head.extend_from_slice(device);
    let check = swiftlet_hash::xxh3_64(&head);
    head.extend_from_slice(&check.to_be_bytes());
    head.resize(BLOCK as usize, 0);
    head
}

/// Decode a sound head: version, whether compaction writes it, number, device.
#[must_use]
pub(crate) fn parse_head(raw: &[u8]) -> Option<(u16, bool, u32, DeviceId)> {
    if raw.len() < HEAD || raw[..8] != MAGIC || swiftlet_hash::xxh3_64(&raw[..32]) != u64_at(raw, 32) {
        return None;
    }
    let version = u16::from_be_bytes([raw[8], raw[9]]);
    Some((version, raw[11] == 1, u32_at(raw, 12), *raw[16..].first_chunk()?))
}

/// How much is allocated at once for a volume that is full at this size.
pub(crate) fn allocation(device: &Device, size: u64) -> Result<u64> {
    let (_, free) = device.io("ask for free space", device.disk.space())?;
    Ok(size.min(ALLOCATED_BYTES).min((free / ALLOCATED_SHARE).max(BLOCK)).next_multiple_of(BLOCK))
}

/// All volumes of a device.
#[derive(Default)]
pub(crate) struct Volumes {
    map: RwLock<BTreeMap<u32, Arc<Volume>>>,
    highest: AtomicU32,
}

impl Volumes {
    /// The volume of this number, if it exists.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Volume>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All of them, by number.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The highest number that was ever used.
    #[must_use]
    pub(crate) fn highest(&self) -> u32 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Add a volume.
    pub(crate) fn add(&self, volume: Arc<Volume>) {
        self.highest.fetch_max(volume.id, Ordering::Relaxed);
        self.map.write().unwrap_or_else(PoisonError::into_inner).insert(volume.id, volume);
    }

    /// Record that numbers up to this one have been used.
    pub(crate) fn reserve(&self, id: u32) {
        self.highest.fetch_max(id, Ordering::Relaxed);
    }

    /// Remove a volume from the set.
    pub(crate) fn remove(&self, id: u32) {
        self.map.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// A record is live.
    pub(crate) fn hold(&self, place: Place, units: u32) {
        if let Some(volume) = self.get(place.volume()) {
            volume.live.fetch_add(u64::from(units) * ALIGN, Ordering::Relaxed);
        }
    }

    /// A record is no longer live.
    pub(crate) fn free(&self, place: Place, units: u32) {
        if let Some(volume) = self.get(place.volume()) {
            volume.free(place.offset(), u64::from(units) * ALIGN);
        }
    }

    /// Up to which offset each of them is in the index.
    #[must_use]
    pub(crate) fn positions(&self) -> Vec<Position> {
        let position = |volume: &Arc<Volume>| Position {
            volume: volume.id,
            offset: volume.end.load(Ordering::Acquire),
            forgets: volume.forgets.load(Ordering::Relaxed),
        };
        self.all().iter().map(position).collect()
    }

    /// Make a new, empty volume, durable in its directory.
    pub(crate) fn create(&self, device: &Device, compaction: bool, size: u64) -> Result<Arc<Volume>> {
        let id = self.highest.fetch_add(1, Ordering::Relaxed) + 1;
        if id > MAX_VOLUME {
            return Err(Error::DeviceFailed("no volume numbers are left".into()));
        }
        let path = path_of(id);
        let file = device.io("make a volume", device.disk.create(&path))?;
        let made = self.prepare(device, id, compaction, size, &file);
        if made.is_err() {
            // An empty volume is removed at the next start if not now.
            let _ = device.disk.unlink(&path);
        }
        made
    }

    fn prepare(
        &self,
        device: &Device,
        id: u32,
        compaction: bool,
        size: u64,
        file: &Arc<dyn File>,
    ) -> Result<Arc<Volume>> {
        let disk = &device.disk;
        disk.reach("volume-created");
        // Beyond this a volume takes its space as it grows.
        let ahead = allocation(device, size)?;
        device.io("allocate a volume", file.allocate(ahead))?;
        disk.reach("volume-allocated");
        let head = pack_head(id, compaction, &device.id);
        device.io("write a volume's head", file.write_at(&[IoSlice::new(&head)], 0))?;
        disk.reach("volume-head-written");
        device.sync(&**file)?;
        disk.reach("volume-synced");
        device.sync_directory(DIRECTORY)?;
        disk.reach("volume-placed");
        let volume = Arc::new(Volume::new(id, compaction, Arc::clone(file), BLOCK, false));
        self.add(Arc::clone(&volume));
        Ok(volume)
    }

    /// Nothing will be appended to a volume any more: free the space that was allocated beyond its end.
    pub(crate) fn seal(&self, device: &Device, volume: &Volume) -> Result<()> {
        volume.sealed.store(true, Ordering::Release);
        device.io("cut a volume", volume.file.truncate(volume.end.load(Ordering::Acquire)))
    }
}
