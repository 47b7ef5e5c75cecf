//! Where the active volume takes the next batch: space that is allocated, and blocks of it that were written before.
//!
//! A sync of blocks that were never written has to wait for the file system's journal, because their extent changes;
//! on one disk all devices wait for the same journal. A sync of blocks that were written before is one flush. So a
//! small batch that reaches blocks that were never written takes a stretch of zeros behind it along, before the same
//! sync, and many batches after it find their blocks written. That writes each of those bytes twice, so a large batch,
//! whose own write takes longer than the journal, goes without.
//!
//! Fault model: zeros are what unwritten blocks read as, so a crash leaves nothing that it could not leave before. A
//! disk that has no room to allocate ahead may still have room for the batch: only the batch's own write says that the
//! disk is full.

use std::io;

use crate::device::Device;
use crate::error::Result;
use crate::record::BLOCK;
use crate::volume::{Volume, allocation};

/// Batches of so many bytes are large: they pass the page cache, and take no zeros along.
const LARGE_BYTES: u64 = 256 << 10;
/// Zeros for so many batches of the same size.
const BATCHES: u64 = 16;
/// The most zeros, in bytes, that one batch takes along.
const MOST_BYTES: u64 = 1 << 20;

/// Whether a batch of these blocks is written past the page cache.
pub(crate) fn is_large(start: u64, end: u64) -> bool {
    end - start >= LARGE_BYTES
}

/// What is ready behind the end of the active volume.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// The file's blocks are allocated up to here.
    allocated: u64,
    /// The file's blocks were written up to here.
    written: u64,
}

impl Room {
    /// The room of a new volume.
    pub(crate) fn of(device: &Device, volume: &Volume) -> Result<Self> {
        Ok(Self { allocated: device.io("ask for a file's size", volume.file.size())?, written: BLOCK })
    }

    /// Make room for a batch that ends before `end`, in a volume that is full at `size`.
    pub(crate) fn grow(&mut self, device: &Device, volume: &Volume, end: u64, size: u64) -> Result<()> {
        if end <= self.allocated {
            return Ok(());
        }
        let wanted = (end + allocation(device, size)?).min(size).max(end).next_multiple_of(BLOCK);
        match volume.file.allocate(wanted) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            outcome => {
                device.io("allocate a volume", outcome)?;
                self.allocated = wanted;
                Ok(())
            }
        }
    }

    /// The number of zeros to write behind a batch of these blocks.
    pub(crate) fn zeros(&self, start: u64, end: u64) -> u64 {
        let bytes = end - start;
        if end <= self.written || is_large(start, end) {
            return 0;
        }
        (bytes * BATCHES).min(MOST_BYTES).min(self.allocated.saturating_sub(end)) / BLOCK * BLOCK
    }

    /// Note that blocks were written up to here.
    pub(crate) fn wrote(&mut self, end: u64) {
        self.written = self.written.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn small_batches_take_zeros_along_where_nothing_was_written() {
        let mut room = Room { allocated: 64 << 20, written: BLOCK };
        assert_eq!(room.zeros(4 * KIB, 16 * KIB), 192 * KIB);
        assert_eq!(room.zeros(4 * KIB, 204 * KIB), MOST_BYTES);
        assert_eq!(room.zeros(4 * KIB, 260 * KIB), 0, "large");
        room.wrote(16 * KIB + 192 * KIB);
        assert_eq!(room.zeros(16 * KIB, 208 * KIB), 0);
        assert_eq!(room.zeros(204 * KIB, 212 * KIB), 128 * KIB);
        room.wrote(8 * KIB);
        assert_eq!(room.zeros(16 * KIB, 208 * KIB), 0);
    }

    #[test]
    fn zeros_end_where_nothing_is_allocated() {
        let room = Room { allocated: 20 * KIB + 1, written: BLOCK };
        assert_eq!(room.zeros(4 * KIB, 8 * KIB), 12 * KIB);
        assert_eq!(room.zeros(4 * KIB, 20 * KIB), 0);
        assert_eq!(room.zeros(4 * KIB, 40 * KIB), 0);
    }
}
