//! Files of large objects: their names and numbers, who reads them, and those that are kept to be written again.
//!
//! A new file costs the file system more than the bytes that are written to it: blocks or pages are found, accounted for,
//! and returned when the file is removed, and a sync has to wait for its journal. So a file that nothing refers to any
//! more is kept as a spare for a while, and the next large object is written over it, under a name of its own.
//!
//! Fault model: whoever still reads a version keeps its file, which is then removed and not written again. That includes
//! what the kernel may still be sending from its pages, so a file whose descriptor was given away is never a spare. A
//! spare is the content of a version whose replacement is durable, or of one that never counted. After a crash it has its
//! old name, its new one, or both; no record refers to it by either, and the next start removes it. Spares take no room
//! that others need: there are none on a device that is not far from full, they are limited, and those that nobody wants
//! are removed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::disk::File;
use crate::error::Result;

/// The directory of large files.
pub(crate) const DIRECTORY: &str = "large";
/// The most spares that a device has.
const MAX_SPARES: usize = 32;
/// A spare that was not wanted for so many turns of upkeep is removed; there is one a second.
const UNWANTED_TURNS: u32 = 10;
/// So many files are known one by one whose descriptors were given away; beyond that, all files of that time count as
/// such.
const MAX_GIVEN: usize = 1 << 16;

struct Spare {
    number: u64,
    file: Arc<dyn File>,
    bytes: u64,
    /// How often upkeep has found it.
    turns: u32,
}

#[derive(Default)]
struct State {
    /// How often each file is open for reading.
    readers: HashMap<u64, usize>,
    /// Files whose descriptors were given away.
    given: HashSet<u64>,
    /// The same may be true of all files with lower numbers.
    given_below: u64,
    spares: Vec<Spare>,
}

/// A file for a new large object.
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn File>,
    /// Bytes that it has from before, to be written over or cut off.
    pub(crate) bytes: u64,
}

/// The large files of a device.
pub(crate) struct Files {
    next: AtomicU64,
    made: Mutex<HashSet<u8>>,
    /// The most bytes that all spares together have.
    spare_bytes: u64,
    state: Mutex<State>,
}

impl Files {
    pub(crate) fn new(next: u64, spare_bytes: u64) -> Self {
        Self { next: AtomicU64::new(next.max(1)), made: Mutex::default(), spare_bytes, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no file has, whose directory exists durably.
    fn take_number(&self, device: &Device) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let low = number as u8;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains(&low) {
            device.io("make a directory", device.disk.make_directory(&directory_of(number)))?;
            device.sync_directory(DIRECTORY)?;
            made.insert(low);
        }
        Ok(number)
    }

    /// A file for an object of this size, if that is known: a spare, or a new one.
    pub(crate) fn create(&self, device: &Device, size: Option<u64>) -> Result<Place> {
        let number = self.take_number(device)?;
        let path = path_of(number);
        if let Some(Spare { number: old, file, bytes, .. }) = self.take_spare(size) {
            match device.disk.rename(&path_of(old), &path) {
                Ok(()) => {
                    device.disk.reach("large-reused");
                    return Ok(Place { number, file, bytes });
                }
                // It is no longer there: what was damaged is moved away.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    // What is left of it under either name is removed at the next start.
                    let _ = device.disk.unlink(&path_of(old));
                    return device.io("write a large file again", Err(error));
                }
            }
        }
        let file = device.io("make a large file", device.disk.create(&path))?;
        device.disk.reach("large-created");
        Ok(Place { number, file, bytes: 0 })
    }

    /// The spare whose size is the nearest; the largest for an unknown size.
    fn take_spare(&self, size: Option<u64>) -> Option<Spare> {
        let mut state = self.lock();
        let size = size.unwrap_or(u64::MAX);
        let sizes = state.spares.iter().map(|spare| spare.bytes.abs_diff(size)).enumerate();
        let (at, _) = sizes.min_by_key(|(_, difference)| *difference)?;
        Some(state.spares.swap_remove(at))
    }

