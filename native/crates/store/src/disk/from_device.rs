//! A file as the device has it, whatever the page cache has.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use super::File;

/// Reads of this file are of the device itself.
pub(crate) struct FromDevice<'a>(pub(crate) &'a dyn File);

impl File for FromDevice<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut bytes = Vec::new();
        let count = self.0.append_from_device(&mut bytes, buffer.len(), offset)?;
        buffer[..count].copy_from_slice(&bytes);
        Ok(count)
    }

    fn append_at(&self, buffer: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<usize> {
        self.0.append_from_device(buffer, len, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.0.allocate(size)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.truncate(size)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}
