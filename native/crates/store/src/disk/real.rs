//! A directory of the operating system, owned by this process alone.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, FsWord, Mode, OFlags, fadvise, fallocate, flock, fstatfs, open, statvfs,
    syncfs,
};
use rustix::io::{ReadWriteFlags, preadv2};

use super::blocks::{BLOCK, Blocks};
use super::{Disk, File, cached};
use crate::error::{Error, Result};

/// How many buffers `pwritev` takes at once.
const MAX_PARTS: usize = 1024;
/// A crash test names a point and how often it is reached before the process kills itself, `name[:n]`.
const FAILPOINT: &str = "SWIFTLET_STORE_FAILPOINT";

/// For how long it counts as known how much space there is.
const RECENTLY: Duration = Duration::from_millis(50);

/// `statfs` of a file system in memory, which has no use for direct writes, and does not know reads that must not wait,
/// says this.
const IN_MEMORY: FsWord = 0x0102_1994;

struct RealFile {
    file: fs::File,
    /// The same file for direct writes, once somebody asked for it; None where the file system has none.
    direct: OnceLock<Option<fs::File>>,
    /// Whether the file system has refused a direct write.
    refused: AtomicBool,
    /// Whether it is in memory, once somebody asked for it.
    in_memory: OnceLock<bool>,
}

impl RealFile {
    fn around(file: fs::File) -> Self {
        Self { file, direct: OnceLock::new(), refused: AtomicBool::new(false), in_memory: OnceLock::new() }
    }

    fn is_in_memory(&self) -> bool {
        let ask = || fstatfs(&self.file).is_ok_and(|system| system.f_type == IN_MEMORY);
        *self.in_memory.get_or_init(ask)
    }

    fn direct(&self) -> Option<&fs::File> {
        let again = || {
            if self.is_in_memory() {
                return None;
            }
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
            open(path, flags, Mode::empty()).ok().map(fs::File::from)
        };
        self.direct.get_or_init(again).as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }
}

