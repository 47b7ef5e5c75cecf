//! The file system below a store, with only the operations that a store needs: a real one, and one that loses what
//! real ones lose.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

mod blocks;
mod cached;
mod direct;
mod from_device;
mod real;
mod simulated;

pub use blocks::Blocks;
pub(crate) use direct::Stream;
pub(crate) use from_device::FromDevice;
pub use real::RealDisk;
pub use simulated::{Faults, SimulatedDisk};

/// An open file. Reads and writes have an offset, so that many threads may share it.
pub trait File: Send + Sync {
    /// Fill the buffer; the count is short only at the file's end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Append up to `len` bytes from `offset` on to the buffer, fewer only at the file's end; returns how many. This
    /// avoids filling memory before it is read into.
    fn append_at(&self, buffer: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<usize> {
        let had = buffer.len();
        buffer.resize(had + len, 0);
        let read = self.read_at(&mut buffer[had..], offset);
        buffer.truncate(had + read.as_ref().map_or(0, |read| *read));
        read
    }
    /// Fill the buffer if that waits for no device. False, with undefined content of the buffer: not all of it is in
    /// memory, or nobody knows whether it is, or it can't be read.
    fn read_at_once(&self, _buffer: &mut [u8], _offset: u64) -> bool {
        false
    }
    /// `append_at` for bytes that were synced, from the device itself where that can be had: that the page cache has them
    /// says nothing about the device.
    fn append_from_device(&self, buffer: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<usize> {
        self.append_at(buffer, len, offset)
    }
    /// Have these bytes brought into the page cache soon, in large pieces; nobody waits for it.
    fn read_ahead(&self, _offset: u64, _len: u64) {}
    /// Write all parts, one after the other.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Whether `write_blocks` passes the page cache by.
    fn is_direct(&self) -> bool {
        false
    }
    /// Write blocks at a multiple of their size; unless the file is direct as `write_at` does. Their address and their
    /// number of bytes are multiples of it, too. What was written so is durable, as everything else, only after `sync`.
    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(&[IoSlice::new(blocks)], offset)
    }
    /// Write content and length to the disk (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Bytes in the file.
    fn size(&self) -> io::Result<u64>;
    /// Make the file this long and reserve the space.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Truncate the file.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Return space to the file system; the range then reads as 0.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// For `sendfile`, where there is a real file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// One device's directory. Paths are relative to it, with `/` as separator.
pub trait Disk: Send + Sync {
    /// A new file for reading and writing; `AlreadyExists` if there is one.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// A file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Names in a directory.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;
    /// Make a directory unless it exists.
    fn make_directory(&self, path: &str) -> io::Result<()>;
    /// Give a file another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Remove a file.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Make a directory's names durable.
    fn sync_directory(&self, path: &str) -> io::Result<()>;
    /// Make durable what an earlier process left in the page cache.
    fn sync_all(&self) -> io::Result<()>;
    /// Whether writes can pass the page cache by.
    fn is_direct(&self) -> bool {
        false
    }
    /// Bytes in total and free.
    fn space(&self) -> io::Result<(u64, u64)>;
    /// The same as it was a moment ago, for those who ask often.
    fn recent_space(&self) -> io::Result<(u64, u64)> {
        self.space()
    }
    /// Let another process own the device; open files stay open.
    fn release(&self);
    /// Mark a named point where a crash test may strike.
    fn reach(&self, point: &'static str);
}