    /// A file for reading; `NotFound` if it is gone, or about to be.
    pub(crate) fn open(self: &Arc<Self>, device: &Device, number: u64) -> io::Result<Reading> {
        {
            let mut state = self.lock();
            if state.spares.iter().any(|spare| spare.number == number) {
                return Err(io::ErrorKind::NotFound.into());
            }
            *state.readers.entry(number).or_default() += 1;
        }
        // From here on it is not written again.
        let reader = Reader { number, files: Arc::clone(self) };
        Ok(Reading { file: device.disk.open(&path_of(number))?, reader })
    }

    /// Nothing refers to this file any more: keep it as a spare or remove it. What can't be removed now is removed at the
    /// next start.
    pub(crate) fn release(&self, device: &Device, number: u64) {
        if !self.keep(device, number) {
            device.disk.reach("large-unlink");
            let _ = device.disk.unlink(&path_of(number));
        }
    }

    /// Whether it is kept as a spare.
    fn keep(&self, device: &Device, number: u64) -> bool {
        if self.spare_bytes == 0 || !device.has_ample_room() {
            return false;
        }
        let opened = device.disk.open(&path_of(number)).and_then(|file| Ok((file.size()?, file)));
        let Ok((bytes, file)) = opened else { return false };
        let mut state = self.lock();
        if state.spares.iter().any(|spare| spare.number == number) {
            return true;
        }
        let has_left = state.given.remove(&number) || number < state.given_below;
        let held: u64 = state.spares.iter().map(|spare| spare.bytes).sum();
        let has_room = state.spares.len() < MAX_SPARES && held.saturating_add(bytes) <= self.spare_bytes;
        if has_left || !has_room || bytes == 0 || state.readers.contains_key(&number) {
            return false;
        }
        state.spares.push(Spare { number, file, bytes, turns: 0 });
        true
    }

    /// Remove the spares that were not wanted for a while; a part of upkeep.
    pub(crate) fn remove_unwanted(&self, device: &Device) {
        let mut state = self.lock();
        state.spares.iter_mut().for_each(|spare| spare.turns += 1);
        let unwanted: Vec<Spare> = state.spares.extract_if(.., |spare| spare.turns > UNWANTED_TURNS).collect();
        drop(state);
        remove(device, unwanted);
    }

    /// Remove all spares.
    pub(crate) fn remove_spares(&self, device: &Device) {
        let spares = std::mem::take(&mut self.lock().spares);
        remove(device, spares);
    }

    /// Note that a file's descriptor was given away.
    fn gave(&self, number: u64) {
        let mut state = self.lock();
        if state.given.len() >= MAX_GIVEN {
            state.given.clear();
            state.given_below = self.next.load(Ordering::Relaxed);
        }
        state.given.insert(number);
    }
}

fn remove(device: &Device, spares: Vec<Spare>) {
    for spare in spares {
        device.disk.reach("large-unlink");
        let _ = device.disk.unlink(&path_of(spare.number));
    }
}

/// Counts as a reader of a file for as long as it lives.
struct Reader {
    number: u64,
    files: Arc<Files>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.files.lock();
        if let Some(count) = state.readers.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                state.readers.remove(&self.number);
            }
        }
    }
}

/// A large file that is being read: nothing is written over it meanwhile.
pub(crate) struct Reading {
    file: Arc<dyn File>,
    reader: Reader,
}

impl Reading {
    /// Its descriptor, where there is a real file. From now on it is never written again, as the kernel may send its
    /// pages at any later time.
    pub(crate) fn give_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = self.file.descriptor()?;
        self.reader.files.gave(self.reader.number);
        Some(descriptor)
    }
}

