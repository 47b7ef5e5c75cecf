//! Where an object's fragments are.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use swiftlet_erasure::{Geometry, Scheme};
use swiftlet_fragments::forms::Numbers;
use swiftlet_fragments::{Device, Terms, Version};
use swiftlet_store::model::{FragmentInfo, Key, PutMeta};
use swiftlet_store::{COPIES, PARTITIONS};
use swiftlet_transport::Peer;

use crate::hedging::{Latencies, Share};
use crate::message::fragments::{MAX_READ_BYTES, MAX_READ_CELLS, Request};

/// A device: the server it is at, and its name there.
pub type Target = (Peer, String);

/// The largest cell that is written: it is sent in one piece.
pub const MOST_CELL_BYTES: usize = 1 << 20;
/// The distance from which on what comes from a device passes a link that is to be spared.
pub const FAR: u8 = 2;
/// Bytes of an object that are asked for at once, but for one stripe at least.
const MOST_WINDOW: u64 = 4 << 20;
/// Windows of which something may be in memory: two that are asked for ahead, and the last cells of the one before.
const WINDOWS: u64 = 3;

/// For so long after an answer a device is chosen for a write without being asked whether it is there. Many writes take
/// longer than that, and devices may go away in the middle of each.
const HEARD_LATELY: Duration = Duration::from_secs(10);
/// For so long after it has failed, or stood still, a device is read from only as far as the others are not enough. Then
/// a read finds out how it is now.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// A container update that is pending at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The key under which it is acknowledged.
    pub key: Key,
    /// The place that it was written for.
    pub place: usize,
    /// The device, by its number.
    pub device: u32,
    /// The container replicas, as bits.
    pub row: u32,
}

/// The container replicas whose update a place's device keeps, of those of all places that keep any.
pub(crate) fn row_of(place: usize, rows: &[u32]) -> u32 {
    rows.get(place).copied().unwrap_or(0)
}

/// What an answer has beside words: one with the bytes of cells takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    Words,
    Cells,
}

/// When a request is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// After this time another device may be asked as well, as long as few are.
    pub(super) late: Duration,
    /// After this time the device counts as one that stands still.
    pub(super) still: Duration,
}

/// What is known of a device.
#[derive(Debug, Default)]
struct Told {
    /// The incarnation that it had when it was asked last; 0 if it was never heard of.
    incarnation: AtomicU64,
    /// When it has answered something, in milliseconds, as [`Devices::now_ms`] says it; 0 if it has failed since.
    heard: AtomicU64,
    /// When it has failed; 0 if it has answered something since.
    failed: AtomicU64,
    /// How long its answers to readers take: those that are words, and those with cells.
    latencies: Mutex<[Latencies; 2]>,
}

impl Told {
    fn latencies(&self) -> MutexGuard<'_, [Latencies; 2]> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the time.
pub type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// The devices of a ring by their numbers, what they have said of themselves, and how fast they answer.
pub struct Devices {
    all: Vec<Option<(Target, Told)>>,
    clock: Clock,
    began: Instant,
    share: Mutex<Share>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Devices").field(&self.all).finish_non_exhaustive()
    }
}

impl Devices {
    /// These devices; the ring has none at some numbers.
    #[must_use]
    pub fn new(targets: Vec<Option<Target>>) -> Arc<Self> {
        Self::with_clock(targets, Box::new(Instant::now))
    }

    /// The same by another clock.
    #[must_use]
    pub fn with_clock(targets: Vec<Option<Target>>, clock: Clock) -> Arc<Self> {
        let all = targets.into_iter().map(|target| Some((target?, Told::default()))).collect();
        let began = clock();
        Arc::new(Self { all, clock, began, share: Mutex::default() })
    }

    fn get(&self, number: u32) -> Option<&(Target, Told)> {
        self.all.get(number as usize)?.as_ref()
    }