/// Fill whole blocks; fewer bytes only at the file's end, which may be within a block.
fn read_blocks(direct: &fs::File, blocks: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < blocks.len() {
        match direct.read_at(&mut blocks[done..], offset + done as u64) {
            Ok(count) if count == 0 || !count.is_multiple_of(BLOCK) => return Ok(done + count),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl File for RealFile {
    fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(direct) = self.direct().filter(|_| done < blocks.len()) {
            match direct.write_at(&blocks[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The disk's blocks are larger, what was written last ends within one, or the file system can't.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        if done < blocks.len() { self.file.write_all_at(&blocks[done..], offset + done as u64) } else { Ok(()) }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn append_from_device(&self, buffer: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<usize> {
        let begin = offset - offset % BLOCK as u64;
        let end = offset.saturating_add(len as u64);
        let (before, mut blocks) = ((offset - begin) as usize, Blocks::default());
        match self.direct().map(|direct| read_blocks(direct, blocks.room((end - begin) as usize), begin)) {
            Some(Ok(count)) => {
                let found = before.min(count)..(before + len).min(count);
                buffer.extend_from_slice(&blocks[found.clone()]);
                Ok(found.len())
            }
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            // There are no direct reads here: what was synced can be dropped from the page cache, and is read anew.
            _ => {
                let _ = fadvise(&self.file, begin, NonZeroU64::new(end - begin), Advice::DontNeed);
                self.append_at(buffer, len, offset)
            }
        }
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        // Advice: without it the bytes are read in smaller pieces, when they are needed.
        let _ = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn append_at(&self, buffer: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<usize> {
        let (had, want) = (buffer.len(), buffer.len() + len);
        buffer.reserve_exact(len);
        while buffer.len() < want {
            // There may be more room than was asked for, and it may be filled as well.
            let at = offset + (buffer.len() - had) as u64;
            match rustix::io::pread(&self.file, spare_capacity(buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    buffer.truncate(had);
                    return Err(error.into());
                }
            }
        }
        buffer.truncate(want);
        Ok(buffer.len() - had)
    }

    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> bool {
        let len = buffer.len();
        if !cached::has(&self.file, offset, len as u64) {
            return false;
        }
        let read = if self.is_in_memory() {
            self.file.read_at(buffer, offset).ok()
        } else {
            // Without a wait for what is still on its way into the page cache, or has just left it.
            preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT).ok()
        };
        read == Some(len)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for group in parts.chunks(MAX_PARTS) {
            let mut written = match rustix::io::pwritev(&self.file, group, offset) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            };
            for part in group {
                if written < part.len() {
                    self.file.write_all_at(&part[written..], offset + written as u64)?;
                }
                written = written.saturating_sub(part.len());
                offset += part.len() as u64;
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(size),
            other => Ok(other?),
        }
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A device's directory, locked while this lives.
pub struct RealDisk {
    root: PathBuf,
    lock: fs::File,
    failpoint: Option<(String, AtomicU64)>,
    /// When somebody has asked for space, and how much there was.
    recent: Mutex<Option<(Instant, (u64, u64))>>,
}

impl RealDisk {
    /// Own the directory: `DeviceFailed` when it does not exist, `Locked` when another process owns it.
    pub fn open(root: &Path) -> Result<Arc<Self>> {
        let what = root.display();
        if !root.is_dir() {
            return Err(Error::DeviceFailed(format!("{what} is not a directory; mount the device there")));
        }
        let failed = |error: io::Error| Error::of_io(&error, &what.to_string());
        let path = root.join(".lock");
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o640);
        let lock = options.open(&path).map_err(failed)?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            let owner = fs::read_to_string(&path).unwrap_or_default();
            let owner = if owner.trim().is_empty() { "unknown" } else { owner.trim() };
            return Err(Error::Locked(format!(
                "{what} is in use by process {owner}; stop it or give this one another device"
            )));
        }
        lock.set_len(0).map_err(failed)?;
        lock.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0).map_err(failed)?;
        let failpoint = std::env::var(FAILPOINT).ok().map(|setting| {
            let (name, nth) = setting.split_once(':').unwrap_or((&setting, "1"));
            (name.to_owned(), AtomicU64::new(nth.parse().unwrap_or(1)))
        });
        Ok(Arc::new(Self { root: root.to_owned(), lock, failpoint, recent: Mutex::default() }))
    }

    fn options() -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).mode(0o640);
        options
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::around(Self::options().create_new(true).open(self.root.join(path))?)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::around(Self::options().open(self.root.join(path))?)))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(directory))? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn make_directory(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.root.join(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.root.join(path))?.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(syncfs(&self.lock)?)
    }

    fn is_direct(&self) -> bool {
        self.lock.try_clone().is_ok_and(|file| RealFile::around(file).is_direct())
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let status = statvfs(&self.root)?;
        Ok((status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize))
    }

    fn recent_space(&self) -> io::Result<(u64, u64)> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, space)) = *recent
            && asked.elapsed() < RECENTLY
        {
            return Ok(space);
        }
        let space = self.space()?;
        *recent = Some((Instant::now(), space));
        Ok(space)
    }

    fn release(&self) {
        // It is released with the descriptor at the latest.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }

    fn reach(&self, point: &'static str) {
        if let Some((name, left)) = &self.failpoint
            && name == point
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let kill = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // The signal may take a moment; nothing may happen meanwhile.
            while kill.is_ok() {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::device::{AMPLE_BYTES, Device};

    #[test]
    fn how_much_is_free_is_asked_each_time_only_near_the_reserve() {
        let root = std::env::temp_dir().join(format!("swiftlet-space-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let disk = RealDisk::open(&root).unwrap();
        let known = |asked: Instant, free: u64| *disk.recent.lock().unwrap() = Some((asked, (free, free)));
        // The reserve is larger than any disk.
        let reserve = 1 << 60;
        let device = Device::new(Arc::clone(&disk) as _, [0; 16], reserve);
        let soon = Instant::now() + Duration::from_secs(600);
        known(soon, reserve + AMPLE_BYTES + 7);
        assert!(device.check_room(7).is_ok());
        assert!(matches!(device.check_room(8), Err(Error::DiskFull(_))));
        assert_ne!(disk.space().unwrap(), disk.recent_space().unwrap());
        known(Instant::now().checked_sub(RECENTLY).unwrap(), reserve + AMPLE_BYTES + 7);
        assert!(matches!(device.check_room(7), Err(Error::DiskFull(_))), "it was too long ago");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_is_read_from_the_device_is_what_was_written() {
        let root = std::env::temp_dir().join(format!("swiftlet-from-device-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let file = RealDisk::open(&root).unwrap().create("file").unwrap();
        let bytes: Vec<u8> = (0..3 * BLOCK + 17).map(|at| (at * 7 / 5) as u8).collect();
        file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
        file.sync().unwrap();
        let edges = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 9, 3 * BLOCK, bytes.len() - 1, bytes.len()];
        for (offset, end) in edges.iter().flat_map(|offset| edges.iter().map(|end| (*offset, *end))) {
            for beyond in [0, 5, 2 * BLOCK] {
                let (len, mut found) = ((end + beyond).saturating_sub(offset), b"before".to_vec());
                let stop = (offset + len).min(bytes.len()).max(offset);
                assert_eq!(file.append_from_device(&mut found, len, offset as u64).unwrap(), stop - offset);
                assert_eq!(found, [b"before", &bytes[offset..stop]].concat(), "{offset}, {len}");
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_is_in_memory_is_read_at_once_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("swiftlet-at-once-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let bytes: Vec<u8> = (0..5 * BLOCK + 17).map(|at| (at * 7 / 5) as u8).collect();
        fs::write(root.join("file"), &bytes).unwrap();
        let file = RealFile::around(RealDisk::options().open(root.join("file")).unwrap());
        file.sync().unwrap();
        let read = |offset: usize, len: usize| {
            let mut found = vec![0; len];
            file.read_at_once(&mut found, offset as u64).then_some(found)
        };
        // An older kernel does not say what is in memory: there nothing is read at once.
        let is_known = cached::has(&file.file, 0, 1);
        for range in [0..1, 7..3 * BLOCK, 5 * BLOCK..bytes.len(), 0..bytes.len()] {
            let expected = is_known.then(|| bytes[range.clone()].to_vec());
            assert_eq!(read(range.start, range.len()), expected, "{range:?}");
        }
        assert_eq!(read(0, 0), None);
        assert_eq!(read(5 * BLOCK, BLOCK), None, "beyond the end");
        if !file.is_in_memory() {
            fadvise(&file.file, 0, None, Advice::DontNeed).unwrap();
            assert_eq!(read(0, 1), None, "it has to be read from the disk");
            // That has not begun to read it either.
            assert!(!cached::has(&file.file, 0, 1));
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