impl Deref for Reading {
    type Target = dyn File;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

/// The directory of a large file.
pub(crate) fn directory_of(number: u64) -> String {
    format!("{DIRECTORY}/{:02x}", number as u8)
}

/// The path of a large file.
pub(crate) fn path_of(number: u64) -> String {
    format!("{}/{number:016x}", directory_of(number))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::disk::{Disk, Faults, SimulatedDisk};

    fn device() -> (Arc<SimulatedDisk>, Device) {
        let disk = SimulatedDisk::new(1, Faults::default());
        disk.make_directory(DIRECTORY).expect("a directory");
        let device = Device::new(Arc::clone(&disk) as _, [1; 16], 0);
        (disk, device)
    }

    /// A new file of so many bytes.
    fn written(files: &Files, device: &Device, bytes: usize) -> u64 {
        let place = files.create(device, Some(bytes as u64)).expect("a file");
        place.file.write_at(&[IoSlice::new(&vec![7; bytes])], 0).expect("written");
        place.number
    }

    fn names(disk: &SimulatedDisk) -> Vec<String> {
        disk.files().into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn the_spare_of_the_nearest_size_is_written_again() {
        let (disk, device) = device();
        let files = Files::new(1, 1000);
        let numbers = [100, 300, 500].map(|bytes| written(&files, &device, bytes));
        numbers.iter().for_each(|number| files.release(&device, *number));
        let sizes = [Some(280), None, Some(1), Some(1)];
        let found = sizes.map(|size| files.create(&device, size).expect("a file"));
        assert_eq!(found.each_ref().map(|place| place.bytes), [300, 500, 100, 0]);
        let mut expected: Vec<String> = found.iter().map(|place| path_of(place.number)).collect();
        expected.sort_unstable();
        assert_eq!(names(&disk), expected, "the old names are gone");
        assert_eq!(disk.reached()["large-reused"], 3);
    }

    #[test]
    fn spares_are_limited_by_bytes_and_number() {
        let (disk, device) = device();
        let files = Files::new(1, 1000);
        let numbers = [600, 500, 400, 1001].map(|bytes| written(&files, &device, bytes));
        for number in numbers.iter().chain(&numbers) {
            files.release(&device, *number);
        }
        assert_eq!(names(&disk), [path_of(numbers[0]), path_of(numbers[2])]);
        files.remove_spares(&device);
        assert!(names(&disk).is_empty());
        let numbers: Vec<u64> = (0..MAX_SPARES + 3).map(|_| written(&files, &device, 1)).collect();
        numbers.iter().for_each(|number| files.release(&device, *number));
        assert_eq!(names(&disk).len(), MAX_SPARES);
    }

    #[test]
    fn spares_that_nobody_wants_are_removed() {
        let (disk, device) = device();
        let files = Files::new(1, 1000);
        let [old, young] = [1, 1].map(|bytes| written(&files, &device, bytes));
        files.release(&device, old);
        files.remove_unwanted(&device);
        files.release(&device, young);
        (1..UNWANTED_TURNS).for_each(|_| files.remove_unwanted(&device));
        assert_eq!(names(&disk), [old, young].map(path_of));
        files.remove_unwanted(&device);
        assert_eq!(names(&disk), [path_of(young)]);
    }

    #[test]
    fn there_are_none_where_room_is_short_or_after_a_failure() {
        let (disk, device) = device();
        let files = Files::new(1, 1000);
        let numbers = [1, 1].map(|bytes| written(&files, &device, bytes));
        disk.set_faults(Faults { full: true, ..Faults::default() });
        files.release(&device, numbers[0]);
        assert_eq!(names(&disk), [path_of(numbers[1])]);
        disk.set_faults(Faults::default());
        device.fail("as if");
        files.release(&device, numbers[1]);
        assert!(names(&disk).is_empty());
    }

    #[test]
    fn what_is_read_or_may_be_sent_is_not_written_again() {
        let (disk, device) = device();
        let files = Arc::new(Files::new(1, 1000));
        let numbers = [1, 1, 1].map(|bytes| written(&files, &device, bytes));
        let reading = [0, 0, 1].map(|at| files.open(&device, numbers[at]).expect("it opens"));
        let [_open, again, closed] = reading;
        drop((again, closed));
        files.gave(numbers[2]);
        numbers.iter().for_each(|number| files.release(&device, *number));
        assert_eq!(names(&disk), [path_of(numbers[1])], "one is still open, and one was given away");
        let found = files.open(&device, numbers[1]).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(found, Err(io::ErrorKind::NotFound), "nobody begins to read a spare");
    }

    #[test]
    fn when_too_many_were_given_away_none_of_that_time_is_written_again() {
        let (disk, device) = device();
        let files = Files::new(1, 1000);
        let number = written(&files, &device, 1);
        (0..=MAX_GIVEN as u64).for_each(|other| files.gave(number + 1 + other));
        assert!(files.lock().given.len() <= MAX_GIVEN);
        files.release(&device, number);
        assert!(names(&disk).is_empty());
        files.release(&device, written(&files, &device, 1));
        assert_eq!(names(&disk).len(), 1);
    }
}