    pub(super) fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Milliseconds since these devices are known, 1 at least.
    fn now_ms(&self) -> u64 {
        self.now().saturating_duration_since(self.began).as_millis() as u64 + 1
    }

    fn is_since(&self, when: u64, least: Duration) -> bool {
        when != 0 && self.now_ms().saturating_sub(when) < least.as_millis() as u64
    }

    pub(crate) fn target(&self, number: u32) -> Option<&Target> {
        self.get(number).map(|(target, _)| target)
    }

    /// The device as it is chosen: with the incarnation that it had when it was asked last. One that was never heard of
    /// has 0, and nobody answers for it.
    pub(crate) fn chosen(&self, number: u32) -> Device {
        let incarnation = self.get(number).map_or(0, |(_, told)| told.incarnation.load(Relaxed));
        Device { number, incarnation }
    }

    pub(crate) fn learn(&self, number: u32, incarnation: u64) {
        if let Some((_, told)) = self.get(number) {
            told.incarnation.store(incarnation, Relaxed);
        }
        self.note(number, true);
    }

    /// A device has answered, or has not done what it was asked for.
    pub(crate) fn note(&self, number: u32, is_well: bool) {
        if let Some((_, told)) = self.get(number) {
            let now = self.now_ms();
            told.heard.store(if is_well { now } else { 0 }, Relaxed);
            told.failed.store(if is_well { 0 } else { now }, Relaxed);
        }
    }

    /// Whether a device may be chosen by the incarnation that is known of it: it has answered lately, and has not failed
    /// since. One that was replaced refuses what was meant for its predecessor.
    pub(crate) fn is_well(&self, number: u32) -> bool {
        self.get(number).is_some_and(|(_, told)| {
            told.incarnation.load(Relaxed) != 0 && self.is_since(told.heard.load(Relaxed), HEARD_LATELY)
        })
    }

    /// Whether a device has failed lately, and has answered nothing since: others are read from as far as they are
    /// enough.
    pub(super) fn has_failed(&self, number: u32) -> bool {
        self.get(number).is_some_and(|(_, told)| self.is_since(told.failed.load(Relaxed), FAILED_FOR))
    }

    /// A device has answered a reader after so long, or not yet.
    pub(super) fn took(&self, number: u32, carries: Carries, time: Duration) {
        if let Some((_, told)) = self.get(number) {
            told.latencies()[carries as usize].add(time);
        }
    }

    /// When a device is late that a reader asks now: after `unknown` if nobody knows how long its answers take.
    pub(super) fn patience(&self, number: u32, carries: Carries, unknown: Duration) -> Patience {
        let known = self.get(number).and_then(|(_, told)| told.latencies()[carries as usize].late());
        let late = known.unwrap_or(unknown);
        Patience { late, still: known.map_or(unknown, |late| unknown.max(2 * late)) }
    }

    fn share(&self) -> MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader asks a device.
    pub(super) fn save(&self) {
        self.share().save();
    }

    /// Whether a reader may ask for so many things more as a device is late, which then count.
    pub(super) fn take(&self, requests: usize) -> bool {
        self.share().take(requests.min(u8::MAX.into()) as u8)
    }
}

/// The places of one object.
#[derive(Clone, Debug)]
pub struct Places {
    pub(crate) devices: Arc<Devices>,
    /// The device at each place.
    pub(crate) at: Vec<u32>,
    /// Devices that stand in for others, the first one first.
    pub(crate) spares: Vec<u32>,
    pub(crate) scheme: Scheme,
    pub(crate) cell_bytes: usize,
    /// How far away each device is, by its number; those behind the end are as near as can be.
    distances: Arc<[u8]>,
    /// Bytes of the object that are asked for at once.
    window_bytes: u64,
    key: Key,
}

