//! A disk in memory that crashes as real ones do.
//!
//! Fault model: data that were not synced may be lost, sector by sector and in any order; a sector under way may be
//! torn, with the first bytes new and the others old. Of the changed names in a directory, the first few changes since
//! its sync survive. The crash comes at a named point or in the middle of any operation, after which every operation
//! fails. The disk may also be full, fail at the n-th operation, and flip bits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blocks::BLOCK;
use super::{Disk, File};

const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl Inode {
    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.make_durable(sector, SECTOR);
        }
    }

    /// The first bytes of a sector reach the disk.
    fn make_durable(&mut self, sector: usize, bytes: usize) {
        let start = sector * SECTOR;
        let end = (start + bytes).min(self.cached.len()).min(self.durable.len());
        if start < end {
            self.durable[start..end].copy_from_slice(&self.cached[start..end]);
        }
    }
}

#[derive(Clone)]
enum Change {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

#[derive(Clone, Default)]
struct Directory {
    cached: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<Change>,
}

impl Directory {
    fn change(&mut self, change: Change) {
        apply(&mut self.cached, &change);
        self.pending.push(change);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Change) {
    match change {
        Change::Link(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        Change::Unlink(name) => {
            names.remove(name);
        }
        Change::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

/// The faults that the disk will have.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Crash when a point is reached for the n-th time.
    pub crash_at: Option<(&'static str, u64)>,
    /// Crash in the middle of the n-th operation that changes something.
    pub crash_after: Option<u64>,
    /// Answer the n-th operation with an I/O error.
    pub fail_after: Option<u64>,
    /// No space for operations that make files longer or fill holes.
    pub full: bool,
    /// Nothing can be read without waiting for the device.
    pub cold: bool,
}

#[derive(Clone, Default)]
struct State {
    inodes: HashMap<u64, Inode>,
    directories: BTreeMap<String, Directory>,
    next: u64,
    faults: Faults,
    dead: bool,
    changes: u64,
    operations: u64,
    /// Whether direct writes are not offered.
    buffers: bool,
    reached: BTreeMap<&'static str, u64>,
    at_once: u64,
    chance: u64,
}

impl State {
    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below.max(1)
    }

    /// Called before every operation: whether it may continue.
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.dead || self.faults.fail_after.is_some_and(|nth| self.operations == nth) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    /// Called before every operation that changes something; true when the crash comes in the middle of it.
    fn change(&mut self) -> io::Result<bool> {
        self.operation()?;
        self.changes += 1;
        if self.faults.crash_after.is_some_and(|nth| self.changes >= nth) {
            self.dead = true;
        }
        Ok(self.dead)
    }

    fn directory(&mut self, path: &str) -> io::Result<(&mut Directory, String)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.directories.get_mut(parent).ok_or(io::ErrorKind::NotFound)?;
        Ok((directory, name.to_owned()))
    }
}

fn died() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// The disk; clones of the `Arc` are the same disk.
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

struct SimulatedFile {
    inode: u64,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedDisk {
    /// An empty disk; `seed` decides what a crash leaves. One of three has files that can't be written directly.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Arc<Self> {
        let mut state = State { faults, chance: seed, buffers: seed.is_multiple_of(3), ..State::default() };
        state.directories.insert(String::new(), Directory::default());
        Arc::new(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// The disk as the next process finds it after a power loss: another disk, with faults of its own.
    #[must_use]
    pub fn after_crash(&self, faults: Faults) -> Arc<Self> {
        let mut state = lock(&self.state).clone();
        let mut inodes = std::mem::take(&mut state.inodes);
        let mut ordered: Vec<_> = inodes.iter_mut().collect();
        ordered.sort_by_key(|(number, _)| **number);
        for (_, inode) in ordered {
            let (old, new) = (inode.durable.len(), inode.cached.len());
            if old != new && state.random(2) == 0 {
                inode.durable.resize(new, 0);
            }
            for sector in std::mem::take(&mut inode.dirty) {
                match state.random(5) {
                    0 | 1 => inode.make_durable(sector, SECTOR),
                    2 => inode.make_durable(sector, state.random(SECTOR as u64) as usize),
                    _ => {}
                }
            }
            inode.cached.clone_from(&inode.durable);
        }
        state.inodes = inodes;
        let mut directories = std::mem::take(&mut state.directories);
        for directory in directories.values_mut() {
            let kept = state.random(directory.pending.len() as u64 + 1) as usize;
            for change in std::mem::take(&mut directory.pending).iter().take(kept) {
                apply(&mut directory.durable, change);
            }
            directory.cached.clone_from(&directory.durable);
        }
        state.directories = directories;
        state.dead = false;
        state.faults = faults;
        (state.changes, state.operations) = (0, 0);
        state.reached.clear();
        Arc::new(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Another disk with the same content.
    #[must_use]
    pub fn copy(&self) -> Arc<Self> {
        Arc::new(Self { state: Arc::new(Mutex::new(lock(&self.state).clone())) })
    }

    /// Set the faults that the disk will have, counted from now on.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = lock(&self.state);
        state.faults = faults;
        (state.changes, state.operations) = (0, 0);
    }

    /// Whether the crash has come.
    #[must_use]
    pub fn crashed(&self) -> bool {
        lock(&self.state).dead
    }

    /// Points that were reached and how often.
    #[must_use]
    pub fn reached(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).reached.clone()
    }

    /// Reads so far that had to wait for nothing.
    #[must_use]
    pub fn reads_at_once(&self) -> u64 {
        lock(&self.state).at_once
    }

    /// Operations that changed something so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        lock(&self.state).changes
    }

    /// Paths of all files, with their sizes.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = lock(&self.state);
        let mut found = Vec::new();
        for (directory, content) in &state.directories {
            for (name, inode) in &content.cached {
                if let Some(inode) = state.inodes.get(inode) {
                    let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
                    found.push((path, inode.cached.len() as u64));
                }
            }
        }
        found
    }

    /// Flip one bit of a file, on the disk and in the page cache.
    pub fn flip(&self, path: &str, bit: u64) {
        let mut state = lock(&self.state);
        let Ok((directory, name)) = state.directory(path) else { return };
        let Some(inode) = directory.cached.get(&name).copied() else { return };
        let Some(inode) = state.inodes.get_mut(&inode) else { return };
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        for content in [&mut inode.cached, &mut inode.durable] {
            if let Some(byte) = content.get_mut(byte) {
                *byte ^= mask;
            }
        }
    }

    fn file(&self, inode: u64) -> Arc<dyn File> {
        Arc::new(SimulatedFile { inode, state: Arc::clone(&self.state) })
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let mut state = lock(&self.state);
        let crash = state.change()?;
        if state.faults.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.next += 1;
        let inode = state.next;
        let (directory, name) = state.directory(path)?;
        if directory.cached.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        directory.change(Change::Link(name, inode));
        state.inodes.insert(inode, Inode::default());
        drop(state);
        if crash { Err(died()) } else { Ok(self.file(inode)) }
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let mut state = lock(&self.state);
        state.operation()?;
        let (directory, name) = state.directory(path)?;
        let inode = *directory.cached.get(&name).ok_or(io::ErrorKind::NotFound)?;
        drop(state);
        Ok(self.file(inode))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut state = lock(&self.state);
        state.operation()?;
        let directory = state.directories.get(directory).ok_or(io::ErrorKind::NotFound)?;
        Ok(directory.cached.keys().cloned().collect())
    }

    fn make_directory(&self, path: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change()?;
        // Directories appear at once: a store syncs their parents before it uses them.
        state.directories.entry(path.to_owned()).or_default();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let crash = state.change()?;
        let (directory, name) = state.directory(from)?;
        if !directory.cached.contains_key(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (parent, target) = to.rsplit_once('/').unwrap_or(("", to));
        if from.rsplit_once('/').map_or("", |(parent, _)| parent) == parent {
            directory.change(Change::Rename(name, target.to_owned()));
        } else {
            let inode = directory.cached[&name];
            directory.change(Change::Unlink(name));
            let (directory, target) = state.directory(to)?;
            directory.change(Change::Link(target, inode));
        }
        if crash { Err(died()) } else { Ok(()) }
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let crash = state.change()?;
        let (directory, name) = state.directory(path)?;
        if !directory.cached.contains_key(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        directory.change(Change::Unlink(name));
        if crash { Err(died()) } else { Ok(()) }
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.change()? {
            return Err(died());
        }
        let directory = state.directories.get_mut(path).ok_or(io::ErrorKind::NotFound)?;
        directory.pending.clear();
        directory.durable.clone_from(&directory.cached);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.change()? {
            return Err(died());
        }
        state.inodes.values_mut().for_each(Inode::sync);
        for directory in state.directories.values_mut() {
            directory.pending.clear();
            directory.durable.clone_from(&directory.cached);
        }
        Ok(())
    }

    fn is_direct(&self) -> bool {
        !lock(&self.state).buffers
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let mut state = lock(&self.state);
        state.operation()?;
        let used: usize = state.inodes.values().map(|inode| inode.cached.len()).sum();
        Ok((1 << 40, if state.faults.full { 0 } else { (1_u64 << 40) - used as u64 }))
    }

    fn release(&self) {}

    fn reach(&self, point: &'static str) {
        let mut state = lock(&self.state);
        if state.dead {
            return;
        }
        let count = state.reached.entry(point).or_default();
        *count += 1;
        let count = *count;
        if state.faults.crash_at == Some((point, count)) {
            state.dead = true;
        }
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = lock(&self.state);
        state.operation()?;
        let content = &state.inodes[&self.inode].cached;
        let start = (offset as usize).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> bool {
        let is_cold = lock(&self.state).faults.cold;
        let is_whole = !is_cold && self.read_at(buffer, offset).is_ok_and(|read| read == buffer.len());
        lock(&self.state).at_once += u64::from(is_whole);
        is_whole
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let crash = state.change()?;
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if crash {
            let kept = state.random(bytes.len() as u64 + 1) as usize;
            bytes.truncate(kept);
        }
        let full = state.faults.full;
        let Some(inode) = state.inodes.get_mut(&self.inode) else { return Err(died()) };
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if inode.cached.len() < end {
            if full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inode.cached.resize(end, 0);
        }
        inode.cached[start..end].copy_from_slice(&bytes);
        inode.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
        if crash { Err(died()) } else { Ok(()) }
    }

    fn is_direct(&self) -> bool {
        !lock(&self.state).buffers
    }

    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let numbers = [offset as usize, blocks.len(), blocks.as_ptr() as usize];
        assert!(numbers.iter().all(|number| number.is_multiple_of(BLOCK)), "these are no blocks");
        // Nothing of it is on the disk for sure before a sync: the disk has a cache of its own.
        self.write_at(&[IoSlice::new(blocks)], offset)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.change()? {
            return Err(died());
        }
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.sync();
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = lock(&self.state);
        state.operation()?;
        Ok(state.inodes[&self.inode].cached.len() as u64)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change()?;
        if state.faults.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            let size = inode.cached.len().max(size as usize);
            inode.cached.resize(size, 0);
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change()?;
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.dirty.extend(size as usize / SECTOR..inode.cached.len().div_ceil(SECTOR));
            inode.cached.resize(size as usize, 0);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change()?;
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            let start = (offset as usize).min(inode.cached.len());
            let end = ((offset + len) as usize).min(inode.cached.len());
            inode.cached[start..end].fill(0);
            inode.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
