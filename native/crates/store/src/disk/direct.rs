//! Appending to a file past the page cache, whatever the pieces are that come.
//!
//! The page cache costs a copy, and a page for each 4 KiB; for new bytes that is several times what the device needs.
//! What was written past it is not there: whoever reads it first brings it there.

use std::io;

use super::File;
use super::blocks::{BLOCK, Blocks};

/// Bytes that are gathered for one write: so much memory each of hundreds of uploads to a device may need.
const PIECE: usize = 128 << 10;

/// Appends to a file whose writes are direct.
///
/// Whole blocks are written from where they are, if they begin at a block there and in the file. Everything else is
/// gathered, and filled up with zeros at the end.
#[derive(Default)]
pub(crate) struct Stream {
    gathered: Blocks,
    /// Bytes in it.
    filled: usize,
    /// Up to where the file is written.
    offset: u64,
}

impl Stream {
    /// Append bytes.
    pub(crate) fn push(&mut self, file: &dyn File, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let whole = data.len() / BLOCK * BLOCK;
            let begins_at_block = (data.as_ptr() as usize).is_multiple_of(BLOCK) && self.filled.is_multiple_of(BLOCK);
            if whole > 0 && begins_at_block {
                if self.filled > 0 {
                    self.write_gathered(file)?;
                }
                file.write_blocks(&data[..whole], self.offset)?;
                self.offset += whole as u64;
                data = &data[whole..];
                continue;
            }
            if self.filled == 0 {
                self.gathered.begin(PIECE);
            }
            let count = data.len().min(PIECE - self.filled);
            self.gathered.push(&data[..count]);
            self.filled += count;
            data = &data[count..];
            if self.filled == PIECE {
                self.write_gathered(file)?;
            }
        }
        Ok(())
    }

    /// Write what is left, filled up with zeros, and return how long the file is now at least. Nothing may be appended
    /// any more.
    pub(crate) fn finish(&mut self, file: &dyn File) -> io::Result<u64> {
        if self.filled > 0 {
            self.gathered.fill();
            self.write_gathered(file)?;
        }
        Ok(self.offset)
    }

    fn write_gathered(&mut self, file: &dyn File) -> io::Result<()> {
        file.write_blocks(&self.gathered, self.offset)?;
        self.offset += self.gathered.len() as u64;
        self.filled = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Faults, SimulatedDisk};

    #[test]
    fn what_is_appended_in_any_pieces_is_there_filled_up_with_zeros() {
        let mut source = Blocks::default();
        source.begin(2 * PIECE + BLOCK);
        let bytes: Vec<u8> = (0..2 * PIECE as u32 + 4096).map(|number| ((number * 31) >> 3) as u8).collect();
        source.push(&bytes);
        // Where the pieces end; those that begin at a block are written from where they are.
        for cuts in [
            vec![],
            vec![4096, 16384],
            vec![1],
            vec![100, 4096, 8192],
            vec![4096, 4097, 30_000],
            vec![PIECE, PIECE + 7],
        ] {
            for size in [0, 1, 4095, 4096, 40_001, PIECE, PIECE + 1, 2 * PIECE + 4096] {
                let disk = SimulatedDisk::new(1, Faults::default());
                let file = disk.create("it").expect("room");
                let mut stream = Stream::default();
                let mut from = 0;
                for cut in cuts.iter().copied().chain([size]).filter(|cut| *cut <= size) {
                    stream.push(&*file, &source[from..cut]).expect("written");
                    from = cut;
                }
                let end = stream.finish(&*file).expect("written");
                let mut found = vec![1; 3 * PIECE];
                let count = file.read_at(&mut found, 0).expect("read");
                assert!(count == size.next_multiple_of(BLOCK) && count as u64 == end, "{cuts:?} {size}");
                assert!(found[..size] == source[..size] && found[size..count].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn blocks_behind_others_that_were_gathered_are_written_from_where_they_are() {
        let mut source = Blocks::default();
        source.begin(8 * PIECE);
        source.push(&vec![7; 8 * PIECE]);
        let elsewhere = vec![7; 3 * BLOCK + 1];
        // The first piece is elsewhere in memory: whole blocks, or one byte more.
        for (first, writes) in [(3 * BLOCK, 2), (3 * BLOCK + 1, 9)] {
            let disk = SimulatedDisk::new(1, Faults::default());
            let file = disk.create("it").expect("room");
            let before = disk.changes();
            let mut stream = Stream::default();
            let off = usize::from((elsewhere.as_ptr() as usize).is_multiple_of(BLOCK));
            stream.push(&*file, &elsewhere[off..][..first - off]).expect("written");
            stream.push(&*file, &elsewhere[..off]).expect("written");
            stream.push(&*file, &source).expect("written");
            stream.finish(&*file).expect("written");
            assert_eq!(disk.changes() - before, writes, "{first}");
        }
    }
}