impl Places {
    /// The object with this key, whose partition is the ring's, coded in this way; its devices by their numbers.
    ///
    /// # Errors
    /// The devices are not one for each fragment, or are repeated, or the partition or the cells are too large.
    pub fn new(
        devices: Arc<Devices>,
        key: Key,
        (scheme, cell_bytes): (Scheme, usize),
        at: Vec<u32>,
        spares: Vec<u32>,
    ) -> Result<Self, &'static str> {
        if at.len() != scheme.cells() {
            return Err("an object needs one device for each fragment");
        }
        let mut once = BTreeSet::new();
        if !at.iter().chain(&spares).all(|number| once.insert(*number)) {
            return Err("a device is there twice for one object");
        }
        if key.partition >= 1 << 27 {
            return Err("a policy with erasure coding has 2^27 partitions at most");
        }
        if !(1..=MOST_CELL_BYTES).contains(&cell_bytes) {
            return Err("a cell has 1 byte to 1 MiB");
        }
        let (distances, window_bytes) = (Arc::default(), MOST_WINDOW);
        Ok(Self { devices, at, spares, scheme, cell_bytes, distances, window_bytes, key })
    }

    /// The same places for one from whom the devices are so far away, by their numbers: see [`FAR`].
    #[must_use]
    pub fn seen_from(self, distances: impl Into<Arc<[u8]>>) -> Self {
        Self { distances: distances.into(), ..self }
    }

    /// The same places for one who asks for so many bytes of the object at once, but for one stripe at least.
    #[must_use]
    pub fn in_windows_of(self, window_bytes: u64) -> Self {
        Self { window_bytes, ..self }
    }

    /// The most memory that the cells take of a read of so many bytes, of which `ahead_bytes` may wait for its caller.
    #[must_use]
    pub fn read_bytes(&self, bytes: u64, ahead_bytes: u64) -> u64 {
        let stripe = self.stripe_bytes();
        let most = (WINDOWS * self.window() + 1) * stripe + ahead_bytes;
        bytes.saturating_add(2 * stripe).min(most)
    }

    /// The places in the order in which a reader asks them what the object is: those of devices that are to be avoided
    /// last, those that may have copies first, then fragments with data before others, near ones first; otherwise in an
    /// order by `random`. And how many of them are not to be avoided.
    #[must_use]
    pub fn in_order(&self, is_avoided: impl Fn(u32) -> bool, random: u64) -> (Vec<usize>, usize) {
        let holders = self.numbers().holders;
        let rank = |place: &usize| {
            let (place, device) = (*place, self.at[*place]);
            let distance = self.distances.get(device as usize).copied().unwrap_or(0);
            let by_chance = swiftlet_hash::xxh3_64(&(random ^ place as u64).to_be_bytes());
            (is_avoided(device), place >= holders, place >= self.scheme.data(), distance, by_chance)
        };
        let mut order: Vec<usize> = (0..self.at.len()).collect();
        order.sort_by_cached_key(rank);
        let sound = self.at.iter().filter(|device| !is_avoided(**device)).count();
        (order, sound)
    }

    pub(crate) fn distances(&self) -> Arc<[u8]> {
        Arc::clone(&self.distances)
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms::of(self.scheme)
    }

    /// The numbers of small objects as well.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers::of(self.terms())
    }

    /// The key of a fragment.
    pub(crate) fn key(&self, place: usize) -> Key {
        Key { partition: PARTITIONS * self.key.partition + place as u32, ..self.key }
    }

    /// The places of another object of the same partition.
    pub(crate) fn of_digest(&self, digest: [u8; 16]) -> Self {
        Self { key: Key { digest, ..self.key }, ..self.clone() }
    }

    /// The key of the object's copies, at whichever place.
    pub(crate) fn copy_key(&self) -> Key {
        Key { partition: PARTITIONS * self.key.partition + COPIES, ..self.key }
    }

    pub(crate) fn owed(&self, place: usize, device: u32, rows: &[u32]) -> Owed {
        Owed { key: self.key(place), place, device, row: row_of(place, rows) }
    }

    pub(crate) fn stripe_bytes(&self) -> u64 {
        (self.scheme.data() * self.cell_bytes) as u64
    }

    /// Stripes that are asked for at once: one answer has as many cells at least.
    pub(crate) fn window(&self) -> u64 {
        let most = (MAX_READ_BYTES / self.cell_bytes as u64).min(MAX_READ_CELLS);
        (self.window_bytes / self.stripe_bytes()).clamp(1, most)
    }

    /// Whether this can be what is stored with a fragment of the object.
    pub(crate) fn fits(&self, index: usize, info: &FragmentInfo) -> bool {
        let block = &info.block;
        block.index == index
            && block.geometry.scheme() == self.scheme
            && block.cell_bytes == self.cell_bytes
            && !info.version().is_deletion()
    }

    /// For each fragment the devices that may have it: at its place, chosen for it, or one that has said so.
    pub(crate) fn sources(&self, info: &FragmentInfo, holders: &[(usize, u32)]) -> Vec<VecDeque<u32>> {
        let mut sources: Vec<VecDeque<u32>> = self.at.iter().map(|device| VecDeque::from([*device])).collect();
        let chosen = info.block.chosen.iter().map(|device| device.number).enumerate();
        for (index, device) in chosen.chain(holders.iter().copied()) {
            if !sources[index].contains(&device) {
                sources[index].push_back(device);
            }
        }
        sources
    }

    /// What begins a fragment that is to be prepared, and its bytes, if the object's are known.
    pub(crate) fn keep(&self, place: usize, size: Option<u64>, meta: &PutMeta, row: u32) -> (Request, Option<u64>) {
        let geometry = size.and_then(|size| Geometry::new(self.scheme, self.cell_bytes, size).ok());
        let size = geometry.map(|geometry| geometry.fragment_bytes(place));
        let (key, cell_bytes, meta) = (self.key(place), self.cell_bytes as u32, meta.clone());
        (Request::Keep { key, certain: false, cell_bytes, size, meta, row }, size)
    }

    /// The question what is stored with a version.
    pub(crate) fn describe(&self, index: usize, version: Version) -> Request {
        let next = Version { generation: version.generation.saturating_add(1), ..version };
        Request::Newest { key: self.key(index), below: Some(next), start: 0, stop: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 4+2 on these devices.
    fn places(at: Vec<u32>) -> Places {
        let key = Key { policy: 0, partition: 1, digest: [0; 16] };
        let scheme = Scheme::new(4, 2).expect("a scheme");
        Places::new(Devices::new(vec![]), key, (scheme, 64 << 10), at, vec![9]).expect("places")
    }

    #[test]
    fn a_reader_asks_sound_and_near_places_with_copies_first() {
        let places = places(vec![5, 4, 3, 2, 1, 0]).seen_from(vec![0, 0, 0, 0, 1, 0]);
        for random in 0..20 {
            let (order, sound) = places.in_order(|device| device == 5 || device == 0, random);
            // The first three have copies, of which the first one is to be avoided and the second one is far.
            assert_eq!((order, sound), (vec![2, 1, 3, 4, 0, 5], 4));
        }
        let first: BTreeSet<usize> = (0..50).map(|random| places.in_order(|_| false, random).0[0]).collect();
        assert_eq!(first, BTreeSet::from([0, 2]), "the near ones take turns");
    }

    #[test]
    fn a_read_takes_what_its_windows_take() {
        let (mib, stripe) = (1 << 20, 256 << 10);
        let whole = |places: &Places| places.read_bytes(u64::MAX, mib);
        assert_eq!(whole(&places((0..6).collect())), 13 * mib + stripe);
        let small = places((0..6).collect()).in_windows_of(2 * mib);
        assert_eq!(whole(&small), 7 * mib + stripe);
        assert_eq!(small.read_bytes(10, mib), 10 + 2 * stripe);
        assert_eq!((places((0..6).collect()).in_windows_of(1).window(), small.window()), (1, 8));
    }
}
